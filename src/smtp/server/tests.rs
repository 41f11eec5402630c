//! Tests of scripted sessions: the client's lines and all answers.

use super::*;

fn config() -> ServerConfig {
    ServerConfig {
        hostname: "mx.test".to_owned(),
        greeting: "mx.test ESMTP".to_owned(),
        size_max: 1000,
        recipients_max: 2,
        errors_max: 20,
        refusals_max: Some(3),
        starttls: false,
        kind: ServerKind::Inbound,
    }
}

/// A session with a caller that accepts every recipient but `no@` and every message.
struct Script {
    session: ServerSession,
    taken: Vec<ReceivedMessage>,
    closed: bool,
}

impl Script {
    fn new(config: ServerConfig) -> Self {
        Self { session: ServerSession::new(config), taken: Vec::new(), closed: false }
    }

    /// Returns a session after greeting and EHLO.
    fn begun() -> Self {
        let mut script = Self::new(config());
        assert_eq!(script.read_reply(), "220 mx.test ESMTP\r\n");
        assert!(script.say("EHLO me.example\r\n").ends_with("250 ENHANCEDSTATUSCODES\r\n"));
        script
    }

    /// Returns a session inside DATA.
    fn in_data() -> Self {
        let mut script = Self::begun();
        let replies = script.say("MAIL FROM:<a@b.example>\r\nRCPT TO:<yes@c.example>\r\nDATA\r\n");
        assert!(replies.ends_with("354 End data with <CR><LF>.<CR><LF>\r\n"), "{replies}");
        script
    }

    fn say(&mut self, text: &str) -> String {
        self.session.receive(text.as_bytes());
        self.read_reply()
    }

    fn read_reply(&mut self) -> String {
        let mut replies = Vec::new();
        loop {
            match self.session.next_action() {
                ServerAction::Write(bytes) => replies.extend(bytes),
                ServerAction::Read(_) => break,
                ServerAction::AskRecipient(question) => {
                    let answer = match question.recipient.local() {
                        "no" => Answer::new(550, "5.1.1", "No such user"),
                        "busy" => Answer::new(421, "4.3.2", "Later"),
                        _ => Answer::new(250, "2.1.5", "OK"),
                    };
                    self.session.answer_recipient(&answer);
                }
                ServerAction::TakeMessage(message) => {
                    self.taken.push(message);
                    self.session.answer_message(&Answer::new(250, "2.0.0", "Taken"));
                }
                ServerAction::CheckLogin(_) | ServerAction::AskSender(_) | ServerAction::AskData(_) => {
                    unreachable!("a receiver never asks this")
                }
                ServerAction::StartTls => self.session.tls_established(),
                ServerAction::Close => {
                    self.closed = true;
                    break;
                }
            }
        }
        String::from_utf8(replies).unwrap()
    }
}

fn codes(replies: &str) -> Vec<&str> {
    replies.lines().map(|line| &line[..3]).collect()
}

#[test]
fn accepts_a_message_with_its_envelope_and_unstuffed_dots() {
    let mut script = Script::begun();
    assert_eq!(script.say("MAIL FROM:<> BODY=8BITMIME SMTPUTF8\r\n"), "250 2.1.0 OK\r\n");
    assert_eq!(script.say("RCPT TO:<дом@c.example>\r\n"), "250 2.1.5 OK\r\n");
    assert_eq!(script.say("RCPT TO:<Postmaster>\r\n"), "250 2.1.5 OK\r\n");
    assert_eq!(script.say("RCPT TO:<three@c.example>\r\n"), "452 4.5.3 Too many recipients\r\n");
    assert_eq!(codes(&script.say("DATA\r\n")), ["354"]);
    assert_eq!(script.say("Subject: x\r\n\r\n..dot\r\n.\r\nQUIT\r\n"), "250 2.0.0 Taken\r\n221 2.0.0 Bye\r\n");
    assert!(script.closed);
    let message = &script.taken[0];
    assert_eq!(message.bytes, b"Subject: x\r\n\r\n.dot\r\n");
    assert_eq!((message.mail_from.as_ref(), message.eight_bit, message.smtputf8), (None, true, true));
    assert_eq!(message.recipients.iter().map(Path::to_string).collect::<Vec<_>>(), ["дом@c.example", "Postmaster"]);
    assert_eq!(message.client, "me.example");
}

#[test]
fn pipelined_commands_are_answered_in_order_and_in_one_write() {
    let mut script = Script::begun();
    script.session.receive(b"MAIL FROM:<a@b.example>\r\nRCPT TO:<no@c.example>\r\nRCPT TO:<yes@c.example>\r\nDATA\r\n");
    for answer in [Answer::new(550, "5.1.1", "No"), Answer::new(250, "2.1.5", "OK")] {
        assert!(matches!(script.session.next_action(), ServerAction::AskRecipient(_)));
        script.session.answer_recipient(&answer);
    }
    let ServerAction::Write(replies) = script.session.next_action() else { panic!("nothing was written") };
    assert_eq!(codes(std::str::from_utf8(&replies).unwrap()), ["250", "550", "250", "354"]);
    assert_eq!(script.session.next_action(), ServerAction::Read(AwaitedInput::Data));
}

#[test]
fn a_session_may_arrive_in_any_pieces() {
    let text = "EHLO me\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<yes@c.example>\r\nDATA\r\n";
    let mut script = Script::new(config());
    let mut replies = script.read_reply();
    for byte in text.bytes().chain(*b"hello\r\n.\r\nNOOP\r\n") {
        script.session.receive(&[byte]);
        replies += &script.read_reply();
    }
    assert!(
        replies.ends_with("354 End data with <CR><LF>.<CR><LF>\r\n250 2.0.0 Taken\r\n250 2.0.0 OK\r\n"),
        "{replies}"
    );
    assert_eq!(script.taken[0].bytes, b"hello\r\n");
}

#[test]
fn variants_of_the_end_of_data_cannot_smuggle_a_second_message() {
    let variants = [
        "\n.\n",
        "\n.\r\n",
        "\r\n.\n",
        "\r.\r",
        "\r.\r\n",
        "\r\n.\r",
        "\n.\r",
        "\r.\n",
        "\r\n.\r\r\n",
        "\n\r.\r\n",
        "\r\n\r.\r\n",
        "\r\r\n.\r",
        "\r\n\n.\r\n",
        "\r\n.\0\n",
    ];
    for variant in variants {
        let mut script = Script::in_data();
        let smuggled = "MAIL FROM:<evil@b.example>\r\nRCPT TO:<yes@c.example>\r\nDATA\r\nevil";
        assert_eq!(script.say(&format!("good{variant}{smuggled}")), "", "{variant:?} was answered");
        let replies = script.say("\r\n.\r\n");
        assert!(replies.starts_with("550 5.5.2 The message has a "), "{variant:?}: {replies}");
        assert!(script.taken.is_empty(), "{variant:?}");
        assert_eq!(script.say("NOOP\r\n"), "250 2.0.0 OK\r\n", "{variant:?} lost the step");
    }
}

#[test]
fn a_client_that_talks_before_the_greeting_is_rejected() {
    let mut script = Script::new(config());
    assert_eq!(script.say("EHLO me\r\n"), "554 mx.test You spoke before the greeting\r\n");
    assert!(script.closed);
}

#[test]
fn a_message_pipelined_after_data_is_refused_and_ends_the_session() {
    let mut script = Script::begun();
    let replies =
        script.say("MAIL FROM:<a@b.example>\r\nRCPT TO:<yes@c.example>\r\nDATA\r\nSubject: early\r\n\r\n.\r\n");
    assert_eq!(codes(&replies), ["250", "250", "503"]);
    assert!(script.closed && script.taken.is_empty());
}

#[test]
fn commands_out_of_order_are_refused() {
    let mut script = Script::new(config());
    script.read_reply();
    assert_eq!(
        codes(&script.say("MAIL FROM:<a@b.example>\r\nRCPT TO:<a@b.example>\r\nDATA\r\n")),
        ["503", "503", "503"]
    );
    assert_eq!(script.say("HELO me\r\n"), "250 mx.test\r\n");
    let replies =
        script.say("MAIL FROM:<a@b.example>\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<no@c.example>\r\nDATA\r\n");
    assert_eq!(codes(&replies), ["250", "503", "550", "554"]);
    assert_eq!(
        codes(&script.say("RSET\r\nDATA\r\nVRFY a\r\nHELP\r\nEXPN a\r\nSTARTTLS\r\n")),
        ["250", "503", "252", "214", "502", "502"]
    );
}

#[test]
fn an_internationalised_recipient_needs_smtputf8_in_mail() {
    let mut script = Script::begun();
    assert_eq!(codes(&script.say("MAIL FROM:<a@b.example>\r\nRCPT TO:<дом@c.example>\r\n")), ["250", "553"]);
}

#[test]
fn a_message_over_the_size_is_refused_at_its_declaration_or_its_end() {
    let mut script = Script::begun();
    assert_eq!(
        script.say("MAIL FROM:<a@b.example> SIZE=1001\r\n"),
        "552 5.3.4 The message is too large: the limit is 1000 bytes\r\n"
    );
    let mut script = Script::in_data();
    assert_eq!(script.say(&"x".repeat(1500)), "");
    assert_eq!(script.say("\r\n.\r\n"), "552 5.3.4 The message is too large: the limit is 1000 bytes\r\n");
    assert_eq!(script.say("NOOP\r\n"), "250 2.0.0 OK\r\n");
}

#[test]
fn an_endless_message_is_cut_off_and_not_stored() {
    let mut script = Script::in_data();
    let mut replies = String::new();
    for _ in 0..50 {
        replies += &script.say(&"x".repeat(100));
        assert!(script.session.inbox.is_empty());
    }
    assert_eq!(replies, "552 5.3.4 The message is too large: the limit is 1000 bytes\r\n");
    assert!(script.closed);
}

#[test]
fn twenty_errors_end_the_session() {
    let mut script = Script::begun();
    let replies = script.say(&"NONSENSE\r\n".repeat(50));
    assert_eq!(codes(&replies), [vec!["500"; 20], vec!["421"]].concat());
    assert!(script.closed);
}

#[test]
fn address_guessing_ends_the_session_unless_refusals_are_unlimited() {
    let attempt = "MAIL FROM:<a@b.example>\r\nRCPT TO:<no@c.example>\r\nRSET\r\n".repeat(3);
    let mut script = Script::begun();
    assert!(script.say(&attempt).ends_with("421 4.7.0 mx.test Too many errors\r\n"));
    let mut patient = Script::new(ServerConfig { refusals_max: None, ..config() });
    patient.say("");
    patient.say("EHLO me\r\n");
    assert_eq!(codes(&patient.say(&attempt)), ["250", "550", "250"].repeat(3));
}

#[test]
fn the_callers_421_ends_the_session() {
    let mut script = Script::begun();
    assert_eq!(codes(&script.say("MAIL FROM:<a@b.example>\r\nRCPT TO:<busy@c.example>\r\nNOOP\r\n")), ["250", "421"]);
    assert!(script.closed);
}

#[test]
fn an_overlong_line_or_one_without_cr_is_one_error() {
    let mut script = Script::begun();
    assert_eq!(script.say(&format!("NOOP {}\r\n", "x".repeat(COMMAND_LINE_MAX))), "500 5.5.2 Line too long\r\n");
    for _ in 0..10 {
        assert_eq!(script.say(&"x".repeat(1500)), "");
        assert!(script.session.inbox.len() < COMMAND_LINE_MAX);
    }
    assert_eq!(script.say("\r\nNOOP\r\n"), "500 5.5.2 Line too long\r\n250 2.0.0 OK\r\n");
    assert_eq!(script.say("NOOP\n"), "500 5.5.2 Lines end with CR LF\r\n");
    assert_eq!(script.say("NOOP\r\n"), "250 2.0.0 OK\r\n");
    assert_eq!(script.say(&format!("NOOP {}\r\n", "x".repeat(COMMAND_LINE_MAX - 7))), "250 2.0.0 OK\r\n");
}

#[test]
fn a_bare_lf_cannot_smuggle_a_second_command() {
    let mut script = Script::begun();
    assert_eq!(script.say("MAIL FROM:<a@b.example>\r\n"), "250 2.1.0 OK\r\n");
    let refused = "500 5.5.2 Lines end with CR LF\r\n";
    let injected = "RCPT TO:<x@c.example>\nRCPT TO:<yes@c.example>\nRSET\r\n";
    assert_eq!(script.say(&format!("{injected}NOOP\r\n")), format!("{refused}250 2.0.0 OK\r\n"));
    // The answer is the same if the line arrives in pieces, one of which ends inside CR LF.
    assert_eq!(script.say("RCPT TO:<x@c.example>\nRCPT TO"), refused);
    assert_eq!(script.say(":<yes@c.example>\r"), "");
    assert_eq!(script.say("\nNOOP\r\n"), "250 2.0.0 OK\r\n");
    assert_eq!(script.say("DATA\r\n"), "554 5.5.1 No valid recipients\r\n");

    assert_eq!(script.say("NOOP\nx"), refused);
    let replies: String = (0..ENDLESS_LINE_MAX / 1024).map(|_| script.say(&"x\n".repeat(512))).collect();
    assert_eq!(replies, "500 5.5.2 Line too long\r\n");
    assert!(script.closed);
}

#[test]
fn an_endless_line_is_answered_and_ends_the_session() {
    let mut script = Script::begun();
    for sent in (0..ENDLESS_LINE_MAX - 1024).step_by(1024) {
        assert_eq!(script.say(&"x".repeat(1024)), "", "after {sent}");
    }
    assert_eq!(script.say(&"x".repeat(1024)), "500 5.5.2 Line too long\r\n");
    assert!(script.closed);
}

#[test]
fn starttls_resets_the_session_and_injected_bytes_end_it() {
    let offering = || ServerConfig { starttls: true, ..config() };
    let mut script = Script::new(offering());
    script.read_reply();
    assert!(script.say("EHLO me\r\n").contains("250-STARTTLS\r\n"));
    assert_eq!(script.say("STARTTLS\r\n"), "220 2.0.0 Ready for TLS\r\n");
    assert_eq!(codes(&script.say("MAIL FROM:<a@b.example>\r\n")), ["503"]);
    assert!(!script.say("EHLO me\r\n").contains("STARTTLS"));

    let mut injected = Script::new(offering());
    injected.read_reply();
    assert_eq!(codes(&injected.say("STARTTLS\r\nMAIL FROM:<evil@b.example>\r\n")), ["503"]);
    assert!(injected.closed);
}
