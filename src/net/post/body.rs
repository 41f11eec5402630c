//! The body of a webhook's answer, for the attempt log. It is never trusted, and reading it ends at the attempt's
//! deadline (contract 5).

use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;

/// Number of bytes read, so that a connection with a short answer can be reused. A longer body is cut off.
const READ_MAX: usize = 16 * 1024;
/// Number of bytes stored, in UTF-8.
const KEPT_MAX: usize = 4 * 1024;

/// Returns the beginning of the body on `connection`, as far as it arrived before `end`.
pub(super) async fn evidence(connection: &mut Connection, response: Response<Incoming>, end: Instant) -> String {
    let mut read = Vec::new();
    // After a 101 the connection speaks another protocol, so there is no body.
    let has_body = response.status() != StatusCode::SWITCHING_PROTOCOLS;
    let mut body = response.into_body();
    while has_body && read.len() < READ_MAX {
        let Ok(Some(chunk)) = timeout_at(end, connection.next(&mut body)).await else { break };
        let room = READ_MAX - read.len();
        read.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
    kept(&read)
}

/// Returns the first 4 KiB as text, cut at a character boundary.
fn kept(read: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(read).into_owned();
    text.truncate(text.floor_char_boundary(KEPT_MAX));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_body_is_short_and_ends_with_a_whole_character() {
        let long = "\u{e4}".repeat(KEPT_MAX);
        assert_eq!(kept(long.as_bytes()), "\u{e4}".repeat(KEPT_MAX / 2));
        assert_eq!(kept(format!("a{long}").as_bytes()).len(), KEPT_MAX - 1);
        assert_eq!(kept(b"ok \xff"), "ok \u{fffd}");
        assert_eq!(kept(b""), "");
    }
}
