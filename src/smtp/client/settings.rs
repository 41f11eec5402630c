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
    /// STARTTLS if the server offers it (RFC 7435).
    WhereOffered,
    /// Always: a session that can't be secured ends.
    Required,
    /// No STARTTLS: this server's TLS is known to be broken, or the connection is secure already.
    Never,
}

/// User name and password (RFC 4954). They are sent only over a secured connection, or if the operator has confirmed
/// that the server is on this machine.
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
    /// The name sent in EHLO.
    pub ehlo: Arc<str>,
    /// The server's address, for the outcome.
    pub peer: Option<IpAddr>,
    /// Time limit of each phase.
    pub deadlines: Deadlines,
    /// Whether a server with our own name is a mail loop.
    pub loop_check: LoopCheck,
    /// Whether STARTTLS is used.
    pub starttls: StartTls,
    /// The login that the server requires.
    pub login: Option<Login>,
}

/// A request of the machine to its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAction {
    /// Write all of [`super::Client::output`], then call [`super::Client::written`] or [`super::Client::write_failed`].
    Write,
    /// Read bytes from the server: [`super::Client::received`] or [`super::Client::closed`].
    Read,
    /// Make a TLS handshake: [`super::Client::secured`] or [`super::Client::handshake_failed`].
    Handshake,
    /// Provide the message's bytes: [`super::Client::give_body`] or [`super::Client::body_missing`].
    Body,
    /// Provide a message, or end the session: [`super::Client::begin`] or [`super::Client::quit`].
    Ready,
    /// Take the outcome.
    Finished,
}
