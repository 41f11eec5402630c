//! Random mutations of reports: valid messages that are cut, altered, spliced and mixed. The seed is fixed, so a
//! failure repeats. The fuzz target covers the rest.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use postrider::mail::report::{Report, read};
use proptest::prelude::*;

use crate::corpus::examples;
use crate::{laws, malformed};

/// Number of mutations of each message in the everyday run.
const MUTATIONS: usize = 40;

/// Random number generator with the same sequence in every run (xorshift64*).
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap();
        number % limit.max(1)
    }
}

/// Returns a valid message with a few of the errors that fuzzers make.
fn mutated(message: &[u8], other: &[u8], rng: &mut Seeded) -> Vec<u8> {
    const TOKENS: [&[u8]; 12] = [
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b"--",
        b";",
        b"\"",
        b"(",
        b"\0",
        b"\xff",
        b"=",
        b"Content-Type: ",
        b"Action: failed\r\n",
    ];
    let mut message = message.to_vec();
    for _ in 0..=rng.below(6) {
        let place = rng.below(message.len());
        let length = rng.below(64).min(message.len() - place);
        match rng.below(6) {
            0 if !message.is_empty() => message[place] ^= 1 << rng.below(8),
            1 => drop(message.drain(place..place + length)),
            2 => drop(message.splice(place..place, TOKENS[rng.below(TOKENS.len())].iter().copied())),
            3 => {
                let copied = message[place..place + length].to_vec();
                let target = rng.below(message.len());
                drop(message.splice(target..target, copied));
            }
            4 => {
                let from = rng.below(other.len());
                drop(message.splice(place..place + length, other[from..].iter().take(length).copied()));
            }
            _ => message.truncate(message.len() - rng.below(message.len() / 4)),
        }
    }
    message
}

#[test]
fn the_invariants_hold_for_every_mutation() {
    let mut rng = Seeded(0x5053_5452_4944_4552);
    let messages: Vec<_> = examples().iter().map(|example| example.on_wire().into_bytes()).collect();
    let hostile = malformed::all().into_iter().map(|malformed| malformed.message);
    let messages: Vec<_> = messages.into_iter().chain(hostile.filter(|message| message.len() < 20_000)).collect();
    for message in &messages {
        for _ in 0..MUTATIONS {
            let other = &messages[rng.below(messages.len())];
            laws::check(&mutated(message, other, &mut rng));
        }
    }
}

/// Inputs that reached new code, and those that once violated an invariant.
#[test]
fn earlier_fuzzer_findings_stay_fixed() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/reports");
    let paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!paths.is_empty());
    for path in paths {
        laws::check(&std::fs::read(path).unwrap());
    }
}

#[test]
fn a_report_may_be_truncated_anywhere() {
    for name in ["postfix-unknown-user", "exim-plain", "gmail-address-not-found", "arf-full", "status-in-base64"] {
        let example = examples().into_iter().find(|example| example.name == name).unwrap();
        let message = example.on_wire().into_bytes();
        for end in 0..=message.len() {
            laws::check(&message[..end]);
        }
    }
}

#[test]
fn one_flipped_bit_breaks_nothing() {
    for name in ["postfix-several", "arf-full", "qmail-unknown-user"] {
        let example = examples().into_iter().find(|example| example.name == name).unwrap();
        let mut message = example.on_wire().into_bytes();
        for place in 0..message.len() {
            let bit = 1 << (place % 8);
            message[place] ^= bit;
            laws::check(&message);
            message[place] ^= bit;
        }
    }
}

/// Only the top-level structure makes a message a report, so a body can't.
#[test]
fn a_body_cannot_turn_a_personal_message_into_a_report() {
    for example in examples() {
        let quoted = format!("From: Bob <bob@example.net>\r\nSubject: look\r\n\r\n{}", example.on_wire());
        assert_eq!(read(quoted.as_bytes()), Report::Unknown(None), "{}", example.name);
        let attached = format!(
            "From: Bob <bob@example.net>\r\nSubject: look\r\nContent-Type: multipart/mixed; boundary=FW\r\n\r\n--FW\r\n\r\n\
             see below\r\n--FW\r\nContent-Type: message/rfc822\r\n\r\n{}\r\n--FW--\r\n",
            example.on_wire()
        );
        assert_eq!(read(attached.as_bytes()), Report::Unknown(None), "{}", example.name);
    }
}

/// A hundred megabytes in total, built to be expensive. An algorithm with superlinear time would take hours, and the
/// limit leaves a margin for a busy machine.
#[test]
fn the_most_expensive_messages_are_parsed_quickly() {
    const MOMENT: Duration = Duration::from_secs(60);
    let began = Instant::now();
    for malformed in malformed::all() {
        drop(read(&malformed.message));
    }
    assert!(began.elapsed() < MOMENT, "{:?}", began.elapsed());
}

proptest! {
    #[test]
    fn the_invariants_hold_for_arbitrary_bytes(message in prop::collection::vec(any::<u8>(), 0..2000)) {
        laws::check(&message);
    }

    #[test]
    fn the_invariants_hold_for_arbitrary_status_parts(status in "(?s)([A-Z][a-z]{1,8}(-[A-Z][a-z]{1,8})?: ?.{0,40}\r?\n){0,20}.{0,200}") {
        let head = "Content-Type: multipart/report; boundary=B\r\n\r\n--B\r\nContent-Type: message/delivery-status\r\n\r\n";
        laws::check(format!("{head}Action: failed\r\nDiagnostic-Code: {status}").as_bytes());
        laws::check(format!("{head}Action: failed\r\nFinal-Recipient: {status}\r\n--B--\r\n").as_bytes());
        let head = "Content-Type: multipart/report; boundary=B\r\n\r\n--B\r\nContent-Type: message/feedback-report\r\n\r\n";
        laws::check(format!("{head}Feedback-Type: {status}").as_bytes());
    }

    #[test]
    fn the_invariants_hold_for_arbitrary_texts(words in "(?s).{0,300}(said: |#|<<< |\n)?[2-6][0-9]{2}[ -][0-9.#]{0,8}.{0,300}") {
        let head = "From: MAILER-DAEMON\r\nSubject: failure notice\r\n";
        laws::check(format!("{head}\r\n{words}").as_bytes());
        laws::check(format!("{head}Content-Type: text/html\r\n\r\n{words}").as_bytes());
        laws::check(format!("{head}X-Other: {words}").as_bytes());
    }
}
