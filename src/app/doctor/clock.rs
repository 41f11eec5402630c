//! Check of the clock: by a time service on this machine, otherwise by the validity of signatures in the DNS.

use std::path::Path;

use serde_json::Value;

use super::{Check, DoctorInputs, Verdict};
use crate::app::admin_client::{AdminClient, Ask};
use crate::base::time::Timestamp;
use crate::engine::ports::Clock as _;
use crate::net::clock::SystemClock;
use crate::net::probe::dns::ProbeType;

/// File that exists while systemd-timesyncd synchronises the clock (systemd-timesyncd.service(8)).
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";
const NAME: &str = "clock";
const REMEDY: &str = "Run a time service such as systemd-timesyncd or chrony.";

pub(super) async fn checks(patient: &DoctorInputs) -> Vec<Check> {
    let client = AdminClient::new(&patient.config.data_dir);
    // The client is blocking. Another check reports whether the service runs.
    let asked = tokio::task::spawn_blocking(move || client.ask(Ask::get("show the clock", "/v1/clock", None)));
    let service = asked.await.ok().and_then(Result::ok).and_then(|reply| of_service(&reply.value));
    service.into_iter().chain(of_machine(patient).await).collect()
}

/// Returns the running service's report of a doubtful wall clock.
fn of_service(clock: &Value) -> Option<Check> {
    if clock["state"] != "doubtful" {
        return None;
    }
    let fact = |name| clock[name].as_str().unwrap_or_default();
    let seen = format!(
        "the service doubts the wall clock ({}): it continues from {}, while the wall clock says {}; meanwhile nothing \
         is deleted, expired or failed",
        fact("cause"),
        fact("service_time"),
        fact("wall_clock")
    );
    let remedy = "Correct the clock. If it is right, run `postrider clock accept`.";
    Some(Check::new(NAME, Verdict::Fail, seen, remedy))
}

async fn of_machine(patient: &DoctorInputs) -> Vec<Check> {
    let now = SystemClock::new().now();
    if Path::new(SYNCHRONIZED).exists() {
        return vec![Check::new(NAME, Verdict::Ok, format!("{now}, synchronised by systemd-timesyncd"), "")];
    }
    let signed = patient.ask(".", ProbeType::Soa).await.ok().and_then(|answer| answer.signed);
    vec![judge(now, signed)]
}

/// Checks the clock by the validity period of a signature made today.
fn judge(now: Timestamp, signed: Option<(u32, u32)>) -> Check {
    let seconds = now.as_millis() / 1000;
    match signed {
        None => {
            let seen = format!("the clock says {now}, and no time source was found to compare it with");
            Check::new(NAME, Verdict::Warn, seen, REMEDY)
        }
        Some((from, until)) if (u64::from(from)..=u64::from(until)).contains(&seconds) => {
            let seen = format!(
                "the clock says {now}, within the validity of the DNS root's signatures; that window is days wide, so \
                 an error of hours would not be noticed"
            );
            Check::new(NAME, Verdict::Ok, seen, "")
        }
        Some((from, until)) => {
            let at = |seconds: u32| Timestamp::from_millis(u64::from(seconds) * 1000);
            let seen = format!(
                "the clock says {now}, outside the validity of the DNS root's signatures, {} to {}",
                at(from),
                at(until)
            );
            Check::new(NAME, Verdict::Fail, seen, REMEDY)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_doubted_by_the_service_is_a_failure_with_its_remedy() {
        let clock = |state| serde_json::json!({ "state": state, "cause": "it jumped ahead by more than an hour" });
        assert!(of_service(&clock("trusted")).is_none());
        let check = of_service(&clock("doubtful")).unwrap();
        assert_eq!(check.verdict, Verdict::Fail);
        assert!(check.seen.contains("it jumped ahead") && check.remedy.contains("postrider clock accept"));
    }

    #[test]
    fn a_clock_outside_the_validity_of_current_signatures_is_wrong() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        assert_eq!(judge(now, Some((1_699_900_000, 1_700_100_000))).verdict, Verdict::Ok);
        assert_eq!(judge(now, Some((1_700_000_001, 1_700_100_000))).verdict, Verdict::Fail);
        assert_eq!(judge(now, Some((1_699_000_000, 1_699_999_999))).verdict, Verdict::Fail);
        assert_eq!(judge(now, None).verdict, Verdict::Warn);
    }
}
