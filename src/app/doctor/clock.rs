//! Whether the clock is right: as a time service on this machine says, else as signatures in the DNS allow.

use std::path::Path;

use super::{Check, Patient, Verdict};
use crate::base::time::Timestamp;
use crate::engine::ports::Clock as _;
use crate::net::clock::SystemClock;
use crate::net::probe::dns::Asked;

/// There while systemd-timesyncd holds the clock to a server's (systemd-timesyncd.service(8)).
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";
const NAME: &str = "clock";
const REMEDY: &str = "Run a time service such as systemd-timesyncd or chrony.";

pub(super) async fn checks(patient: &Patient) -> Vec<Check> {
    let now = SystemClock::new().now();
    if Path::new(SYNCHRONIZED).exists() {
        return vec![Check::new(NAME, Verdict::Ok, format!("it is {now}, and systemd-timesyncd keeps it"), "")];
    }
    let signed = patient.ask(".", Asked::Soa).await.ok().and_then(|told| told.signed);
    vec![judge(now, signed)]
}

/// What the window of a signature of today says of the clock.
fn judge(now: Timestamp, signed: Option<(u32, u32)>) -> Check {
    let seconds = now.as_millis() / 1000;
    match signed {
        None => {
            let seen = format!("it is {now} here, and nothing was found to compare that with");
            Check::new(NAME, Verdict::Warn, seen, REMEDY)
        }
        Some((from, until)) if (u64::from(from)..=u64::from(until)).contains(&seconds) => {
            let seen = format!(
                "it is {now} here, which the signatures of the DNS root allow; their window is days wide, so hours of \
                 error would not show"
            );
            Check::new(NAME, Verdict::Ok, seen, "")
        }
        Some((from, until)) => {
            let at = |seconds: u32| Timestamp::from_millis(u64::from(seconds) * 1000);
            let seen = format!(
                "it is {now} here, outside the window of the DNS root's signatures, {} to {}",
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
    fn a_clock_outside_the_window_of_todays_signatures_is_wrong() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        assert_eq!(judge(now, Some((1_699_900_000, 1_700_100_000))).verdict, Verdict::Ok);
        assert_eq!(judge(now, Some((1_700_000_001, 1_700_100_000))).verdict, Verdict::Fail);
        assert_eq!(judge(now, Some((1_699_000_000, 1_699_999_999))).verdict, Verdict::Fail);
        assert_eq!(judge(now, None).verdict, Verdict::Warn);
    }
}
