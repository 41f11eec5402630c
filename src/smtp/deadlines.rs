//! Time limit of each phase of a session with a mail server. Sources: the defaults of other servers and RFC 5321
//! 4.5.3.2.

use std::time::Duration;

/// The deadlines of one session. [`Deadlines::default`] is for production; tests and the simulator shorten some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// TCP connection. Not in the RFC; 30 s is Postfix's.
    pub connect: Duration,
    /// Time until the greeting is complete (RFC 5321 4.5.3.2.1: 5 min).
    pub greeting: Duration,
    /// EHLO or HELO until its answer is complete. Not in the RFC; the same as MAIL.
    pub ehlo: Duration,
    /// Greeting and EHLO together.
    pub opening: Duration,
    /// STARTTLS, its answer and the handshake together. Not in the RFC.
    pub starttls: Duration,
    /// MAIL FROM (RFC 5321 4.5.3.2.2: 5 min).
    pub mail: Duration,
    /// RCPT TO (RFC 5321 4.5.3.2.3: 5 min).
    pub rcpt: Duration,
    /// DATA until its 354 (RFC 5321 4.5.3.2.4: 2 min).
    pub data: Duration,
    /// Each block of the message (RFC 5321 4.5.3.2.5: 3 min).
    pub block: Duration,
    /// The final dot until its answer (RFC 5321 4.5.3.2.6: 10 min).
    pub dot: Duration,
    /// RSET before a further message; 20 s is Postfix's.
    pub rset: Duration,
    /// QUIT; nothing depends on its answer.
    pub quit: Duration,
    /// The time over which the rate of a message's body is measured.
    pub body_window: Duration,
    /// Minimum rate of a body over any `body_window`, in bytes per second. A server that reads a byte per minute would
    /// hold a connection for days.
    pub body_rate_min: u32,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            greeting: Duration::from_secs(300),
            ehlo: Duration::from_secs(300),
            opening: Duration::from_secs(600),
            starttls: Duration::from_secs(60),
            mail: Duration::from_secs(300),
            rcpt: Duration::from_secs(300),
            data: Duration::from_secs(120),
            block: Duration::from_secs(180),
            dot: Duration::from_secs(600),
            rset: Duration::from_secs(20),
            quit: Duration::from_secs(2),
            body_window: Duration::from_secs(300),
            body_rate_min: 1024,
        }
    }
}

impl Deadlines {
    /// Returns the deadlines of a first attempt at a site that has never answered: it counts as silent after 15 s.
    #[must_use]
    pub fn of_first_attempt(self) -> Self {
        self.opened_within(Duration::from_secs(15))
    }

    /// Returns deadlines with at most `most` for the connection, and for greeting, EHLO and TLS together.
    #[must_use]
    pub fn opened_within(self, most: Duration) -> Self {
        Self { connect: self.connect.min(most), opening: self.opening.min(most), ..self }
    }
}
