//! One message of a session: `[RSET] MAIL RCPT DATA`, the message, and the answers.
//!
//! ```text
//!  Rset → Mail → Rcpt → Data ──354──→ Content → Body → Dot → finished
//!            │       │     └─354, but refused before──→ LoneDot → finished
//!            └───────┴──refused──→ finished (with PIPELINING: once all three answers are in)
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::capabilities::Capabilities;
use super::client::unexpected;
use super::deadlines::Deadlines;
use super::dot::DotStuffer;
use super::outcome::{Ending, Envelope, Phase};
use super::reply::Reply;

/// The answer or write that the transaction waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AwaitedReply {
    Rset,
    Mail,
    Rcpt,
    Data,
    /// The message's bytes from the caller: the server is ready for them.
    Content,
    Body,
    Dot,
    /// The answer to an empty message, sent because DATA got 354 although the recipient was refused (RFC 2920 3.1).
    LoneDot,
}

/// Whether the commands go in one write.
#[derive(Debug)]
enum Pace {
    /// All were written at the start (RFC 2920).
    Pipelined,
    /// Commands are sent one by one; these are not written yet.
    OneByOne { mail: Vec<u8>, rcpt: Vec<u8> },
}

/// Consequence of an answer.
#[derive(Debug)]
pub(super) enum Next {
    /// The transaction continues.
    GoOn,
    /// The message's attempt is over and the connection is reusable.
    Finished(Phase, Ending),
    /// The connection can't be used any more.
    Broken(Ending),
}

/// One message's transaction.
#[derive(Debug)]
pub(super) struct Transaction {
    awaits: AwaitedReply,
    pace: Pace,
    refusal: Option<(Phase, Reply)>,
    message: DotStuffer,
    /// Number of body bytes written.
    bytes_out: u64,
    /// Times and byte counts of the body's progress, oldest first. Only entries that can still start a slow window are
    /// kept.
    progress: VecDeque<(Duration, u64)>,
}

impl Transaction {
    /// Starts a message: its first commands go to `out`. A connection is clean before its first message, and after an
    /// RSET of its own.
    pub(super) fn begin(
        envelope: &Envelope,
        size: usize,
        capabilities: Capabilities,
        is_clean: bool,
        out: &mut Vec<u8>,
    ) -> Self {
        // RSET is sent only from the second message on: some servers count an RSET without effect as junk.
        let awaits = if is_clean { AwaitedReply::Mail } else { AwaitedReply::Rset };
        if !is_clean {
            out.extend_from_slice(b"RSET\r\n");
        }
        let pace = if capabilities.pipelining {
            push_mail(envelope, size, capabilities, out);
            push_rcpt(envelope, out);
            out.extend_from_slice(b"DATA\r\n");
            Pace::Pipelined
        } else {
            let (mut mail, mut rcpt) = (Vec::new(), Vec::new());
            push_mail(envelope, size, capabilities, &mut mail);
            push_rcpt(envelope, &mut rcpt);
            if is_clean {
                out.append(&mut mail);
            }
            Pace::OneByOne { mail, rcpt }
        };
        let message = DotStuffer::new(Bytes::new());
        Self { awaits, pace, refusal: None, message, bytes_out: 0, progress: VecDeque::new() }
    }

    /// Returns the phase for an outcome.
    pub(super) const fn phase(&self) -> Phase {
        match self.awaits {
            AwaitedReply::Rset => Phase::Rset,
            AwaitedReply::Mail => Phase::Mail,
            AwaitedReply::Rcpt => Phase::Rcpt,
            AwaitedReply::Data | AwaitedReply::Content | AwaitedReply::LoneDot => Phase::Data,
            AwaitedReply::Body => Phase::Body,
            AwaitedReply::Dot => Phase::Dot,
        }
    }

    /// Returns the time limit of the awaited event.
    pub(super) const fn allowance(&self, deadlines: &Deadlines) -> Duration {
        match self.awaits {
            AwaitedReply::Rset => deadlines.rset,
            AwaitedReply::Mail => deadlines.mail,
            AwaitedReply::Rcpt => deadlines.rcpt,
            // No message depends on the answer to a lone dot, so the ten-minute deadline does not apply.
            AwaitedReply::Data | AwaitedReply::Content | AwaitedReply::LoneDot => deadlines.data,
            AwaitedReply::Body => deadlines.block,
            AwaitedReply::Dot => deadlines.dot,
        }
    }

    /// Takes the refusal that arrived before the last answer, if there is one.
    pub(super) const fn take_refusal(&mut self) -> Option<(Phase, Reply)> {
        self.refusal.take()
    }

    /// Reports that the output was written. Outputs the message's next block, or starts to wait for the answer to its
    /// final dot. Returns the new deadline, if it changes.
    pub(super) fn written(&mut self, deadlines: &Deadlines, now: Duration, out: &mut Vec<u8>) -> Option<Duration> {
        if self.awaits != AwaitedReply::Body {
            return None;
        }
        if self.message.is_done() {
            self.awaits = AwaitedReply::Dot;
            return Some(now + deadlines.dot);
        }
        self.progress.push_back((now, self.bytes_out));
        let window_min = u64::from(deadlines.body_rate_min) * deadlines.body_window.as_secs();
        while self.progress.front().is_some_and(|(_, at)| self.bytes_out - at >= window_min) {
            self.progress.pop_front();
        }
        let slow = self.progress.front().map_or(now, |(since, _)| *since) + deadlines.body_window;
        self.put_block(out);
        Some(slow.min(now + deadlines.block))
    }

    fn put_block(&mut self, out: &mut Vec<u8>) {
        self.message.next_block(out);
        self.bytes_out += u64::try_from(out.len()).unwrap_or(u64::MAX);
    }

    /// Returns whether the output is the message's last block.
    pub(super) fn is_at_dot(&self) -> bool {
        self.awaits == AwaitedReply::Body && self.message.is_done()
    }

    /// Returns whether the server is ready for the message's bytes.
    pub(super) const fn wants_content(&self) -> bool {
        matches!(self.awaits, AwaitedReply::Content)
    }

    /// Sends the message's bytes. The server has been ready for them since `now`.
    pub(super) fn send_content(&mut self, message: Bytes, now: Duration, out: &mut Vec<u8>) {
        self.message = DotStuffer::new(message);
        self.awaits = AwaitedReply::Body;
        self.progress.push_back((now, 0));
        self.put_block(out);
    }

    /// Handles the awaited answer; further commands go to `out`.
    pub(super) fn answered(&mut self, reply: Reply, out: &mut Vec<u8>) -> Next {
        match self.awaits {
            AwaitedReply::Rset if reply.is_positive() => self.advance(AwaitedReply::Mail, out),
            AwaitedReply::Mail if reply.is_positive() => self.advance(AwaitedReply::Rcpt, out),
            AwaitedReply::Rcpt if reply.is_positive() => self.advance(AwaitedReply::Data, out),
            AwaitedReply::Data if reply.code == 354 => self.begin_body(out),
            AwaitedReply::Dot if reply.is_positive() => Next::Finished(Phase::Dot, Ending::Answered(reply)),
            AwaitedReply::LoneDot => self.finish(),
            AwaitedReply::Rset => Next::Broken(Ending::Answered(reply)),
            AwaitedReply::Mail | AwaitedReply::Rcpt | AwaitedReply::Data | AwaitedReply::Dot if reply.code < 400 => {
                Next::Broken(unexpected(&reply))
            }
            AwaitedReply::Mail | AwaitedReply::Rcpt | AwaitedReply::Data | AwaitedReply::Dot => self.refused(reply),
            AwaitedReply::Content | AwaitedReply::Body => Next::Broken(unexpected(&reply)),
        }
    }

    fn advance(&mut self, awaits: AwaitedReply, out: &mut Vec<u8>) -> Next {
        self.awaits = awaits;
        if let Pace::OneByOne { mail, rcpt } = &mut self.pace {
            match awaits {
                AwaitedReply::Mail => out.append(mail),
                AwaitedReply::Rcpt => out.append(rcpt),
                AwaitedReply::Data => out.extend_from_slice(b"DATA\r\n"),
                AwaitedReply::Rset
                | AwaitedReply::Content
                | AwaitedReply::Body
                | AwaitedReply::Dot
                | AwaitedReply::LoneDot => {}
            }
        }
        Next::GoOn
    }

    fn begin_body(&mut self, out: &mut Vec<u8>) -> Next {
        if self.refusal.is_some() {
            self.awaits = AwaitedReply::LoneDot;
            out.extend_from_slice(b".\r\n");
        } else {
            self.awaits = AwaitedReply::Content;
        }
        Next::GoOn
    }

    /// Handles a 4xx or 5xx. The first one is the outcome; with PIPELINING the answers to the other commands still
    /// follow.
    fn refused(&mut self, reply: Reply) -> Next {
        let phase = self.phase();
        self.refusal.get_or_insert((phase, reply));
        match (&self.pace, self.awaits) {
            (Pace::Pipelined, AwaitedReply::Mail) => self.awaits = AwaitedReply::Rcpt,
            (Pace::Pipelined, AwaitedReply::Rcpt) => self.awaits = AwaitedReply::Data,
            (Pace::Pipelined | Pace::OneByOne { .. }, _) => return self.finish(),
        }
        Next::GoOn
    }

    fn finish(&mut self) -> Next {
        match self.refusal.take() {
            Some((phase, reply)) => Next::Finished(phase, Ending::Answered(reply)),
            None => Next::Broken(Ending::Closed("the transaction has no outcome".to_owned())),
        }
    }
}

fn push_mail(envelope: &Envelope, size: usize, capabilities: Capabilities, out: &mut Vec<u8>) {
    push(out, &["MAIL FROM:<", &envelope.mail_from, ">"]);
    if capabilities.size {
        push(out, &[" SIZE=", &size.to_string()]);
    }
    // Without 8BITMIME the bytes are sent nevertheless: the message is signed, so its encoding can't change.
    if envelope.eight_bit && capabilities.eight_bit_mime {
        push(out, &[" BODY=8BITMIME"]);
    }
    if envelope.smtputf8 {
        push(out, &[" SMTPUTF8"]);
    }
    push(out, &["\r\n"]);
}

fn push_rcpt(envelope: &Envelope, out: &mut Vec<u8>) {
    push(out, &["RCPT TO:<", &envelope.rcpt_to, ">\r\n"]);
}

fn push(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}
