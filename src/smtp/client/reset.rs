//! RSET before a further message, as a separate step. A server without PIPELINING gets MAIL only after the answer to
//! RSET, but MAIL must follow the last check of the message at once.

use std::time::Duration;

use super::{Client, State};
use crate::smtp::transcript::Transcript;

impl Client {
    /// Sends an RSET before the next message, if the server does not support MAIL in the same write. Returns whether an
    /// RSET was sent. After its answer, [`Client::begin`] writes MAIL at once.
    pub fn reset(&mut self, now: Duration) -> bool {
        let is_needed = self.is_reusable() && self.messages > 0 && !self.is_reset && !self.capabilities.pipelining;
        if is_needed {
            self.begin_transcript();
            self.out.extend_from_slice(b"RSET\r\n");
            self.due = now + self.settings.deadlines.rset;
            self.state = State::Reset;
        }
        is_needed
    }

    /// Begins the transcript of a further message.
    pub(super) fn begin_transcript(&mut self) {
        self.transcript = Transcript::default();
        self.transcript.happened("on a connection kept from the previous message");
    }
}
