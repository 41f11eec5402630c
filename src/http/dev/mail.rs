//! Captured mail under `/dev/mail` (contract 8 and 12.2).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use serde::Serialize;

use super::{blocking, dev};
use crate::base::id::MessageId;
use crate::domain::address::{Address, InvalidAddress};
use crate::domain::violation::Violations;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::mail::decoded::{Decoded, decoded};
use crate::net::dev::capture::CapturedMail;
use crate::net::dev::filter::MailFilter;

/// The filters of a list.
const PARAMETERS: [&str; 6] = ["to", "from", "subject", "account_id", "count", "wait"];
/// Maximum number of messages to wait for.
const COUNT_MAX: usize = 1000;
/// Maximum time to wait.
const WAIT_MAX: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct MailList {
    data: Vec<CapturedMail>,
}

/// `GET /dev/mail`.
pub(super) async fn list(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let query = call.query(&PARAMETERS, &mut violations);
    let filter = filter_of(&query, &mut violations);
    let count = query.get("count").map_or(Some(1), |text| text.parse().ok().filter(|n| (1..=COUNT_MAX).contains(n)));
    if count.is_none() {
        violations.add("count", format!("must be a whole number from 1 to {COUNT_MAX}"));
    }
    let wait = query.get("wait").map_or(Some(Duration::ZERO), duration);
    if wait.is_none() {
        violations.add("wait", "must be a number of seconds or milliseconds such as 5s or 250ms, at most 60s");
    }
    let (count, wait) = violations.or(|| count.zip(wait))?;
    let data = dev(api)?.capture.wait_for(&filter, count, wait).await;
    Ok(Answer::json(StatusCode::OK, &MailList { data }))
}

fn filter_of(query: &Query, violations: &mut Violations) -> MailFilter {
    let mut address = |name: &str| {
        // A `+` in a query means a space, which addresses contain only in quotes.
        let parsed: Result<Address, InvalidAddress> = query.get(name)?.replace(' ', "+").parse();
        violations.check(name, parsed).map(|address| address.match_key())
    };
    let (to, from) = (address("to"), address("from"));
    MailFilter {
        to,
        from,
        subject: query.get("subject").map(str::to_lowercase),
        account: query.parsed("account_id", violations),
    }
}

/// Parses whole seconds or milliseconds.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().ok()?;
    let duration = match &text[digits.len()..] {
        "s" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        _ => return None,
    };
    (duration <= WAIT_MAX).then_some(duration)
}

#[derive(Serialize)]
struct Mail {
    #[serde(flatten)]
    mail: CapturedMail,
    raw: String,
    #[serde(flatten)]
    decoded: Decoded,
}

/// `GET /dev/mail/{id}`.
pub(super) async fn show(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let id: MessageId = call.param("id").parse().map_err(|_| ApiError::NotFound)?;
    let capture = Arc::clone(&dev(api)?.capture);
    // A message is refused in every interface from its content's deadline on (contract 7).
    if api.engine.is_content_over(id)? {
        return Err(ApiError::NotFound);
    }
    let read = move || Ok(capture.get(id)?.map(|(mail, raw)| (mail, STANDARD.encode(&raw), decoded(&raw))));
    let (mail, raw, decoded) = blocking(api, read).await?.ok_or(ApiError::NotFound)?;
    Ok(Answer::json(StatusCode::OK, &Mail { mail, raw, decoded }))
}

/// `DELETE /dev/mail`.
pub(super) async fn clear(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let capture = Arc::clone(&dev(api)?.capture);
    blocking(api, move || capture.clear()).await?;
    Ok(Answer::no_content())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_seconds_or_milliseconds_up_to_a_minute() {
        for (text, millis) in [("5s", 5000), ("250ms", 250), ("0s", 0), ("60s", 60_000), ("60000ms", 60_000)] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "5", "s", "61s", "60001ms", "1.5s", "-1s", "1m", "5 s", "1e3ms", "99999999999999999999s", "é"]
        {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
