//! Checks of every sending domain's records. The running service looks them up, because only it knows the domains.

use serde_json::Value;

use super::{Check, DoctorInputs, Verdict};
use crate::app::admin_client::{AdminClient, Ask};
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::base::id::AccountId;

/// Maximum number of checked domains; each needs several lookups.
const DOMAINS_MAX: usize = 50;
/// Number of domains that are checked at the same time.
const AT_ONCE: usize = 10;
const PURPOSE: &str = "check the domains";

pub(super) async fn checks(patient: &DoctorInputs) -> Vec<Check> {
    let client = AdminClient::new(&patient.config.data_dir);
    // The client is blocking.
    tokio::task::spawn_blocking(move || asked(&client)).await.unwrap_or_default()
}

fn asked(client: &AdminClient) -> Vec<Check> {
    let domains = match all_domains(client) {
        Ok(domains) => domains,
        Err(cli_error) => return vec![failed_check(&cli_error)],
    };
    let mut checks = vec![Check::new("service", Verdict::Ok, "the service is running", "")];
    if domains.is_empty() {
        let remedy = "Add one: postrider domain add NAME --stream transactional";
        checks.push(Check::new("domains", Verdict::Warn, "no sending domain exists yet", remedy));
    }
    if domains.len() > DOMAINS_MAX {
        let seen = format!("only the newest {DOMAINS_MAX} were checked");
        checks.push(Check::new("domains", Verdict::Warn, seen, "See the others with `postrider domain list`."));
    }
    let looked: Vec<_> = domains.iter().take(DOMAINS_MAX).collect();
    for some in looked.chunks(AT_ONCE) {
        let found: Vec<Vec<Check>> = std::thread::scope(|scope| {
            let looks: Vec<_> = some.iter().map(|domain| scope.spawn(|| look(client, domain))).collect();
            looks.into_iter().map(|look| look.join().unwrap_or_default()).collect()
        });
        checks.extend(found.into_iter().flatten());
    }
    checks
}

fn failed_check(cli_error: &CliError) -> Check {
    let text = cli_error.to_string();
    let why = text.lines().nth(1).unwrap_or_default().trim().to_owned();
    match cli_error.exit() {
        Exit::Unreachable => {
            let seen = format!("{why}; sending domains were not checked, because only the running service knows them");
            Check::new(
                "service",
                Verdict::Warn,
                seen,
                "Start the service, and run doctor again for DKIM, SPF and DMARC.",
            )
        }
        _ => Check::new("service", Verdict::Warn, why, "Run doctor as the service's user, or see its log."),
    }
}

struct Domain {
    account: AccountId,
    id: String,
    name: String,
}

fn all_domains(client: &AdminClient) -> Result<Vec<Domain>, CliError> {
    let mut domains = Vec::new();
    for account in rows(client, "/v1/accounts?limit=100", None)? {
        let Some(account) = account["id"].as_str().and_then(|id| id.parse::<AccountId>().ok()) else { continue };
        for domain in rows(client, "/v1/domains?limit=100", Some(account))? {
            let text = |member: &str| domain[member].as_str().unwrap_or_default().to_owned();
            domains.push(Domain { account, id: text("id"), name: text("name") });
        }
        if domains.len() > DOMAINS_MAX {
            break;
        }
    }
    Ok(domains)
}

fn rows(client: &AdminClient, path: &str, account: Option<AccountId>) -> Result<Vec<Value>, CliError> {
    let mut page = client.ask(Ask::get(PURPOSE, path, account))?.value;
    Ok(page["data"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn look(client: &AdminClient, domain: &Domain) -> Vec<Check> {
    let path = format!("/v1/domains/{}/verify", domain.id);
    match client.ask(Ask::post(PURPOSE, path, Some(domain.account), None)) {
        Ok(reply) => {
            let records = reply.value["records"].as_array().map_or(&[][..], Vec::as_slice);
            let mut checks: Vec<_> = records.iter().map(|record| judge(&domain.name, record)).collect();
            checks.push(checklist(client, domain));
            checks
        }
        Err(cli_error) => {
            let why = cli_error.to_string().lines().nth(1).unwrap_or_default().trim().to_owned();
            vec![Check::new(format!("domain {}", domain.name), Verdict::Warn, why, "See the service's log.")]
        }
    }
}

/// Returns the checklist of a domain in one line.
fn checklist(client: &AdminClient, domain: &Domain) -> Check {
    let name = format!("checklist of {}", domain.name);
    let path = format!("/v1/domains/{}/checklist", domain.id);
    match client.ask(Ask::get(PURPOSE, &path, Some(domain.account))) {
        Ok(reply) => summary(name, reply.value["items"].as_array().map_or(&[][..], Vec::as_slice)),
        Err(cli_error) => {
            let why = cli_error.to_string().lines().nth(1).unwrap_or_default().trim().to_owned();
            Check::new(name, Verdict::Warn, why, "See the service's log.")
        }
    }
}

/// Names the items that fail or warn, with the first one's remedy.
fn summary(name: String, items: &[Value]) -> Check {
    let with = |status: &str| -> Vec<&Value> { items.iter().filter(|item| item["status"] == status).collect() };
    let names = |items: &[&Value]| {
        let names: Vec<_> = items.iter().filter_map(|item| item["title"].as_str()).collect();
        names.join("; ")
    };
    let (failing, warning) = (with("fail"), with("warn"));
    let seen = match (failing.is_empty(), warning.is_empty()) {
        (true, true) => {
            let seen = format!("{} of {} items pass, and none fails", with("pass").len(), items.len());
            return Check::new(name, Verdict::Ok, seen, "");
        }
        (false, true) => format!("not met: {}", names(&failing)),
        (true, false) => format!("met with a warning: {}", names(&warning)),
        (false, false) => {
            format!("not met: {}; met with a warning: {}", names(&failing), names(&warning))
        }
    };
    let first = failing.first().or(warning.first());
    let remedy = first.and_then(|item| item["remedy"].as_str()).unwrap_or("See the domain's checklist in the panel.");
    Check::new(name, Verdict::Warn, seen, remedy)
}

/// Judges the service's finding for a record.
fn judge(domain: &str, record: &Value) -> Check {
    let text = |member: &str| record[member].as_str().unwrap_or_default();
    let purpose = match text("purpose") {
        "dkim" => "DKIM",
        "spf" => "SPF",
        "dmarc" => "DMARC",
        "return_path" => "return path",
        other => other,
    };
    let name = format!("{purpose} of {domain}");
    let found: Vec<_> = record["found"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let (at, value) = (text("name"), text("value"));
    let publish = format!("Publish at {at} a {} record: {value}", text("type"));
    let bad = if record["required"] == true { Verdict::Fail } else { Verdict::Warn };
    match text("status") {
        // Two records of one kind count as none (RFC 7208 4.5, RFC 7489 6.6.3).
        "ok" | "mismatch" if found.len() > 1 && ["SPF", "DMARC"].contains(&purpose) => Check::new(
            name,
            Verdict::Fail,
            format!("{at} has {} of them, which is an error", found.len()),
            "Keep only one.",
        ),
        "ok" => Check::new(name, Verdict::Ok, format!("{at} has the record"), ""),
        "missing" => Check::new(name, bad, format!("{at} has no such record"), publish),
        "mismatch" => Check::new(name, bad, format!("{at} has {}", found.join(" and ")), publish),
        _ => Check::new(name, Verdict::Warn, format!("{at} could not be looked up"), "Try again."),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::app::fake_daemon::FakeDaemon;

    fn record(purpose: &str, required: bool, status: &str, found: &[&str]) -> Value {
        json!({"purpose": purpose, "type": "TXT", "name": "x.example.com", "value": "v", "required": required,
            "status": status, "found": found})
    }

    #[test]
    fn a_missing_required_record_fails_and_others_warn() {
        for (purpose, required, status, found, verdict) in [
            ("dkim", true, "ok", &["k"][..], Verdict::Ok),
            ("dkim", true, "missing", &[], Verdict::Fail),
            ("dkim", true, "mismatch", &["p=x"], Verdict::Fail),
            ("dkim", false, "missing", &[], Verdict::Warn),
            ("spf", false, "missing", &[], Verdict::Warn),
            ("spf", false, "ok", &["v=spf1 a", "v=spf1 b"], Verdict::Fail),
            ("dmarc", false, "unchecked", &[], Verdict::Warn),
        ] {
            let check = judge("example.com", &record(purpose, required, status, found));
            assert_eq!(check.verdict, verdict, "{check:?}");
            assert!(check.name.ends_with(" of example.com"), "{check:?}");
            assert_eq!(check.remedy.is_empty(), verdict == Verdict::Ok, "{check:?}");
        }
    }

    #[test]
    fn doctor_requests_a_check_of_each_domain() {
        let account = json!({"data": [{"id": "acc_00000000000000000000000001"}]}).to_string();
        let domains = json!({"data": [{"id": "dom_1", "name": "example.com"}]}).to_string();
        let looked = json!({"records": [record("dkim", true, "missing", &[])]}).to_string();
        let items = json!({"items": [{"id": "spf", "status": "pass", "remedy": null}]}).to_string();
        let daemon = FakeDaemon::answering(&[(200, &account), (200, &domains), (200, &looked), (200, &items)]);
        let checks = asked(&AdminClient::new(daemon.data_dir()));
        let verdicts: Vec<_> = checks.iter().map(|check| check.verdict).collect();
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Fail, Verdict::Ok]);
        assert_eq!(checks[2].name, "checklist of example.com");
        assert!(daemon.requests()[2].starts_with("POST /v1/domains/dom_1/verify "));
    }

    #[test]
    fn a_checklist_is_one_line_and_has_the_first_remedy() {
        let item = |id: &str, status: &str| json!({"title": id, "status": status, "remedy": format!("fix {id}")});
        let summed = |items: &[Value]| {
            let check = summary("checklist of a.example".to_owned(), items);
            (check.verdict, check.seen, check.remedy)
        };
        let passes = [item("spf", "pass"), item("tls", "unknown")];
        assert_eq!(summed(&passes), (Verdict::Ok, "1 of 2 items pass, and none fails".into(), String::new()));
        let both = [item("spf", "warn"), item("dkim", "fail"), item("dmarc", "fail")];
        assert_eq!(
            summed(&both),
            (Verdict::Warn, "not met: dkim; dmarc; met with a warning: spf".into(), "fix dkim".into())
        );
    }

    #[test]
    fn a_stopped_service_is_reported_with_its_consequence() {
        let folder = tempfile::tempdir().unwrap();
        let checks = asked(&AdminClient::new(folder.path()));
        assert!(checks[0].verdict == Verdict::Warn && checks[0].remedy.contains("Start the service"), "{checks:?}");
    }
}
