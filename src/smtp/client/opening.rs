//! Opening of a session: greeting, EHLO or HELO, and STARTTLS if it is wanted (RFC 5321 3.1, RFC 3207).
//!
//! This module handles the first replies. It must never continue in clear text if TLS is required.

use std::time::Duration;

use super::{Client, StartTls, State, unexpected};
use crate::smtp::capabilities::Capabilities;
use crate::smtp::outcome::{Ending, LoopCheck, Phase};
use crate::smtp::reply::Reply;
use crate::smtp::tls_policy::TlsFault;

impl Client {
    pub(super) fn greeted(&mut self, reply: Reply, now: Duration) {
        if !reply.is_positive() {
            return self.end_unaccepted(reply);
        }
        if self.is_ourselves(&reply) {
            return self.end(Ending::Loop);
        }
        self.greet("EHLO", State::Ehlo, now);
    }

    pub(super) fn ehlo_answered(&mut self, reply: Reply, now: Duration) {
        // The server does not support EHLO (RFC 5321 3.2).
        if matches!(reply.code, 500 | 502 | 504) {
            return self.greet("HELO", State::Helo, now);
        }
        if !reply.is_positive() {
            return self.end_unaccepted(reply);
        }
        if self.is_ourselves(&reply) {
            return self.end(Ending::Loop);
        }
        self.capabilities = Capabilities::of(&reply);
        if self.tls.is_some() || self.settings.starttls == StartTls::Never {
            return self.log_in(now);
        }
        if !self.capabilities.starttls {
            return self.continue_unencrypted("the server does not offer STARTTLS", now);
        }
        self.out.extend_from_slice(b"STARTTLS\r\n");
        self.due = now + self.settings.deadlines.starttls;
        self.state = State::StartTls;
    }

    pub(super) fn helo_answered(&mut self, reply: Reply, now: Duration) {
        if !reply.is_positive() {
            return self.end_unaccepted(reply);
        }
        if self.is_ourselves(&reply) {
            return self.end(Ending::Loop);
        }
        if self.tls.is_some() {
            return self.log_in(now);
        }
        self.continue_unencrypted("the server does not support EHLO or STARTTLS", now);
    }

    pub(super) fn starttls_answered(&mut self, reply: &Reply, now: Duration) {
        // The handshake shares the deadline.
        if reply.is_positive() {
            self.state = State::Handshake;
        } else {
            self.continue_unencrypted(&format!("the server refused STARTTLS: {}", reply.text()), now);
        }
    }

    /// Continues without TLS, unless TLS is required.
    fn continue_unencrypted(&mut self, why: &str, now: Duration) {
        match self.settings.starttls {
            StartTls::WhereOffered | StartTls::Never => self.log_in(now),
            StartTls::Required => {
                let fault = TlsFault::StartTlsNotSupported;
                self.end_in(Phase::StartTls, Ending::PolicyFailed { fault, why: why.to_owned() });
            }
        }
    }

    pub(super) fn greet(&mut self, verb: &str, state: State, now: Duration) {
        for part in [verb, " ", &self.settings.ehlo, "\r\n"] {
            self.out.extend_from_slice(part.as_bytes());
        }
        // The second EHLO, after TLS, has a separate deadline.
        let first = if self.tls.is_none() { self.opening_ends } else { Duration::MAX };
        self.due = first.min(now + self.settings.deadlines.ehlo);
        self.state = state;
    }

    fn is_ourselves(&self, reply: &Reply) -> bool {
        let name = reply.first_word().map(|word| word.trim_end_matches('.'));
        match self.settings.loop_check {
            LoopCheck::OwnNameIsLoop => name.is_some_and(|name| name.eq_ignore_ascii_case(&self.settings.ehlo)),
            LoopCheck::OwnNameIsExpected => false,
        }
    }

    fn end_unaccepted(&mut self, reply: Reply) {
        self.end(if reply.code >= 400 { Ending::Answered(reply) } else { unexpected(&reply) });
    }
}
