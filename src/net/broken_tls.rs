//! Mail servers whose TLS is broken. For an hour mail goes to them in clear text, which opportunistic TLS allows.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Time for which a server is remembered.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Maximum number of remembered servers; beyond it the oldest is forgotten.
const HOSTS_MAX: usize = 1024;

/// A bounded memory of host names.
#[derive(Debug, Default)]
pub(super) struct BrokenTls {
    since: Mutex<HashMap<String, Instant>>,
}

impl BrokenTls {
    /// Returns whether `host` was found broken within the hour before `now`.
    pub(super) fn has(&self, host: &str, now: Instant) -> bool {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        // The map is usually empty; then no lower-case copy is made.
        !since.is_empty()
            && since.get(&host.to_ascii_lowercase()).is_some_and(|since| now.duration_since(*since) < REMEMBERED)
    }

    /// Remembers `host` from `now` on.
    pub(super) fn add(&self, host: &str, now: Instant) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.len() >= HOSTS_MAX {
            since.retain(|_, since| now.duration_since(*since) < REMEMBERED);
        }
        if since.len() >= HOSTS_MAX {
            let oldest = since.iter().min_by_key(|(_, since)| **since).map(|(host, _)| host.clone());
            oldest.and_then(|host| since.remove(&host));
        }
        since.insert(host.to_ascii_lowercase(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_remembered_for_an_hour_under_any_case() {
        let (broken, now) = (BrokenTls::default(), Instant::now());
        broken.add("MX.example", now);
        assert!(broken.has("mx.Example", now) && !broken.has("mx2.example", now));
        assert!(!broken.has("mx.example", now + REMEMBERED));
    }

    #[test]
    fn the_oldest_server_is_forgotten_first() {
        let (broken, mut now) = (BrokenTls::default(), Instant::now());
        for n in 0..=HOSTS_MAX {
            broken.add(&format!("mx{n}.example"), now);
            now += Duration::from_millis(1);
        }
        assert!(!broken.has("mx0.example", now) && broken.has("mx1.example", now));
    }
}
