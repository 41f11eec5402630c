//! Checks of alerting: the recipients and the sender of alerts, the last backup, and the block lists.

use super::{Check, DoctorInputs, Verdict};
use crate::app::admin_client::{AdminClient, Ask};
use crate::app::config::Config;
use crate::base::time::Timestamp;
use crate::engine::ports::Clock as _;
use crate::engine::probe::block_list::{Health, Listing, health, listing};
use crate::engine::probe::reverse::seen_addresses;
use crate::net::clock::SystemClock;

const ALERTS: &str = "alerts";
const BACKUP: &str = "backup";

/// Checks that alerts have recipients, and the age of the last backup.
pub(super) async fn checks(patient: &DoctorInputs) -> Vec<Check> {
    let client = AdminClient::new(&patient.config.data_dir);
    // The client is blocking.
    let asked = tokio::task::spawn_blocking(move || client.ask(Ask::get("read the status", "/v1/status", None)));
    let status = asked.await.ok().and_then(Result::ok).map(|reply| reply.value);
    let signed = status.as_ref().and_then(|status| status["alerts"]["signed"].as_bool());
    let open = status.as_ref().and_then(|status| status["alerts"]["open"].as_u64());
    let last_backup = status.as_ref().map(|status| status["backup"]["last_at"].as_str().map(str::to_owned));
    vec![alerts(&patient.config, signed, open), backup(patient, last_backup)]
}

fn alerts(config: &Config, signed: Option<bool>, open: Option<u64>) -> Check {
    let (alerts, from) = (&config.alerts, config.alerts_from());
    let domain = from.domain();
    let verify = format!("Add and verify {domain} as a sending domain, or set alerts.from to an address at one.");
    let unsigned = format!("not signed, because the domain {domain} of alerts.from is not verified here");
    if alerts.email.is_empty() && alerts.webhook.is_none() {
        let seen = "no address and no webhook is configured, so alerts of the service are only listed and logged";
        let remedy = "Set alerts.email, and run `postrider alert test`.";
        return match signed {
            Some(false) if alerts.owners => {
                let seen = format!("{seen}; alerts to owners are {unsigned}");
                Check::new(ALERTS, Verdict::Warn, seen, format!("{remedy} {verify}"))
            }
            Some(_) | None => Check::new(ALERTS, Verdict::Warn, seen, remedy),
        };
    }
    let mut receivers: Vec<_> = alerts.email.iter().map(|address| address.as_given().to_owned()).collect();
    receivers.extend(alerts.webhook.iter().map(|webhook| webhook.url.host_str().unwrap_or_default().to_owned()));
    let open = match open {
        Some(0) | None => String::new(),
        Some(1) => "; 1 alert is open".to_owned(),
        Some(open) => format!("; {open} alerts are open"),
    };
    let seen = format!("sent to {}{open}", receivers.join(", "));
    match signed {
        Some(false) if alerts.sends_mail() => {
            Check::new(ALERTS, Verdict::Warn, format!("{seen}; mail is {unsigned}"), verify)
        }
        Some(_) if !open.is_empty() => Check::new(ALERTS, Verdict::Warn, seen, "See `postrider alert list`."),
        Some(_) => Check::new(ALERTS, Verdict::Ok, seen, ""),
        None => {
            let seen = format!("{seen}; whether {domain} is verified is unknown, because the service is not running");
            Check::new(ALERTS, Verdict::Warn, seen, "Start the service, and run `postrider alert test`.")
        }
    }
}

fn backup(patient: &DoctorInputs, last: Option<Option<String>>) -> Check {
    let Some(age_max) = patient.config.alerts.backup_age_max else {
        return Check::new(BACKUP, Verdict::Ok, "its age is not checked (alerts.backup_hours is 0)", "");
    };
    let (hours, now) = (age_max.as_secs() / 3600, SystemClock::new().now());
    let remedy = "Run `postrider backup FILE`, and repeat it daily, for example by cron.";
    match last {
        None => {
            let seen = "the time of the last backup is unknown, because the service is not running";
            Check::new(BACKUP, Verdict::Warn, seen, "Start the service, and run doctor again.")
        }
        Some(None) => Check::new(BACKUP, Verdict::Warn, "no backup was taken yet", remedy),
        Some(Some(last)) => match last.parse::<Timestamp>() {
            Ok(at) if now.since(at) <= age_max => {
                Check::new(BACKUP, Verdict::Ok, format!("the last backup was taken at {at}"), "")
            }
            _ => {
                let seen = format!("the last backup was taken at {last}, over {hours} hours ago");
                Check::new(BACKUP, Verdict::Warn, seen, remedy)
            }
        },
    }
}

/// Checks whether the addresses that mail is sent from are on a block list.
pub(super) async fn block_lists(patient: &DoctorInputs) -> Vec<Check> {
    let zones = &patient.config.alerts.blocklists;
    if zones.is_empty() {
        return Vec::new();
    }
    let mut addresses = std::collections::BTreeSet::new();
    for relay in patient.direct() {
        let ehlo = patient.ehlo(relay).as_str();
        addresses.extend(seen_addresses(&*patient.probe, &relay.source, ehlo).await);
    }
    let mut checks = Vec::new();
    for zone in zones {
        let name = format!("block list {zone}");
        if let Health::Broken(why) = health(&*patient.probe, zone.as_str()).await {
            let remedy = "Remove the list from alerts.blocklists, or use a name server that may query it.";
            checks.push(Check::new(name, Verdict::Warn, format!("the list can't be used: {why}"), remedy));
            continue;
        }
        let (mut listed, mut unknown) = (Vec::new(), Vec::new());
        for address in &addresses {
            match listing(&*patient.probe, zone.as_str(), *address).await {
                Listing::Listed(codes) => listed.push(format!("{address} ({})", codes.join(", "))),
                Listing::Clear => {}
                Listing::Unknown(why) => unknown.push(why),
            }
        }
        let shown: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        checks.push(match (listed.is_empty(), unknown.first()) {
            (false, _) => {
                let remedy = "Find the cause first, then follow the removal steps of the list.";
                Check::new(name, Verdict::Fail, format!("the list contains {}", listed.join(", ")), remedy)
            }
            (true, Some(why)) => {
                Check::new(name, Verdict::Warn, why, "Try again, or use a name server that may query the list.")
            }
            (true, None) if shown.is_empty() => {
                let seen = "this machine does not know the address that receivers see";
                Check::new(name, Verdict::Warn, seen, "Set source to this server's public address.")
            }
            (true, None) => {
                Check::new(name, Verdict::Ok, format!("the list does not contain {}", shown.join(", ")), "")
            }
        });
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::environment::Environment;

    #[test]
    fn unsigned_mail_is_a_warning_whoever_gets_it() {
        let checked = |settings: &str, signed| {
            let text = format!("hostname = \"mail.example.com\"\n[alerts]\n{settings}");
            let config = Config::parse(&text, "p.toml", &Environment::default()).unwrap();
            let check = alerts(&config, Some(signed), Some(0));
            (check.verdict, check.seen.contains("not signed"))
        };
        let webhook = "webhook_url = \"https://hooks.example/\"\nwebhook_secret = \"0123456789abcdef\"\n";
        let off = format!("{webhook}owners = false");
        for (settings, expected) in [
            ("email = [\"ops@example.net\"]", (Verdict::Warn, true)),
            ("owners = true", (Verdict::Warn, true)),
            ("owners = false", (Verdict::Warn, false)),
            (webhook, (Verdict::Warn, true)),
            (&off, (Verdict::Ok, false)),
        ] {
            assert_eq!(checked(settings, false), expected, "{settings}");
            assert!(!checked(settings, true).1, "{settings}");
        }
    }
}
