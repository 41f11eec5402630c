//! AUTH (RFC 4954) with PLAIN (RFC 4616), or LOGIN if the server does not offer PLAIN. A refusal here concerns the
//! relay and not the message: the client ends in [`Phase::Auth`] with the server's answer.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::{Client, Ending, Phase, State, unexpected};
use crate::smtp::reply::Reply;

/// The last line that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// AUTH PLAIN with its whole argument.
    Plain,
    /// AUTH LOGIN.
    Login,
    /// The user name.
    Username,
    /// The password.
    Password,
}

impl Client {
    /// Logs in if a login is configured. Otherwise the session is ready.
    pub(super) fn log_in(&mut self, now: Duration) {
        if self.settings.login.is_none() {
            self.state = State::Ready;
        } else if self.capabilities.auth_plain {
            self.say(Step::Plain, now);
        } else if self.capabilities.auth_login {
            self.say(Step::Login, now);
        } else {
            let why = "the server does not offer AUTH PLAIN or AUTH LOGIN";
            self.end_in(Phase::Auth, Ending::Unreadable(why.to_owned()));
        }
    }

    pub(super) fn auth_answered(&mut self, step: Step, reply: Reply, now: Duration) {
        let is_challenge = reply.code == 334;
        match step {
            Step::Plain | Step::Password if reply.is_positive() => self.state = State::Ready,
            Step::Login if is_challenge => self.say(Step::Username, now),
            Step::Username if is_challenge => self.say(Step::Password, now),
            // 504: the server does not support the mechanism after all.
            Step::Plain if reply.code == 504 && self.capabilities.auth_login => self.say(Step::Login, now),
            Step::Plain | Step::Login | Step::Username | Step::Password if reply.code >= 400 => {
                self.end(Ending::Answered(reply));
            }
            Step::Plain | Step::Login | Step::Username | Step::Password => self.end(unexpected(&reply)),
        }
    }

    fn say(&mut self, step: Step, now: Duration) {
        let Some(login) = &self.settings.login else { return };
        let (username, password) = (login.username.as_bytes(), login.password.expose());
        let line = match step {
            Step::Plain => {
                let words = Zeroizing::new([b"\0", username, b"\0", password].concat());
                format!("AUTH PLAIN {}\r\n", encoded(&words).as_str())
            }
            Step::Login => "AUTH LOGIN\r\n".to_owned(),
            Step::Username => format!("{}\r\n", encoded(username).as_str()),
            Step::Password => format!("{}\r\n", encoded(password).as_str()),
        };
        self.out.extend_from_slice(Zeroizing::new(line).as_bytes());
        // RFC 5321 has no limit for AUTH. Servers look up a login like a sender.
        self.due = now + self.settings.deadlines.mail;
        self.state = State::Auth(step);
    }
}

fn encoded(bytes: &[u8]) -> Zeroizing<String> {
    Zeroizing::new(STANDARD.encode(bytes))
}
