//! Verdict on a message after an attempt, derived only from the outcome (contract 6).

use super::finding;
use super::outcome::{Ending, Outcome, Phase};
use super::reply::Reply;
use super::rules::Rules;
use crate::domain::event::Bounce;

/// Result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The server accepted the message.
    Delivered,
    /// A temporary failure; no other server of the site is tried in this attempt.
    Deferred(Deferral),
    /// A permanent failure, by the receiver's answer.
    Bounced(Bounce),
    /// Another server of the site must be tried; the content is the result if there is none.
    NextServer(FinalResult),
    /// The kept connection was unusable: try the same server over a new one. This does not count as an attempt.
    Reconnect,
}

/// A temporary failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deferral {
    /// Scope of the backoff.
    pub scope: Scope,
    /// Reason, for the `deferred` event. Never `suppressed`.
    pub why: Bounce,
    /// Whether the server may have accepted the message nevertheless.
    pub is_outcome_unknown: bool,
}

/// Scope of the backoff after a temporary failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// This message.
    Message,
    /// Everything for this site.
    Site,
}

/// Result if no further server can be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinalResult {
    /// The message waits.
    Deferred(Deferral),
    /// The message can't be sent.
    Bounced(Bounce),
}

impl FinalResult {
    /// Combines the results of two servers: a temporary failure takes precedence over a permanent one.
    #[must_use]
    pub fn and_then(self, later: Self) -> Self {
        match (self, later) {
            (Self::Deferred(first), Self::Bounced(_)) => Self::Deferred(first),
            (Self::Deferred(_) | Self::Bounced(_), later) => later,
        }
    }
}

impl From<FinalResult> for Verdict {
    fn from(last: FinalResult) -> Self {
        match last {
            FinalResult::Deferred(deferral) => Self::Deferred(deferral),
            FinalResult::Bounced(bounce) => Self::Bounced(bounce),
        }
    }
}

/// Judges an attempt at the server named `host`.
pub fn judge(outcome: &Outcome, host: &str, rules: &Rules) -> Verdict {
    match (&outcome.ending, outcome.phase) {
        (Ending::Loop, _) => Verdict::NextServer(FinalResult::Bounced(finding::loops_back())),
        (Ending::TooLarge { limit }, _) => Verdict::NextServer(FinalResult::Bounced(finding::too_large(*limit))),
        (Ending::NeedsSmtpUtf8, _) => Verdict::NextServer(FinalResult::Bounced(finding::needs_smtputf8())),
        (_, Phase::Rset) => Verdict::Reconnect,
        (Ending::Answered(reply), phase) => judge_answer(reply, phase, host, rules),
        (Ending::Unreachable(_) | Ending::TimedOut | Ending::Closed(_) | Ending::Unreadable(_), Phase::Dot) => {
            // Another server might get a message that this one has accepted.
            Verdict::Deferred(deferral(Scope::Message, finding::outcome_unknown(), true))
        }
        (Ending::Unreachable(why), _) => next(Scope::Site, finding::unreachable(why)),
        // The caller does not apply this to the message if another route exists, or may exist later.
        (Ending::Unusable(why), _) => next(Scope::Message, finding::unreachable(why)),
        (Ending::TimedOut, phase) => next(scope_of(phase), finding::timed_out()),
        (Ending::Closed(why), phase) => next(scope_of(phase), finding::closed(why)),
        (Ending::Unreadable(why), _) => next(Scope::Message, finding::unreadable(why)),
        (Ending::TlsFailed(why), _) => next(Scope::Message, finding::tls_failed(why)),
        (Ending::PolicyFailed { why, .. }, _) => next(Scope::Message, finding::policy_failed(why)),
    }
}

fn judge_answer(reply: &Reply, phase: Phase, host: &str, rules: &Rules) -> Verdict {
    if phase == Phase::Dot && reply.is_positive() {
        return Verdict::Delivered;
    }
    let why = rules.explain_reply(reply, Some(host));
    if reply.code == 421 && phase >= Phase::Mail {
        return Verdict::Deferred(deferral(Scope::Site, why, false));
    }
    match phase {
        // The answer is not about this message yet: a 5xx here is the server's state (contract 6).
        Phase::Connect | Phase::Greeting | Phase::Ehlo | Phase::StartTls | Phase::Auth | Phase::Rset => {
            next(Scope::Site, why)
        }
        Phase::Mail | Phase::Rcpt | Phase::Data | Phase::Body | Phase::Dot if reply.is_permanent() => {
            // Before RCPT the recipient was not named.
            Verdict::Bounced(Bounce { suppressed: why.suppressed && phase != Phase::Mail, ..why })
        }
        Phase::Mail | Phase::Rcpt | Phase::Data | Phase::Body | Phase::Dot => {
            Verdict::Deferred(deferral(Scope::Message, why, false))
        }
    }
}

/// Returns the scope of a failure: before MAIL it concerns the site, from MAIL on the message may have caused it.
const fn scope_of(phase: Phase) -> Scope {
    match phase {
        Phase::Connect | Phase::Greeting | Phase::Ehlo | Phase::StartTls | Phase::Auth => Scope::Site,
        Phase::Rset | Phase::Mail | Phase::Rcpt | Phase::Data | Phase::Body | Phase::Dot => Scope::Message,
    }
}

fn next(scope: Scope, why: Bounce) -> Verdict {
    Verdict::NextServer(FinalResult::Deferred(deferral(scope, why, false)))
}

fn deferral(scope: Scope, why: Bounce, is_outcome_unknown: bool) -> Deferral {
    // A retried attempt suppresses no address.
    Deferral { scope, why: Bounce { suppressed: false, ..why }, is_outcome_unknown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smtp::reply::ReplyParser;
    use crate::smtp::tls_policy::TlsFault;
    use crate::smtp::transcript::Transcript;

    fn outcome(phase: Phase, ending: Ending) -> Outcome {
        Outcome { phase, ending, peer: None, tls: None, transcript: Transcript::default() }
    }

    fn answered(phase: Phase, text: &str) -> Outcome {
        outcome(phase, Ending::Answered(ReplyParser::new().feed(format!("{text}\n").as_bytes()).unwrap().1.unwrap()))
    }

    /// Formats a verdict as one word, with the scope or the enhanced status.
    fn outcome_text(outcome: &Outcome) -> String {
        let of = |deferral: &Deferral| format!("{:?} {:?}", deferral.scope, deferral.is_outcome_unknown);
        match judge(outcome, "mx.b.example", Rules::built_in()) {
            Verdict::Delivered => "delivered".to_owned(),
            Verdict::Deferred(deferral) => format!("deferred {}", of(&deferral)),
            Verdict::Bounced(bounce) => format!("bounced {:?} {:?}", bounce.kind, bounce.source),
            Verdict::NextServer(FinalResult::Deferred(deferral)) => format!("next, else deferred {}", of(&deferral)),
            Verdict::NextServer(FinalResult::Bounced(bounce)) => {
                format!("next, else bounced {} {:?}", bounce.status.unwrap(), bounce.source)
            }
            Verdict::Reconnect => "reconnect".to_owned(),
        }
    }

    #[test]
    fn answers_are_classified_by_code_and_phase() {
        for (phase, text, verdict) in [
            (Phase::Dot, "250 2.0.0 taken", "delivered"),
            (Phase::Dot, "299 odd", "delivered"),
            (Phase::Mail, "550 5.7.1 no", "bounced Block Smtp"),
            (Phase::Rcpt, "550 5.1.1 no such user", "bounced Hard Smtp"),
            (Phase::Rcpt, "552 5.2.2 full", "bounced Soft Smtp"),
            (Phase::Data, "554 no", "bounced Undetermined Smtp"),
            (Phase::Body, "552 too much", "bounced Soft Smtp"),
            (Phase::Dot, "554 5.7.1 spam", "bounced Block Smtp"),
            (Phase::Dot, "550 4.7.1 the first digit decides", "bounced Block Smtp"),
            (Phase::Rcpt, "451 4.7.1 greylisted", "deferred Message false"),
            (Phase::Dot, "451 later", "deferred Message false"),
            (Phase::Rcpt, "421 closing", "deferred Site false"),
            (Phase::Dot, "421 closing", "deferred Site false"),
            (Phase::Greeting, "421 busy", "next, else deferred Site false"),
            (Phase::Auth, "421 busy", "next, else deferred Site false"),
            (Phase::Greeting, "554 no", "next, else deferred Site false"),
            (Phase::Greeting, "450 no", "next, else deferred Site false"),
            (Phase::Ehlo, "550 bad name", "next, else deferred Site false"),
            (Phase::Rset, "500 what", "reconnect"),
            (Phase::Rset, "421 idle for too long", "reconnect"),
        ] {
            assert_eq!(outcome_text(&answered(phase, text)), verdict, "{phase:?} {text}");
        }
    }

    #[test]
    fn a_missing_answer_is_never_a_bounce_by_the_receiver() {
        let why = String::new;
        for (phase, ending, verdict) in [
            (Phase::Connect, Ending::Unreachable(why()), "next, else deferred Site false"),
            (Phase::Connect, Ending::TimedOut, "next, else deferred Site false"),
            (Phase::Greeting, Ending::Closed(why()), "next, else deferred Site false"),
            (Phase::Greeting, Ending::Unreadable(why()), "next, else deferred Message false"),
            (Phase::StartTls, Ending::TlsFailed(why()), "next, else deferred Message false"),
            (
                Phase::StartTls,
                Ending::PolicyFailed { fault: TlsFault::CertificateExpired, why: why() },
                "next, else deferred Message false",
            ),
            (Phase::Rcpt, Ending::TimedOut, "next, else deferred Message false"),
            (Phase::Body, Ending::Closed(why()), "next, else deferred Message false"),
            (Phase::Dot, Ending::Closed(why()), "deferred Message true"),
            (Phase::Dot, Ending::TimedOut, "deferred Message true"),
            (Phase::Dot, Ending::Unreadable(why()), "deferred Message true"),
            (Phase::Rset, Ending::Closed(why()), "reconnect"),
            (Phase::Mail, Ending::TooLarge { limit: 9 }, "next, else bounced 5.3.4 Local"),
            (Phase::Mail, Ending::NeedsSmtpUtf8, "next, else bounced 5.6.7 Local"),
            (Phase::Greeting, Ending::Loop, "next, else bounced 5.4.6 Local"),
        ] {
            assert_eq!(outcome_text(&outcome(phase, ending.clone())), verdict, "{phase:?} {ending:?}");
        }
    }

    #[test]
    fn a_temporary_failure_of_one_server_takes_precedence() {
        let bounced = || FinalResult::Bounced(finding::too_large(9));
        let deferred = || FinalResult::Deferred(deferral(Scope::Site, finding::timed_out(), false));
        assert_eq!(bounced().and_then(deferred()), deferred());
        assert_eq!(deferred().and_then(bounced()), deferred());
        assert_eq!(bounced().and_then(bounced()), bounced());
    }

    #[test]
    fn a_refusal_before_rcpt_suppresses_no_address() {
        for (phase, suppressed) in [(Phase::Mail, false), (Phase::Rcpt, true), (Phase::Dot, true)] {
            match judge(&answered(phase, "550 5.1.1 No such user"), "mx.b.example", Rules::built_in()) {
                Verdict::Bounced(bounce) => assert_eq!(bounce.suppressed, suppressed, "{phase:?}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn retried_attempts_suppress_no_address() {
        for text in ["450 5.1.1 user unknown", "550 5.1.1 user unknown"] {
            match judge(&answered(Phase::Greeting, text), "mx.b.example", Rules::built_in()) {
                Verdict::NextServer(FinalResult::Deferred(deferral)) => assert!(!deferral.why.suppressed),
                other => panic!("{other:?}"),
            }
        }
    }
}
