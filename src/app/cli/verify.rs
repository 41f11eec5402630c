//! `postrider domain verify`: looks up a domain's DNS records, once or until they are found, and prints a verdict.

use std::thread;
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::Value;

use super::session::{Session, print};
use super::show::Shape;
use super::{Console, EarlyExit};
use crate::app::exit::Exit;

/// The purpose of the request, as it follows "cannot".
pub(super) const PURPOSE: &str = "verify the domain";
/// Interval between two checks. Every check bypasses all DNS caches.
const INTERVAL: Duration = Duration::from_secs(5);

/// Checks the domain whose `path` ends in `/verify`, repeatedly for as long as `wait` says.
pub(super) fn verify(
    session: &Session,
    path: &str,
    wait: Option<Duration>,
    json: bool,
    console: &mut Console<'_>,
) -> Result<Exit, EarlyExit> {
    let started = Instant::now();
    let wait = wait.unwrap_or_default();
    loop {
        let reply = session.ask(Method::POST, PURPOSE, path, None)?;
        let is_verified = reply.value["status"] == "verified";
        let left = wait.saturating_sub(started.elapsed());
        if !is_verified && !left.is_zero() {
            thread::sleep(INTERVAL.min(left));
            continue;
        }
        print(&reply, Shape::Domain, json, console)?;
        if !json {
            writeln!(console.out, "\n{}", verdict(&reply.value))?;
        }
        return Ok(if is_verified { Exit::Done } else { Exit::ChecksFailed });
    }
}

/// Returns the last line: whether the domain is verified, or the failing record and what was found instead.
fn verdict(domain: &Value) -> String {
    if domain["status"] == "verified" {
        return "Verified.".to_owned();
    }
    let mut records = domain["records"].as_array().into_iter().flatten();
    let blocking = records.find(|record| record["required"] == true && record["status"] != "ok");
    let Some(record) = blocking else {
        return format!("Not verified: the domain is {}", domain["status"].as_str().unwrap_or("pending"));
    };
    let text = |member: &str| record[member].as_str().unwrap_or_default().escape_debug().to_string();
    let found: Vec<String> = record["found"].as_array().into_iter().flatten().map(Value::to_string).collect();
    let found = match (text("status").as_str(), found.is_empty()) {
        (_, false) => format!("has {}", found.join(", ")),
        ("unchecked", true) => "could not be looked up".to_owned(),
        (_, true) => "was not found".to_owned(),
    };
    format!("Not verified: {} {} {found}", text("type"), text("name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pending(status: &str, found: &[&str]) -> String {
        let spf = json!({"type": "TXT", "name": "example.com", "required": false, "status": "missing", "found": []});
        let dkim = json!({"type": "TXT", "name": "s1._domainkey.example.com", "required": true, "status": status,
            "found": found});
        verdict(&json!({"status": "pending", "records": [spf, dkim]}))
    }

    #[test]
    fn the_verdict_names_the_first_required_record_and_what_was_found() {
        assert_eq!(pending("missing", &[]), "Not verified: TXT s1._domainkey.example.com was not found");
        assert_eq!(
            pending("mismatch", &["v=DKIM1; p=x\u{1b}"]),
            "Not verified: TXT s1._domainkey.example.com has \"v=DKIM1; p=x\\u001b\""
        );
        assert_eq!(pending("unchecked", &[]), "Not verified: TXT s1._domainkey.example.com could not be looked up");
        assert_eq!(pending("ok", &[]), "Not verified: the domain is pending");
        assert_eq!(verdict(&json!({"status": "verified"})), "Verified.");
    }
}
