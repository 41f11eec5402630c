//! Mail servers that did not answer an RSET. No connection to such a server is kept for a while, because each message
//! on it would wait for the same timeout. Memory is bounded: the oldest entry is dropped first.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Time for which a server is remembered.
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);
/// Maximum number of servers.
const SERVERS_MAX: usize = 1024;

/// The servers. Times are the machine's own.
#[derive(Debug, Default)]
pub struct SilentResets {
    ends: HashMap<SocketAddr, Duration>,
}

impl SilentResets {
    /// Records that `server` did not answer an RSET.
    pub fn add(&mut self, server: SocketAddr, now: Duration) {
        self.ends.retain(|_, end| *end > now);
        if self.ends.len() >= SERVERS_MAX
            && let Some(oldest) =
                self.ends.iter().min_by_key(|(server, end)| (**end, **server)).map(|(server, _)| *server)
        {
            self.ends.remove(&oldest);
        }
        self.ends.insert(server, now + REMEMBERED_FOR);
    }

    /// Returns whether `server` did not answer an RSET lately.
    pub fn has(&self, server: &SocketAddr, now: Duration) -> bool {
        self.ends.get(server).is_some_and(|end| *end > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_remembered_for_an_hour_and_the_oldest_makes_room() {
        let server = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let (mut resets, start) = (SilentResets::default(), Duration::from_secs(1));
        resets.add(server(0), start);
        assert!(resets.has(&server(0), start + REMEMBERED_FOR - Duration::from_secs(1)));
        assert!(!resets.has(&server(0), start + REMEMBERED_FOR) && !resets.has(&server(1), start));
        (1..=1024).for_each(|port| resets.add(server(port), start + Duration::from_secs(u64::from(port))));
        let now = start + Duration::from_secs(1025);
        assert_eq!(resets.ends.len(), SERVERS_MAX);
        assert!(!resets.has(&server(0), now) && resets.has(&server(1), now) && resets.has(&server(1024), now));
    }
}
