//! Settings of a session, and the requests of its machine to the driver.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::base::secret::Secret;
use crate::smtp::deadlines::Deadlines;
use crate::smtp::outcome::LoopCheck;

/// Whether STARTTLS is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartTls {
    /// Where the server offers it (RFC 7435).
    WhereOffered,
    /// Always: a session that can't be secured ends.
    Required,
    /// Not at all: this server's TLS was found broken, or the connection is as it has to be already.
    Never,
}

/// User name and password (RFC 4954). Said over a secured connection, or where the operator has said that the way to
/// the server is this very machine.
#[derive(Clone)]
pub struct Login {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: Secret,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(..)")
    }
}

/// Settings of a session.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name to greet with.
    pub ehlo: Arc<str>,
    /// The address that is asked, for the outcome.
    pub peer: Option<IpAddr>,
    /// Time limit of each phase.
    pub deadlines: Deadlines,
    /// Whether a server with our own name is a loop.
    pub loop_check: LoopCheck,
    /// Whether STARTTLS is used.
    pub starttls: StartTls,
    /// The login that the server wants before it takes mail.
    pub login: Option<Login>,
}

/// A request of the machine to its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// [`super::Client::output`] to be written whole, then [`super::Client::written`] or
    /// [`super::Client::write_failed`].
    Write,
    /// Bytes from the server: [`super::Client::received`] or [`super::Client::closed`].
    Read,
    /// A TLS handshake: [`super::Client::secured`] or [`super::Client::handshake_failed`].
    Handshake,
    /// The message's bytes: [`super::Client::give_body`] or [`super::Client::body_missing`].
    Body,
    /// A message, or the end: [`super::Client::begin`] or [`super::Client::quit`].
    Ready,
    /// The outcome to be taken.
    Finished,
}
