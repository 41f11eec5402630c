//! Later reports of the simulator's receiver (contract 8): a complaint for `complained` and a delivery status
//! notification for `late-bounce`. They are mailed over loopback to the bounce receiver, as any other server would do.
//!
//! A report in progress keeps a virtual clock from advancing until the report has been accepted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::RootCertStore;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::simulator::{DOMAIN, HOSTNAME};
use crate::engine::ports::{Target, Transmit};
use crate::mail::feedback::FEEDBACK_MAILBOX;
use crate::net::transmit::Transmitter;
use crate::smtp::deadlines::Deadlines;
use crate::smtp::outcome::{Ending, Envelope, LoopCheck, Outcome, Phase};
use crate::smtp::tls_policy::TlsRequirement;
use crate::store::timer_cache::{Hold, TimerCache};

/// Maximum number of reports in progress. Beyond it, the simulator delays the acceptance of mail that it will report
/// on.
const AT_ONCE: usize = 8;
/// Number of attempts to send a report.
const TRIES: u32 = 5;
/// Time between two attempts, in real time.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of header bytes that a report returns.
const RETURNED_BYTES_MAX: usize = 32 * 1024;
/// MIME boundary of a report.
const BOUNDARY: &str = "=_simulator_report";

/// Kind of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The recipient marks the message as spam.
    Complaint,
    /// The mailbox turns out not to exist.
    LateBounce,
}

/// The accepted message that a report is about.
pub(super) struct Subject<'a> {
    /// MAIL FROM, without angle brackets.
    pub(super) mail_from: &'a str,
    /// RCPT TO.
    pub(super) recipient: &'a str,
    /// The message.
    pub(super) message: &'a [u8],
}

/// Sends reports.
pub struct Reporter {
    timers: Arc<TimerCache>,
    transmitter: Transmitter,
    turns: Arc<Semaphore>,
    receiver: watch::Sender<Option<SocketAddr>>,
}

/// A permit for one report. It keeps the virtual clock from advancing until the report is accepted.
pub(super) struct ReportPermit {
    _hold: Hold,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Reporter {
    /// Creates a reporter that holds `timers` during a report. Reports wait until [`open`](Self::open) sets
    /// the receiver.
    ///
    /// # Errors
    /// TLS can't be set up.
    pub fn new(timers: Arc<TimerCache>) -> Result<Self, rustls::Error> {
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        // Our own receiver on loopback: its certificate needs no verification.
        let transmitter = Transmitter::new(RootCertStore::empty())?;
        Ok(Self { timers, transmitter, turns, receiver: watch::Sender::new(None) })
    }

    /// Sends reports to `receiver` from now on.
    pub fn open(&self, receiver: SocketAddr) {
        self.receiver.send_replace(Some(receiver));
    }

    /// Waits for a permit. Call it before the message is acknowledged: after that, the virtual clock may advance.
    pub(super) async fn turn(&self) -> ReportPermit {
        let hold = self.timers.hold();
        ReportPermit { _permit: Arc::clone(&self.turns).acquire_owned().await.ok(), _hold: hold }
    }

    /// Sends a report in the background, so that the sender of the message does not wait.
    pub(super) fn report(self: &Arc<Self>, turn: ReportPermit, kind: Kind, subject: &Subject<'_>) {
        let (envelope, report) = match kind {
            Kind::Complaint => complaint(subject),
            Kind::LateBounce => late_bounce(subject),
        };
        let reporter = Arc::clone(self);
        tokio::spawn(async move {
            let _turn = turn;
            let mut report = Bytes::from(report);
            for tries_left in (0..TRIES).rev() {
                let outcome = reporter.mail(&envelope, &mut report).await;
                if outcome.as_ref().is_some_and(is_taken) {
                    return;
                }
                tracing::warn!(
                    ?kind,
                    ?outcome,
                    tries_left,
                    "the simulator's report was not accepted; trying again while tries are left"
                );
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    async fn mail(&self, envelope: &Envelope, report: &mut Bytes) -> Option<Outcome> {
        let mut receiver = self.receiver.subscribe();
        let address = receiver.wait_for(Option::is_some).await.ok().and_then(|address| *address)?;
        let target = Target {
            host: "localhost".into(),
            address,
            ehlo: HOSTNAME.into(),
            source: None,
            deadlines: Deadlines::default(),
            loop_check: LoopCheck::OwnNameIsExpected,
            submission: None,
            tls: TlsRequirement::Opportunistic,
        };
        let mut session = match self.transmitter.connect(&target).await {
            Ok(session) => session,
            Err(outcome) => return Some(outcome),
        };
        let outcome = session.send(envelope, report).await;
        session.quit().await;
        Some(outcome)
    }
}

fn is_taken(outcome: &Outcome) -> bool {
    match &outcome.ending {
        Ending::Answered(reply) => outcome.phase == Phase::Dot && reply.is_positive(),
        Ending::Unreachable(_)
        | Ending::Unusable(_)
        | Ending::TimedOut
        | Ending::Closed(_)
        | Ending::Unreadable(_)
        | Ending::TlsFailed(_)
        | Ending::PolicyFailed { .. }
        | Ending::TooLarge { .. }
        | Ending::NeedsSmtpUtf8
        | Ending::Loop => false,
    }
}

/// Builds a report in the Abuse Reporting Format (RFC 5965) to the complaints mailbox, with the recipient redacted as
/// providers do.
fn complaint(subject: &Subject<'_>) -> (Envelope, Vec<u8>) {
    let Subject { mail_from, message, .. } = subject;
    let host = mail_from.rsplit_once('@').map_or("", |(_, host)| host);
    let to = format!("{FEEDBACK_MAILBOX}@{host}");
    let parts = [
        "Content-Type: text/plain\r\n\r\nA recipient called this message spam.\r\n".to_owned(),
        format!(
            "Content-Type: message/feedback-report\r\n\r\n\
             Feedback-Type: abuse\r\nUser-Agent: Postrider-Simulator/1\r\nVersion: 1\r\n\
             Original-Mail-From: <{mail_from}>\r\nReporting-MTA: dns; {HOSTNAME}\r\n"
        ),
        returned(message),
    ];
    let from = format!("{FEEDBACK_MAILBOX}@{DOMAIN}");
    let report = written(&from, &to, "Abuse report", "feedback-report", &parts);
    (Envelope { mail_from: from, rcpt_to: to, eight_bit: true, smtputf8: false }, report)
}

/// Builds a delivery status notification (RFC 3464) to the return path, from the null path.
fn late_bounce(subject: &Subject<'_>) -> (Envelope, Vec<u8>) {
    let Subject { mail_from, recipient, message } = subject;
    let parts = [
        format!("Content-Type: text/plain\r\n\r\nThe message to {recipient} could not be delivered.\r\n"),
        format!(
            "Content-Type: message/delivery-status\r\n\r\n\
             Reporting-MTA: dns; {HOSTNAME}\r\n\r\n\
             Final-Recipient: rfc822; {recipient}\r\nAction: failed\r\nStatus: 5.1.1\r\n\
             Remote-MTA: dns; store.{DOMAIN}\r\n\
             Diagnostic-Code: smtp; 550 5.1.1 <{recipient}>: Recipient address rejected: User unknown\r\n"
        ),
        returned(message),
    ];
    let from = format!("MAILER-DAEMON@{HOSTNAME}");
    let report = written(&from, mail_from, "Undelivered Mail Returned to Sender", "delivery-status", &parts);
    let envelope =
        Envelope { mail_from: String::new(), rcpt_to: (*mail_from).to_owned(), eight_bit: true, smtputf8: false };
    (envelope, report)
}

/// Returns the header section alone (RFC 6522 4). A very long one is cut at the end of a line.
fn returned(message: &[u8]) -> String {
    let end = message.windows(4).position(|four| four == b"\r\n\r\n").map_or(message.len(), |place| place + 2);
    let head = &message[..end.min(RETURNED_BYTES_MAX)];
    let whole = head.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
    format!("Content-Type: text/rfc822-headers\r\n\r\n{}", String::from_utf8_lossy(&head[..whole]))
}

fn written(from: &str, to: &str, subject: &str, kind: &str, parts: &[String]) -> Vec<u8> {
    let mut report = format!(
        "From: <{from}>\r\nTo: <{to}>\r\nSubject: {subject}\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/report; report-type={kind}; boundary=\"{BOUNDARY}\"\r\n"
    );
    for part in parts {
        report.push_str(&format!("\r\n--{BOUNDARY}\r\n{part}"));
    }
    report.push_str(&format!("\r\n--{BOUNDARY}--\r\n"));
    report.into_bytes()
}
