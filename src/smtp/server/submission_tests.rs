//! Tests of scripted submission sessions: each row of the reply table that the protocol layer decides.

use super::*;

const EHLO: &str = "250-mx.test\r\n250-PIPELINING\r\n250-SIZE 1000\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n";
const ENVELOPE: &str = "MAIL FROM:<a@b.example>\r\nRCPT TO:<yes@c.example>\r\n";

fn config(login: LoginRule) -> ServerConfig {
    ServerConfig {
        hostname: "mx.test".to_owned(),
        greeting: "mx.test ESMTP".to_owned(),
        size_max: 1000,
        recipients_max: 3,
        errors_max: 20,
        refusals_max: Some(1),
        starttls: true,
        kind: ServerKind::Submission(SubmissionRules { login, total_max: 2000 }),
    }
}

/// A session with a caller that accepts the key `good` and every recipient but `no@`.
struct Script {
    session: ServerSession,
    taken: Vec<ReceivedMessage>,
    refused: Vec<RefusedCommand>,
    has_memory: bool,
    key_is_live: bool,
    closed: bool,
}

impl Script {
    fn of(session: ServerSession) -> Self {
        let (taken, refused) = (Vec::new(), Vec::new());
        let mut script = Self { session, taken, refused, has_memory: true, key_is_live: true, closed: false };
        assert_eq!(script.read_reply(), "220 mx.test ESMTP\r\n");
        script
    }

    fn clear(login: LoginRule) -> Self {
        Self::of(ServerSession::new(config(login)))
    }

    fn inside_tls() -> Self {
        Self::of(ServerSession::inside_tls(config(LoginRule::InsideTls)))
    }

    /// Returns a session inside TLS, greeted and logged in.
    fn logged_in() -> Self {
        let mut script = Self::inside_tls();
        script.say("EHLO me\r\n");
        assert_eq!(script.say("AUTH PLAIN AG1lAGdvb2Q=\r\n"), "235 2.7.0 Logged in\r\n");
        script
    }

    /// Returns a session logged in and inside DATA.
    fn in_data() -> Self {
        let mut script = Self::logged_in();
        assert!(script.say(&format!("{ENVELOPE}DATA\r\n")).ends_with("354 End data with <CR><LF>.<CR><LF>\r\n"));
        script
    }

    fn say(&mut self, text: &str) -> String {
        self.session.receive(text.as_bytes());
        self.read_reply()
    }

    fn answer_login(&mut self, question: &LoginQuestion) {
        let answer = match question.password.expose() {
            b"good" => Answer::new(235, "2.7.0", "Logged in"),
            b"many" => Answer::new(421, "4.7.0", "Too many connections"),
            _ => Answer::new(535, "5.7.8", "No"),
        };
        self.session.answer_login(&answer);
    }

    fn read_reply(&mut self) -> String {
        let mut replies = Vec::new();
        loop {
            match self.session.next_action() {
                ServerAction::Write(bytes) => replies.extend(bytes),
                ServerAction::Read(_) => break,
                ServerAction::CheckLogin(question) => self.answer_login(&question),
                ServerAction::AskSender(_) if self.key_is_live => {
                    self.session.answer_sender(&Answer::new(250, "2.1.0", "OK"));
                }
                ServerAction::AskSender(_) => self.session.answer_sender(&Answer::new(530, "5.7.0", "Log in again")),
                ServerAction::AskRecipient(question) => {
                    self.session.answer_recipient(&match question.recipient.local() {
                        "no" => Answer::new(550, "5.7.1", "Suppressed"),
                        _ => Answer::new(250, "2.1.5", "OK"),
                    })
                }
                ServerAction::AskData(_) => {
                    let refusal = Answer::new(451, "4.3.2", "No memory");
                    self.session.answer_data((!self.has_memory).then_some(&refusal));
                }
                ServerAction::TakeMessage(message) => {
                    self.taken.push(message);
                    self.session.answer_message(&Answer::queued(&["msg_1"]));
                }
                ServerAction::StartTls => self.session.tls_established(),
                ServerAction::Close => {
                    self.closed = true;
                    break;
                }
            }
        }
        self.refused.extend(self.session.take_refused());
        String::from_utf8(replies).unwrap()
    }
}

/// Returns the code and enhanced code of each line.
fn codes(replies: &str) -> Vec<&str> {
    replies.lines().map(|line| line.get(..9).unwrap_or(line).trim_end()).collect()
}

#[test]
fn ehlo_offers_starttls_only_in_clear_text_and_auth_only_inside_tls() {
    let mut script = Script::clear(LoginRule::InsideTls);
    let common = "250-ENHANCEDSTATUSCODES\r\n";
    assert_eq!(script.say("EHLO _\r\n"), format!("{EHLO}250-STARTTLS\r\n{common}250 LIMITS RCPTMAX=3\r\n"));
    assert_eq!(script.say("STARTTLS\r\n"), "220 2.0.0 Ready for TLS\r\n");
    let inside = format!("{EHLO}{common}250-LIMITS RCPTMAX=3\r\n250 AUTH PLAIN LOGIN\r\n");
    assert_eq!(script.say("EHLO\r\n"), inside);
    assert_eq!(Script::inside_tls().say("EHLO me\r\n"), inside);
    assert!(Script::clear(LoginRule::Optional).say("EHLO me\r\n").contains("AUTH PLAIN LOGIN"));
}

#[test]
fn a_message_is_submitted_after_either_mechanism_and_after_helo() {
    for login in
        ["AUTH PLAIN\r\nAG1lAGdvb2Q=\r\n", "AUTH LOGIN\r\nbWU=\r\nZ29vZA==\r\n", "auth login bWU=\r\nZ29vZA==\r\n"]
    {
        let mut script = Script::inside_tls();
        assert_eq!(script.say("HELO\r\n"), "250 mx.test\r\n");
        assert!(script.say(login).ends_with("235 2.7.0 Logged in\r\n"), "{login}");
        script.say(&format!("{ENVELOPE}DATA\r\n"));
        let replies = script.say("Subject: x\n\n..dot\r\n.\r\nQUIT\r\n");
        assert_eq!(replies, "250 2.0.0 Ok: queued as msg_1\r\n221 2.0.0 Bye\r\n");
        assert_eq!(script.taken[0].bytes, b"Subject: x\r\n\r\n.dot\r\n");
        assert!(script.closed && script.refused.is_empty());
    }
}

#[test]
fn login_prompts_match_the_expectations_of_clients() {
    let mut script = Script::inside_tls();
    script.say("EHLO me\r\n");
    assert_eq!(script.say("AUTH LOGIN\r\n"), "334 VXNlcm5hbWU6\r\n");
    assert_eq!(script.say("bWU=\r\n"), "334 UGFzc3dvcmQ6\r\n");
    assert_eq!(script.say("*\r\n"), "501 5.7.0 Authentication cancelled\r\n");
    assert_eq!(script.say("AUTH PLAIN\r\n"), "334 \r\n");
}

#[test]
fn each_login_error_has_its_answer() {
    let table = [
        ("AUTH PLAIN AG1lAGdvb2Q=\r\n", "503 5.5.1"),
        ("EHLO me\r\nAUTH CRAM-MD5\r\n", "504 5.5.4"),
        ("EHLO me\r\nAUTH\r\n", "501 5.5.4"),
        ("EHLO me\r\nAUTH PLAIN !\r\n", "501 5.5.2"),
        ("EHLO me\r\nAUTH PLAIN\r\n*\r\n", "501 5.7.0"),
        ("EHLO me\r\nAUTH PLAIN AG1lAGJhZA==\r\n", "535 5.7.8"),
        ("EHLO me\r\nAUTH PLAIN AG1lAGdvb2Q=\r\nAUTH LOGIN\r\n", "503 5.5.1"),
    ];
    for (text, expected) in table {
        let mut script = Script::inside_tls();
        assert_eq!(codes(&script.say(text)).last(), Some(&expected), "{text}");
        assert_eq!(script.refused.last().unwrap().stage, SubmissionStage::Auth, "{text}");
    }
    let mut clear = Script::clear(LoginRule::InsideTls);
    clear.say("EHLO me\r\n");
    assert!(clear.say("AUTH PLAIN AG1lAGdvb2Q=\r\n").starts_with("538 5.7.11 "));
    let mut dev = Script::clear(LoginRule::Optional);
    assert_eq!(codes(&dev.say("EHLO me\r\nMAIL FROM:<>\r\nAUTH LOGIN\r\n")).last(), Some(&"503 5.5.1"));
}

#[test]
fn lines_of_auth_may_be_longer_than_commands() {
    let mut script = Script::inside_tls();
    script.say("EHLO me\r\n");
    let long = "A".repeat(12_288 - "AUTH PLAIN \r\n".len());
    assert_eq!(codes(&script.say(&format!("AUTH PLAIN {long}\r\n"))), ["501 5.5.2"]);
    assert_eq!(codes(&script.say(&format!("AUTH PLAIN {long}A\r\n"))), ["500 5.5.6"]);
    script.say("AUTH LOGIN\r\n");
    assert_eq!(codes(&script.say(&format!("{}\r\n", "A".repeat(20_000)))), ["500 5.5.6"]);
    assert_eq!(codes(&script.say(&format!("NOOP {}\r\n", "A".repeat(2_042)))), ["500 5.5.2"]);
}

#[test]
fn the_third_failed_login_and_the_callers_421_end_the_session() {
    let mut script = Script::inside_tls();
    script.say("EHLO me\r\n");
    let replies = script.say(&"AUTH PLAIN AG1lAGJhZA==\r\n".repeat(4));
    assert_eq!(codes(&replies), ["535 5.7.8", "535 5.7.8", "421 4.7.0"]);
    assert!(script.closed);
    let mut crowded = Script::inside_tls();
    assert_eq!(codes(&crowded.say("EHLO me\r\nAUTH PLAIN AG1lAG1hbnk=\r\nNOOP\r\n")).last(), Some(&"421 4.7.0"));
    assert!(crowded.closed);
}

#[test]
fn mail_requires_tls_and_a_valid_login() {
    for mut script in [Script::clear(LoginRule::InsideTls), Script::inside_tls(), Script::clear(LoginRule::InClear)] {
        assert_eq!(codes(&script.say("EHLO me\r\nMAIL FROM:<a@b.example>\r\n")).last(), Some(&"530 5.7.0"));
    }
    let mut script = Script::logged_in();
    assert_eq!(codes(&script.say("EHLO again\r\nMAIL FROM:<>\r\nRSET\r\n")).last(), Some(&"250 2.0.0"));
    script.key_is_live = false;
    assert_eq!(codes(&script.say("MAIL FROM:<>\r\nRCPT TO:<a@b.example>\r\n")), ["530 5.7.0", "503 5.5.1"]);
    assert_eq!(codes(&script.say("AUTH PLAIN AG1lAGdvb2Q=\r\n")), ["235 2.7.0"]);
    let mut dev = Script::clear(LoginRule::Optional);
    assert_eq!(codes(&dev.say(&format!("EHLO me\r\n{ENVELOPE}"))).last(), Some(&"250 2.1.5"));
}

#[test]
fn each_envelope_error_has_its_answer() {
    let table = [
        ("MAIL FROM:<a@b.example> SIZE=1001\r\n", "552 5.3.4"),
        ("MAIL FROM:<a@b.example> RET=FULL\r\n", "555 5.5.4"),
        ("MAIL FROM:<a@b.example> SIZE=x\r\n", "501 5.5.4"),
        ("MAIL FROM:<ä@b.example>\r\n", "553 5.6.7"),
        ("MAIL FROM:<>\r\nMAIL FROM:<>\r\n", "503 5.5.1"),
        ("RCPT TO:<a@b.example>\r\n", "503 5.5.1"),
        ("MAIL FROM:<>\r\nRCPT TO:<>\r\n", "501 5.1.3"),
        ("MAIL FROM:<>\r\nRCPT TO:<postmaster>\r\n", "553 5.1.3"),
        ("MAIL FROM:<>\r\nRCPT TO:<a b@c.example>\r\n", "553 5.1.3"),
        ("MAIL FROM:<>\r\nRCPT TO:<ä@b.example>\r\n", "553 5.6.7"),
        ("MAIL FROM:<>\r\nRCPT TO:<a@b.example> NOTIFY=NEVER\r\n", "555 5.5.4"),
        ("MAIL FROM:<>\r\nRCPT TO:<no@b.example>\r\n", "550 5.7.1"),
        (
            "MAIL FROM:<> SIZE=900\r\nRCPT TO:<a@b.example>\r\nRCPT TO:<b@b.example>\r\nRCPT TO:<c@b.example>\r\n",
            "452 4.5.3",
        ),
        ("MAIL FROM:<>\r\nDATA\r\n", "554 5.5.1"),
        ("DATA\r\n", "503 5.5.1"),
        ("RCPT TO:<a@b.example>\nNOOP\r\n", "500 5.5.2"),
        ("VRFY a\r\n", "252 2.0.0"),
        ("HELP\r\n", "214 2.0.0"),
        ("EXPN a\r\n", "502 5.5.1"),
        ("ETRN a\r\n", "502 5.5.1"),
        ("STARTTLS\r\n", "503 5.5.1"),
    ];
    for (text, expected) in table {
        let mut script = Script::logged_in();
        let replies = script.say(text);
        assert!(codes(&replies).contains(&expected), "{text}: {replies}");
        assert!(!script.closed, "{text}");
    }
}

#[test]
fn a_mailbox_counts_once_and_452_follows_above_the_limit() {
    let mut script = Script::logged_in();
    let replies = script.say(
        "MAIL FROM:<>\r\nRCPT TO:<a@b.example>\r\nRCPT TO:<A@B.EXAMPLE>\r\nRCPT TO:<b@b.example>\r\n\
         RCPT TO:<c@b.example>\r\nRCPT TO:<d@b.example>\r\nRCPT TO:<\"a\"@b.example>\r\nDATA\r\n",
    );
    let ok = "250 2.1.5";
    assert_eq!(codes(&replies)[..7], ["250 2.1.0", ok, ok, ok, ok, "452 4.5.3", ok]);
    script.say("x\r\n.\r\n");
    assert_eq!(script.taken[0].recipients.len(), 3);
}

#[test]
fn each_message_error_is_answered_at_its_end_and_keeps_the_session() {
    let table = [
        ("a\n.\nMAIL FROM:<evil@b.example>\r\n.\r\n".to_owned(), "550 5.6.0"),
        ("a\rb\r\n.\r\n".to_owned(), "550 5.6.0"),
        (format!("{}\r\n.\r\n", "x".repeat(5_000)), "552 5.3.4"),
    ];
    for (text, expected) in table {
        let mut script = Script::in_data();
        assert_eq!(codes(&script.say(&text)), [expected]);
        assert_eq!(
            (script.refused[0].stage, script.refused[0].mail_from.as_deref()),
            (SubmissionStage::Data, Some("a@b.example"))
        );
        assert!(script.taken.is_empty() && !script.closed);
        assert_eq!(codes(&script.say(ENVELOPE)), ["250 2.1.0", "250 2.1.5"]);
    }
    let mut large = Script::logged_in();
    large.say(&format!("{ENVELOPE}RCPT TO:<b@b.example>\r\nRCPT TO:<c@b.example>\r\nDATA\r\n"));
    assert_eq!(codes(&large.say(&format!("{}\r\n.\r\n", "x".repeat(700)))), ["552 5.3.4"], "times three");
}

#[test]
fn without_memory_the_message_is_refused_at_data_or_at_its_end() {
    let mut script = Script::logged_in();
    script.has_memory = false;
    assert_eq!(codes(&script.say(&format!("{ENVELOPE}DATA\r\n"))).last(), Some(&"451 4.3.2"));
    let mut script = Script::in_data();
    assert_eq!(script.say("some\r\n"), "");
    script.session.drop_message();
    assert_eq!(codes(&script.say("more\r\n.\r\n")), ["451 4.3.2"]);
    assert!(script.taken.is_empty() && !script.closed);
}

#[test]
fn bytes_after_starttls_or_data_end_the_session() {
    let mut script = Script::clear(LoginRule::InsideTls);
    assert_eq!(codes(&script.say("STARTTLS\r\nEHLO evil\r\n")), ["503 5.5.1"]);
    assert!(script.closed);
    let mut script = Script::logged_in();
    assert_eq!(codes(&script.say(&format!("{ENVELOPE}DATA\r\nSubject: x\r\n"))).last(), Some(&"503 5.5.1"));
    assert!(script.closed && script.taken.is_empty());
}

#[test]
fn other_framings_and_http_end_the_session() {
    let table = [
        ("BDAT 5 LAST\r\nhello", "502 5.5.1"),
        ("GET / HTTP/1.1\r\nHost: a\r\n", "421 4.7.0"),
        ("post / HTTP/1.1\r\n", "421 4.7.0"),
        ("OPTIONS * HTTP/1.1\r\n", "421 4.7.0"),
    ];
    for (text, expected) in table {
        let mut script = Script::logged_in();
        assert_eq!(codes(&script.say(text)), [expected], "{text}");
        assert!(script.closed, "{text}");
    }
}

#[test]
fn faulty_commands_are_counted_and_the_last_one_gets_421() {
    let mut script = Script::inside_tls();
    assert_eq!(
        codes(&script.say(&"NONSENSE\r\n".repeat(9))),
        ["500 5.5.1", "500 5.5.1", "500 5.5.1", "500 5.5.1", "421 4.7.0"]
    );
    let mut script = Script::logged_in();
    let replies = script.say(&"NONSENSE\r\n".repeat(30));
    assert_eq!(codes(&replies), [vec!["500 5.5.1"; 19], vec!["421 4.7.0"]].concat());
    assert!(script.closed);
    let mut script = Script::logged_in();
    script.say("MAIL FROM:<>\r\n");
    assert_eq!(
        codes(&script.say(&"RCPT TO:<no@b.example>\r\n".repeat(40))),
        vec!["550 5.7.1"; 40],
        "refusals are not errors"
    );
}

#[test]
fn a_hundred_commands_without_a_message_end_the_session() {
    let mut script = Script::logged_in();
    // EHLO was the first command.
    assert_eq!(codes(&script.say(&"NOOP\r\n".repeat(98))), vec!["250 2.0.0"; 98]);
    script.say(&format!("{ENVELOPE}DATA\r\n"));
    script.say("x\r\n.\r\n");
    let replies = script.say(&"RSET\r\n".repeat(200));
    assert_eq!(codes(&replies), [vec!["250 2.0.0"; 99], vec!["421 4.7.0"]].concat());
    assert!(script.closed);
}

#[test]
fn a_doubtful_outcome_closes_without_an_answer() {
    let mut script = Script::in_data();
    script.session.receive(b"x\r\n.\r\n");
    assert!(matches!(script.session.next_action(), ServerAction::TakeMessage(_)));
    script.session.abandon();
    assert_eq!(script.session.next_action(), ServerAction::Close);
}

#[test]
fn refusals_never_contain_the_bytes_of_a_login() {
    let mut script = Script::inside_tls();
    script.say("EHLO me\r\nAUTH PLAIN AG1lAGJhZA==\r\nAUTH LOGIN\r\nc2VjcmV0\r\nc2VjcmV0!\r\n");
    assert_eq!(script.refused.len(), 2);
    assert!(!format!("{:?} {:?}", script.refused, script.session).contains("AGJhZA"));
    assert!(!format!("{:?}", script.refused).contains("c2VjcmV0"));
}
