//! Tests with the answers in `tests/corpus/answers.tsv` and their expected classification.

use std::collections::BTreeSet;

use super::*;
use crate::smtp::outcome::{Ending, Outcome, Phase};
use crate::smtp::transcript::Transcript;
use crate::smtp::verdict::{Verdict, judge};

const ANSWERS: &str = include_str!("../../../tests/corpus/answers.tsv");

/// A line of the table.
struct Answer {
    line: usize,
    host: &'static str,
    expected: (BounceKind, &'static str, bool),
    reply: Reply,
    source: &'static str,
}

fn answers() -> Vec<Answer> {
    let lines = (1..).zip(ANSWERS.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(line, text)| answer(line, text)).collect()
}

fn answer(line: usize, text: &'static str) -> Answer {
    let fields: Vec<_> = text.split('\t').collect();
    let [host, kind, category, suppress, answer, source] = fields[..] else { panic!("line {line}: six fields") };
    let kind = match kind {
        "hard" => BounceKind::Hard,
        "soft" => BounceKind::Soft,
        "block" => BounceKind::Block,
        "undetermined" => BounceKind::Undetermined,
        other => panic!("line {line}: no kind {other}"),
    };
    let suppressed = match suppress {
        "yes" => true,
        "no" => false,
        other => panic!("line {line}: yes or no, not {other}"),
    };
    let bytes = [bytes_of(answer), b"\r\n".to_vec()].concat();
    let (_, reply) = ReplyParser::new().feed(&bytes).unwrap_or_else(|why| panic!("line {line}: {why}"));
    let reply = reply.unwrap_or_else(|| panic!("line {line}: the reply is incomplete"));
    Answer { line, host, expected: (kind, category, suppressed), reply, source }
}

/// Returns the bytes of an answer that contains `\n` and `\xNN` escapes.
fn bytes_of(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let after = &rest[at + 1..];
        let (byte, length) = match after.strip_prefix('x') {
            Some(hex) => (u8::from_str_radix(&hex[..2], 16).unwrap(), 3),
            None if after.starts_with('n') => (b'\n', 1),
            None => panic!("{text}: only \\n and \\xNN"),
        };
        out.push(byte);
        rest = &after[length..];
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

fn explain(answer: &Answer) -> Bounce {
    Rules::built_in().explain_reply(&answer.reply, Some(answer.host))
}

#[test]
fn every_known_answer_is_classified_as_expected() {
    let answers = answers();
    assert!(answers.len() >= 500, "{}", answers.len());
    let wrong = answers.iter().filter_map(|answer| {
        let bounce = explain(answer);
        let found = (bounce.kind, bounce.category.as_str(), bounce.suppressed);
        let text = answer.reply.text();
        (found != answer.expected)
            .then(|| format!("\n{}: {found:?} by {}, not {:?}: {text}", answer.line, bounce.rule, answer.expected))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{} wrong:{}", wrong.len(), wrong.concat());
}

#[test]
fn every_answer_names_its_source_and_most_are_real() {
    let answers = answers();
    assert!(answers.iter().all(|answer| answer.source.len() >= 5 && !answer.host.is_empty()));
    let real = answers.iter().filter(|answer| answer.source != "constructed").count();
    assert!(real >= 400, "{real}");
}

#[test]
fn every_built_in_rule_matches_an_answer() {
    let used: BTreeSet<_> = answers().iter().map(|answer| explain(answer).rule).collect();
    let unused: Vec<_> = Rules::built_in().rules.iter().map(|rule| &rule.id).filter(|id| !used.contains(*id)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn a_refused_recipient_bounces_or_is_retried_by_its_code() {
    for answer in answers() {
        let code = answer.reply.code;
        let ending = Ending::Answered(answer.reply);
        let outcome = Outcome { phase: Phase::Rcpt, ending, peer: None, tls: None, transcript: Transcript::default() };
        match judge(&outcome, answer.host, Rules::built_in()) {
            Verdict::Bounced(bounce) => {
                assert!(code >= 500, "line {}", answer.line);
                assert!(!bounce.suppressed || bounce.kind == BounceKind::Hard, "line {}", answer.line);
                assert!(!bounce.advice.contains("retries"), "line {}: {}", answer.line, bounce.advice);
            }
            Verdict::Deferred(deferral) => {
                assert!((400..500).contains(&code), "line {}", answer.line);
                assert!(!deferral.why.suppressed && deferral.why.kind != BounceKind::Hard, "line {}", answer.line);
            }
            other => panic!("line {}: {other:?}", answer.line),
        }
    }
}

#[test]
fn escapes_become_bytes_and_line_ends() {
    assert_eq!(bytes_of("a\\nb\\xe4"), b"a\nb\xe4");
}
