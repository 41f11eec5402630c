//! Tests of the client's dialogue with servers of all capabilities, without a socket.

use super::script::{ALL, MESSAGE, PIPELINED, Scene, WIRE, envelope, facts, settings};
use super::*;
use crate::smtp::deadlines::Deadlines;
use crate::smtp::outcome::LoopCheck;

fn answered(outcome: &Outcome) -> (Phase, u16) {
    match &outcome.ending {
        Ending::Answered(reply) => (outcome.phase, reply.code),
        other => panic!("{other:?} in {:?}", outcome.phase),
    }
}

#[test]
fn with_pipelining_a_message_takes_two_writes() {
    let mut scene = Scene::ready(ALL);
    scene.begins().hears(PIPELINED).says("250 ok\r\n250 ok\r\n354 go\r\n").hears(WIRE).says("250 2.0.0 taken\r\n");
    assert_eq!(answered(&scene.outcome()), (Phase::Dot, 250));
    assert!(scene.client.is_reusable());
}

#[test]
fn only_a_later_message_begins_with_rset() {
    let mut scene = Scene::ready(ALL);
    for rset in ["", "RSET\r\n"] {
        scene.begins().hears(&format!("{rset}{PIPELINED}"));
        if !rset.is_empty() {
            scene.says("250 reset\r\n");
        }
        scene.says("250 ok\r\n250 ok\r\n354 go\r\n").hears(WIRE).says("250 taken\r\n");
        assert_eq!(answered(&scene.outcome()), (Phase::Dot, 250));
    }
    scene.client.quit(scene.now);
    scene.hears("QUIT\r\n").says("221 bye\r\n");
    assert_eq!((scene.client.want(), scene.client.take_outcome()), (ClientAction::Finished, None));
}

#[test]
fn without_pipelining_each_command_waits_for_its_answer() {
    let mut scene = Scene::ready("250 mx.example\r\n");
    for rset in ["", "RSET\r\n"] {
        scene.begins();
        if !rset.is_empty() {
            scene.hears(rset).says("250 reset\r\n");
        }
        scene.hears("MAIL FROM:<b@r.example>\r\n").says("250\r\n");
        scene.hears("RCPT TO:<a@mx.example>\r\n").says("251 will forward\r\n");
        scene.hears("DATA\r\n").says("354\n").hears(WIRE).says("250\r\n");
        assert_eq!(answered(&scene.outcome()), (Phase::Dot, 250));
    }
    scene.begins().hears("RSET\r\n").says("250 reset\r\n");
    scene.hears("MAIL FROM:<b@r.example>\r\n").says("550 no\r\n");
    assert_eq!(answered(&scene.outcome()), (Phase::Mail, 550));
    assert!(scene.client.is_reusable());
}

#[test]
fn without_pipelining_rset_is_answered_before_the_message_begins() {
    let mut scene = Scene::ready("250 mx.example\r\n");
    assert!(!scene.client.reset(scene.now), "no message came before");
    scene.begins().hears("MAIL FROM:<b@r.example>\r\n").says("550 no\r\n");
    assert_eq!(answered(&scene.outcome()), (Phase::Mail, 550));
    assert!(scene.client.reset(scene.now));
    scene.hears("RSET\r\n").says("250 reset\r\n");
    assert!(scene.client.is_reusable() && !scene.client.reset(scene.now), "it is reset");
    scene.begins().hears("MAIL FROM:<b@r.example>\r\n").says("550 no\r\n");
    assert_eq!(answered(&scene.outcome()), (Phase::Mail, 550));
    assert!(scene.client.reset(scene.now));
    scene.hears("RSET\r\n").says("500 what\r\n");
    assert!(!scene.client.is_reusable());
}

#[test]
fn with_pipelining_rset_takes_no_answer_of_its_own() {
    let mut scene = Scene::ready(ALL);
    scene.begins().hears(PIPELINED).says("250 ok\r\n250 ok\r\n354 go\r\n").hears(WIRE).says("250 taken\r\n");
    assert_eq!(answered(&scene.outcome()), (Phase::Dot, 250));
    assert!(!scene.client.reset(scene.now));
}

#[test]
fn falls_back_to_helo_without_ehlo_support() {
    for code in [500, 502, 504] {
        let mut scene = Scene::new();
        scene.says("220 mx.example\r\n").hears("EHLO us.example\r\n").says(format!("{code} what?\r\n"));
        scene.hears("HELO us.example\r\n").says("250 PIPELINING\r\n");
        scene.begins().hears("MAIL FROM:<b@r.example>\r\n");
    }
    let mut scene = Scene::new();
    scene.says("220 mx.example\r\n").hears("EHLO us.example\r\n").says("550 5.7.1 bad name\r\n");
    assert_eq!(answered(&scene.outcome()), (Phase::Ehlo, 550));
}

#[test]
fn sends_parameters_only_if_needed_and_offered() {
    let wide = Envelope { eight_bit: true, smtputf8: true, ..envelope() };
    let mut scene = Scene::ready(ALL);
    let mail = "MAIL FROM:<b@r.example> SIZE=20 BODY=8BITMIME SMTPUTF8\r\nRCPT TO:<a@mx.example>\r\nDATA\r\n";
    scene.begins_with(&wide).hears(mail);
    let mut scene = Scene::ready("250-mx.example\r\n250 PIPELINING\r\n");
    let eight_bit = Envelope { eight_bit: true, ..envelope() };
    scene.begins_with(&eight_bit).hears("MAIL FROM:<b@r.example>\r\nRCPT TO:<a@mx.example>\r\nDATA\r\n");
}

#[test]
fn does_not_send_a_message_outside_the_servers_capabilities() {
    let mut scene = Scene::ready("250-mx.example\r\n250 SIZE 19\r\n");
    assert_eq!(scene.begins().outcome().ending, Ending::TooLarge { limit: 19 });
    assert!(scene.client.is_reusable() && scene.client.output().is_empty());
    let wide = Envelope { smtputf8: true, ..envelope() };
    assert_eq!(scene.begins_with(&wide).outcome().ending, Ending::NeedsSmtpUtf8);
    let mut exact = Scene::ready(&format!("250-mx.example\r\n250 SIZE {}\r\n", MESSAGE.len()));
    exact.begins().hears("MAIL FROM:<b@r.example> SIZE=20\r\n");
}

#[test]
fn a_refused_recipient_is_the_outcome_and_the_connection_stays_usable() {
    let mut scene = Scene::ready(ALL);
    scene.begins().hears(PIPELINED).says("250 ok\r\n550 5.1.1 no such user\r\n503 no recipients\r\n");
    assert_eq!(answered(&scene.outcome()), (Phase::Rcpt, 550));
    assert!(scene.client.is_reusable());
    scene.begins().hears(&format!("RSET\r\n{PIPELINED}"));
    scene.says("250 ok\r\n").says("550 no sender\r\n").says("503 no\r\n").says("503 no\r\n");
    assert_eq!(answered(&scene.outcome()), (Phase::Mail, 550));
}

#[test]
fn a_354_after_a_refused_recipient_gets_a_lone_dot_and_its_answer_is_ignored() {
    for answer in ["250 taken\r\n", "554 no valid recipients\r\n"] {
        let mut scene = Scene::ready(ALL);
        scene.begins().hears(PIPELINED).says("250 ok\r\n571 no\r\n354 go\r\n").hears(".\r\n").says(answer);
        assert_eq!(answered(&scene.outcome()), (Phase::Rcpt, 571));
        assert!(scene.client.is_reusable());
    }
}

#[test]
fn a_refusal_counts_regardless_of_the_connections_end() {
    for ends in [Client::deadline_passed, |client: &mut Client| client.closed("reset")] {
        let mut scene = Scene::ready(ALL);
        scene.begins().hears(PIPELINED).says("250 ok\r\n550 no\r\n");
        ends(&mut scene.client);
        assert_eq!(answered(&scene.outcome()), (Phase::Rcpt, 550));
        assert!(!scene.client.is_reusable());
    }
}

#[test]
fn a_refusal_of_data_or_of_the_message_has_its_own_phase() {
    let mut scene = Scene::ready(ALL);
    scene.begins().hears(PIPELINED).says("250 ok\r\n250 ok\r\n451 4.7.1 later\r\n");
    assert_eq!(answered(&scene.outcome()), (Phase::Data, 451));
    scene.begins().hears(&format!("RSET\r\n{PIPELINED}"));
    scene.says("250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n").hears(WIRE).says("554 5.7.1 spam\r\n");
    assert_eq!(answered(&scene.outcome()), (Phase::Dot, 554));
    assert!(scene.client.is_reusable());
}

#[test]
fn starts_offered_tls_and_discards_earlier_capabilities() {
    let mut scene = Scene::new();
    scene.says("220 mx.example\r\n").hears("EHLO us.example\r\n").says("250-mx\r\n250-PIPELINING\r\n250 STARTTLS\r\n");
    scene.hears("STARTTLS\r\n").says("220 go\r\n");
    assert_eq!(scene.client.want(), ClientAction::Handshake);
    scene.client.secured(facts(), scene.now);
    scene.hears("EHLO us.example\r\n").says("250-mx\r\n250 STARTTLS\r\n");
    scene.begins().hears("MAIL FROM:<b@r.example>\r\n").says("250 ok\r\n");
    scene.hears("RCPT TO:<a@mx.example>\r\n").says("250 ok\r\n").hears("DATA\r\n").says("354 go\r\n");
    assert_eq!(scene.hears(WIRE).says("250 ok\r\n").outcome().tls, Some(facts()));
}

#[test]
fn a_refused_starttls_leaves_the_session_in_clear_text() {
    let mut scene = Scene::new();
    scene.says("220 mx.example\r\n").hears("EHLO us.example\r\n").says("250-mx\r\n250-PIPELINING\r\n250 STARTTLS\r\n");
    scene.hears("STARTTLS\r\n").says("454 4.7.0 not now\r\n");
    scene.begins().hears("MAIL FROM:<b@r.example>\r\nRCPT TO:<a@mx.example>\r\nDATA\r\n");
}

#[test]
fn required_starttls_reveals_nothing_of_the_message_without_tls() {
    let greeted = || {
        let mut scene = Scene::with(Settings { starttls: StartTls::Required, ..settings() });
        scene.says("220 mx.example\r\n").hears("EHLO us.example\r\n");
        scene
    };
    let mut none = greeted();
    none.says("250-mx\r\n250 PIPELINING\r\n");
    let mut refused = greeted();
    refused.says("250-mx\r\n250 STARTTLS\r\n").hears("STARTTLS\r\n").says("454 4.7.0 not now\r\n");
    let mut old = greeted();
    old.says("502 what\r\n").hears("HELO us.example\r\n").says("250 mx\r\n");
    for mut scene in [none, refused, old] {
        let outcome = scene.outcome();
        assert_eq!(outcome.phase, Phase::StartTls);
        let fault = TlsFault::StartTlsNotSupported;
        assert!(matches!(outcome.ending, Ending::PolicyFailed { fault: found, .. } if found == fault), "{outcome:?}");
        assert!(!scene.client.is_reusable());
    }
}

#[test]
fn required_starttls_continues_normally_once_secured() {
    let mut scene = Scene::with(Settings { starttls: StartTls::Required, ..settings() });
    scene.says("220 mx.example\r\n").hears("EHLO us.example\r\n").says("250-mx\r\n250 STARTTLS\r\n");
    scene.hears("STARTTLS\r\n").says("220 go\r\n");
    assert_eq!(scene.client.want(), ClientAction::Handshake);
    scene.client.secured(facts(), scene.now);
    scene.hears("EHLO us.example\r\n").says("250 mx\r\n");
    assert_eq!(scene.client.want(), ClientAction::Ready);
}

#[test]
fn skips_starttls_for_servers_with_broken_tls() {
    let mut scene = Scene::with(Settings { starttls: StartTls::Never, ..settings() });
    scene.says("220 mx.example\r\n").hears("EHLO us.example\r\n").says("250-mx\r\n250 STARTTLS\r\n");
    assert_eq!(scene.client.want(), ClientAction::Ready);
}

#[test]
fn a_server_with_our_own_name_is_a_loop_unless_it_is_expected() {
    let mut scene = Scene::new();
    assert_eq!(scene.says("220 US.example ESMTP\r\n").outcome().ending, Ending::Loop);
    let mut scene = Scene::new();
    scene.says("220 ready\r\n").hears("EHLO us.example\r\n");
    assert_eq!(scene.says("250-us.example. hello\r\n250 SIZE\r\n").outcome().ending, Ending::Loop);
    let mut scene = Scene::with(Settings { loop_check: LoopCheck::OwnNameIsExpected, ..settings() });
    scene.says("220 us.example\r\n").hears("EHLO us.example\r\n").says("250 us.example\r\n");
    assert_eq!(scene.client.want(), ClientAction::Ready);
}

#[test]
fn mailmax_is_honoured() {
    let mut scene = Scene::ready("250-mx\r\n250-PIPELINING\r\n250 LIMITS MAILMAX=1\r\n");
    let commands = "MAIL FROM:<b@r.example>\r\nRCPT TO:<a@mx.example>\r\nDATA\r\n";
    scene.begins().hears(commands).says("250\r\n250\r\n354\r\n").hears(WIRE).says("250 ok\r\n");
    assert_eq!(answered(&scene.outcome()), (Phase::Dot, 250));
    assert!(!scene.client.is_reusable());
}

#[test]
fn each_phase_has_its_own_deadline() {
    let deadlines = Deadlines::default();
    let second = Duration::from_secs(1);
    let mut scene = Scene::new();
    assert_eq!(scene.client.due(), deadlines.greeting);
    scene.passes(second).says("220 mx\r\n");
    assert_eq!(scene.client.due(), scene.now + deadlines.ehlo);
    scene.hears("EHLO us.example\r\n").passes(second).says(ALL).begins();
    assert_eq!(scene.client.due(), scene.now + deadlines.mail);
    scene.hears(PIPELINED).passes(second).says("250 ok\r\n");
    assert_eq!(scene.client.due(), scene.now + deadlines.rcpt);
    scene.passes(second).says("250 ok\r\n");
    assert_eq!(scene.client.due(), scene.now + deadlines.data);
    scene.passes(second).says("354 go\r\n");
    assert_eq!(scene.client.due(), scene.now + deadlines.block);
    scene.passes(second).hears(WIRE);
    assert_eq!(scene.client.due(), scene.now + deadlines.dot);
    scene.says("250 ok\r\n").outcome();
    scene.begins();
    assert_eq!(scene.client.due(), scene.now + deadlines.rset);
}

/// Returns the time until the client gives up on a server that reads a block of the message each `pause`. `None` if the
/// server gets the whole message.
fn served_for(bytes: usize, pause: Duration) -> Option<Duration> {
    let mut scene = Scene::ready("250-mx\r\n250 PIPELINING\r\n");
    scene.message = Bytes::from(vec![b'a'; bytes]);
    scene.begins();
    scene.client.written(scene.now);
    scene.says("250\r\n250\r\n354\r\n");
    while scene.client.want() == ClientAction::Write {
        scene.passes(pause);
        if scene.now > scene.client.due() {
            return Some(scene.client.due());
        }
        scene.client.written(scene.now);
    }
    None
}

#[test]
fn a_body_below_1_kib_per_second_over_five_minutes_ends_its_attempt() {
    // Blocks of 64 KiB.
    assert_eq!(served_for(10_000_000, Duration::from_secs(60)), None);
    assert_eq!(served_for(10_000_000, Duration::from_secs(70)), Some(Duration::from_secs(300)));
    assert_eq!(served_for(10_000_000, Duration::from_secs(200)), Some(Duration::from_secs(180)));
    assert_eq!(served_for(100_000, Duration::from_secs(140)), None, "two blocks are written by then");
}

#[test]
fn requests_the_body_once_the_server_is_ready() {
    let mut scene = Scene::ready("250-mx\r\n250 PIPELINING\r\n");
    scene.begins();
    scene.client.written(scene.now);
    for reply in ["250\r\n", "250\r\n"] {
        scene.client.received(reply.as_bytes(), scene.now);
        assert_eq!(scene.client.want(), ClientAction::Read);
    }
    scene.client.received(b"354\r\n", scene.now);
    assert_eq!(scene.client.want(), ClientAction::Body);
    scene.client.body_missing();
    let outcome = scene.outcome();
    assert!(matches!(outcome.ending, Ending::Closed(_)) && outcome.phase == Phase::Data && !scene.client.is_reusable());
}

#[test]
fn a_first_attempt_waits_15_seconds_for_greeting_and_ehlo_together() {
    let deadlines = Deadlines::default().of_first_attempt();
    let mut scene = Scene::with(Settings { deadlines, ..settings() });
    assert_eq!(scene.client.due(), Duration::from_secs(15));
    scene.passes(Duration::from_secs(10)).says("220 mx.example ESMTP\r\n").hears("EHLO us.example\r\n");
    assert_eq!(scene.client.due(), Duration::from_secs(15));
    scene.says("250 mx\r\n").begins();
    assert_eq!(scene.client.due(), Duration::from_secs(310));
}
