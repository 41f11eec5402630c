//! Properties of a submission session for arbitrary bytes. The session ends. It accepts a message only after a login,
//! and only where a strict parser of CR LF sees its end. Accepted messages have only CR LF line ends. The fuzz target
//! and a test of `tests/it` call it.

use postrider::smtp::server::{
    Answer, LoginRule, ReceivedMessage, ServerAction, ServerConfig, ServerKind, ServerSession, SubmissionRules,
};

const SIZE_MAX: usize = 4096;
const RECIPIENTS_MAX: usize = 3;
/// The only password that logs in.
const PASSWORD: &[u8] = b"good";
/// The end of a message for a strict parser. The first CR LF may be that of DATA.
const END_OF_DATA: &[u8] = b"\r\n.\r\n";

/// A client connected with TLS, and the results of its bytes.
struct Run {
    session: ServerSession,
    out: Vec<u8>,
    is_logged_in: bool,
    taken: usize,
    is_closed: bool,
}

/// Passes `input` to a session in pieces of this size, and checks its properties. Returns the number of messages.
pub(crate) fn check(input: &[u8], piece: usize) -> usize {
    let rules = SubmissionRules { login: LoginRule::InsideTls, total_max: 2 * SIZE_MAX };
    let config = ServerConfig {
        hostname: "mx.test".to_owned(),
        greeting: "mx.test ESMTP".to_owned(),
        size_max: SIZE_MAX,
        recipients_max: RECIPIENTS_MAX,
        errors_max: 20,
        refusals_max: None,
        starttls: true,
        kind: ServerKind::Submission(rules),
    };
    let session = ServerSession::inside_tls(config);
    let mut run = Run { session, out: Vec::new(), is_logged_in: false, taken: 0, is_closed: false };
    run.go_on(1);
    for bytes in input.chunks(piece.max(1)) {
        run.session.receive(bytes);
        run.go_on(bytes.len());
    }
    let ends = input.windows(END_OF_DATA.len()).filter(|window| *window == END_OF_DATA).count();
    assert!(run.taken <= ends, "{} messages, but a strict parser sees {ends}", run.taken);
    let lines = input.iter().filter(|byte| **byte == b'\n').count();
    assert!(run.out.len() <= 512 * (lines + 4), "{} bytes of answers to {lines} lines", run.out.len());
    check_line_ends(&run.out);
    run.taken
}

impl Run {
    /// Answers questions until the session wants more bytes. Each byte causes at most a few actions.
    fn go_on(&mut self, bytes: usize) {
        for _ in 0..64 + 8 * bytes {
            match self.session.next_action() {
                ServerAction::Write(answers) => self.out.extend(answers),
                ServerAction::Read(_) => return,
                ServerAction::Close => {
                    self.is_closed = true;
                    return;
                }
                ServerAction::CheckLogin(question) => {
                    assert!(!self.is_closed);
                    let is_good = question.password.expose() == PASSWORD;
                    self.is_logged_in |= is_good;
                    let (no, yes) = (Answer::new(535, "5.7.8", "No"), Answer::new(235, "2.7.0", "Yes"));
                    self.session.answer_login(if is_good { &yes } else { &no });
                }
                ServerAction::AskSender(_) => self.session.answer_sender(&Answer::new(250, "2.1.0", "OK")),
                ServerAction::AskRecipient(question) => {
                    let is_refused = question.recipient.local().starts_with("no");
                    let (no, yes) = (Answer::new(550, "5.7.1", "No"), Answer::new(250, "2.1.5", "OK"));
                    self.session.answer_recipient(if is_refused { &no } else { &yes });
                }
                ServerAction::AskData(_) => self.session.answer_data(None),
                ServerAction::TakeMessage(message) => {
                    assert!(self.is_logged_in && !self.is_closed);
                    check_message(&message);
                    self.taken += 1;
                    self.session.answer_message(&Answer::queued(&["msg_1"]));
                }
                ServerAction::StartTls => unreachable!("TLS inside TLS"),
            }
            drop(self.session.take_refused());
        }
        unreachable!("the session continues without bytes");
    }
}

fn check_message(message: &ReceivedMessage) {
    assert!((1..=RECIPIENTS_MAX).contains(&message.recipients.len()));
    assert!(message.bytes.len() <= SIZE_MAX);
    check_line_ends(&message.bytes);
}

/// Checks that CR and LF occur only together.
fn check_line_ends(bytes: &[u8]) {
    for (place, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' => assert!(place > 0 && bytes[place - 1] == b'\r', "a bare LF at {place}"),
            b'\r' => assert_eq!(bytes.get(place + 1), Some(&b'\n'), "a bare CR at {place}"),
            _ => {}
        }
    }
}
