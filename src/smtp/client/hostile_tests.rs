//! Tests of servers that lie, send garbage, fall silent or disconnect. The session always ends properly, and an
//! undelivered message never counts as delivered.

use super::script::{ALL, MESSAGE, PIPELINED, Scene, WIRE, envelope, facts, settings};
use super::*;
use crate::smtp::deadlines::Deadlines;

/// Replies of a server to each of our writes, in a session of two messages with STARTTLS.
const DIALOGUE: &[&str] = &[
    "220 mx.example ESMTP\r\n",
    "250-mx.example\r\n250-SIZE 100000\r\n250 STARTTLS\r\n",
    "220 go\r\n",
    "250-mx.example\r\n250 PIPELINING\r\n",
    "250 2.1.0 ok\r\n250 2.1.5 ok\r\n354 go on\r\n",
    "250 2.0.0 taken\r\n",
    "250 reset\r\n250 2.1.0 ok\r\n250 2.1.5 ok\r\n354 go on\r\n",
    "250-2.0.0 taken\r\n250 2.0.0 for good\r\n",
];

/// Returns the outcomes of a session of the dialogue in which the server vanishes after `cut` bytes.
fn vanishing_after(cut: usize, vanish: fn(&mut Client)) -> Vec<Outcome> {
    let (mut client, now) = (Client::new(settings(), Duration::ZERO), Duration::ZERO);
    let (mut left, mut says, mut outcomes) = (cut, DIALOGUE.iter(), Vec::new());
    loop {
        match client.want() {
            ClientAction::Write => client.written(now),
            ClientAction::Handshake => client.secured(facts(), now),
            ClientAction::Ready if outcomes.len() < 2 => client.begin(&envelope(), MESSAGE.len(), now),
            ClientAction::Body => client.give_body(Bytes::from_static(MESSAGE.as_bytes()), now),
            ClientAction::Finished => {
                outcomes.push(client.take_outcome().unwrap());
                if !client.is_reusable() {
                    return outcomes;
                }
            }
            ClientAction::Ready => return outcomes,
            ClientAction::Read => {
                let text = says.next().unwrap().as_bytes();
                client.received(&text[..left.min(text.len())], now);
                if left < text.len() {
                    vanish(&mut client);
                }
                left = left.saturating_sub(text.len());
            }
        }
    }
}

fn is_delivery(outcome: &Outcome) -> bool {
    outcome.phase == Phase::Dot && matches!(&outcome.ending, Ending::Answered(reply) if reply.is_positive())
}

#[test]
fn a_connection_lost_at_any_byte_delivers_only_answered_messages() {
    type End = (fn(&mut Client), fn(&Ending) -> bool);
    let ends: [End; 2] = [
        (|client| client.closed("reset"), |ending| matches!(ending, Ending::Closed(_))),
        (Client::deadline_passed, |ending| matches!(ending, Ending::TimedOut)),
    ];
    let total: usize = DIALOGUE.iter().map(|text| text.len()).sum();
    let first: usize = DIALOGUE[..6].iter().map(|text| text.len()).sum();
    for (vanish, is_fitting) in ends {
        for cut in 0..total {
            let outcomes = vanishing_after(cut, vanish);
            let delivered = outcomes.iter().filter(|outcome| is_delivery(outcome)).count();
            assert_eq!(delivered, usize::from(cut >= first), "{cut}");
            assert!(is_fitting(&outcomes.last().unwrap().ending), "{cut}: {outcomes:?}");
        }
        assert_eq!(vanishing_after(total, vanish).iter().filter(|outcome| is_delivery(outcome)).count(), 2);
    }
}

#[test]
fn a_kept_connection_that_has_ended_does_not_judge_the_message() {
    let before: usize = DIALOGUE[..6].iter().map(|text| text.len()).sum();
    let outcomes = vanishing_after(before + 3, |client| client.closed("reset"));
    assert_eq!(outcomes[1].phase, Phase::Rset);
}

#[test]
fn endless_answers_end_the_session() {
    for piece in ["250-and on\r\n".as_bytes(), &[b'2'; 4096], b"\r\n", b"\0\0\0\n", b"100 wait\r\n"] {
        let mut scene = Scene::new();
        scene.says("220 mx\r\n").hears("EHLO us.example\r\n");
        let mut bytes = 0;
        while scene.client.want() == ClientAction::Read {
            scene.says(piece);
            bytes += piece.len();
            assert!(bytes < 128 * 1024);
        }
        assert!(matches!(scene.outcome().ending, Ending::Unreadable(_)));
    }
}

/// Sends byte by byte, never a whole answer, until the phase's deadline. No byte extends it.
fn dripped_on(mut client: Client, limit: Duration) -> Ending {
    let (begun, due) = (client.due() - limit, client.due());
    for (byte, minute) in b"250-a".iter().cycle().zip(0..) {
        let now = begun + Duration::from_secs(60 * minute);
        assert_eq!(client.due(), due, "after {minute} bytes");
        if now >= due {
            client.deadline_passed();
            return client.take_outcome().unwrap().ending;
        }
        client.received(&[*byte], now);
    }
    unreachable!("bytes without end")
}

#[test]
fn a_slow_server_does_not_extend_any_deadline() {
    let limits = Deadlines::default();
    let hello = "250-mx.example\r\n250 STARTTLS\r\n";
    let begun = |said: &str| {
        let mut scene = Scene::ready(ALL);
        scene.begins().hears(PIPELINED).says(said);
        scene
    };
    let mut greeted = Scene::new();
    greeted.says("220 mx\r\n").hears("EHLO us.example\r\n");
    let mut securing = Scene::new();
    securing.says("220 mx\r\n").hears("EHLO us.example\r\n").says(hello).hears("STARTTLS\r\n");
    let mut sent = begun("250\r\n250\r\n354\r\n");
    sent.hears(WIRE);
    for (scene, limit) in [
        (Scene::new(), limits.greeting),
        (greeted, limits.ehlo),
        (securing, limits.starttls),
        (begun(""), limits.mail),
        (begun("250\r\n"), limits.rcpt),
        (begun("250\r\n250\r\n"), limits.data),
        (sent, limits.dot),
    ] {
        assert_eq!(dripped_on(scene.client, limit), Ending::TimedOut);
    }
}

#[test]
fn a_handshake_shares_the_deadline_of_starttls() {
    let mut scene = Scene::new();
    scene.says("220 mx\r\n").hears("EHLO us.example\r\n").says("250-mx\r\n250 STARTTLS\r\n").hears("STARTTLS\r\n");
    let due = scene.client.due();
    scene.passes(Duration::from_secs(59)).says("220 go\r\n");
    assert_eq!((scene.client.want(), scene.client.due()), (ClientAction::Handshake, due));
}

#[test]
fn data_injected_after_starttls_is_a_tls_failure() {
    let mut scene = Scene::new();
    scene.says("220 mx\r\n").hears("EHLO us.example\r\n").says("250-mx\r\n250 STARTTLS\r\n").hears("STARTTLS\r\n");
    let outcome = scene.says("220 go\r\n250 mx\r\n").outcome();
    assert!(matches!((outcome.phase, outcome.ending), (Phase::StartTls, Ending::TlsFailed(_))));
}

#[test]
fn an_answer_before_the_final_dot_delivers_nothing() {
    for early in ["250 ok\r\n250 ok\r\n354 go\r\n250 taken\r\n", "250 ok\r\n250 ok\r\n354 go\r\n2"] {
        let mut scene = Scene::ready(ALL);
        let outcome = scene.begins().hears(PIPELINED).says(early).outcome();
        assert!(matches!(outcome.ending, Ending::Unreadable(_)));
    }
}

#[test]
fn answers_that_do_not_match_their_commands_end_the_session() {
    for wrong in
        ["354 go\r\n", "250 ok\r\n354 go\r\n", "250 ok\r\n250 ok\r\n250 ok\r\n", "250 ok\r\n250 ok\r\n334 \r\n"]
    {
        let mut scene = Scene::ready(ALL);
        let outcome = scene.begins().hears(PIPELINED).says(wrong).outcome();
        assert!(matches!(outcome.ending, Ending::Unreadable(_)), "{wrong}");
        assert!(!scene.client.is_reusable());
    }
    let mut scene = Scene::ready(ALL);
    scene.begins().hears(PIPELINED).says("250\r\n250\r\n354\r\n").hears(WIRE);
    assert!(matches!(scene.says("354 more\r\n").outcome().ending, Ending::Unreadable(_)));
}

#[test]
fn data_after_the_last_answer_ends_the_connection_but_not_the_delivery() {
    let mut scene = Scene::ready(ALL);
    scene.begins().hears(PIPELINED).says("250\r\n250\r\n354\r\n").hears(WIRE).says("250 ok\r\n250 and more\r\n");
    assert!(is_delivery(&scene.outcome()));
    assert!(!scene.client.is_reusable());
}

#[test]
fn data_after_the_ehlo_answer_ends_the_session() {
    let mut scene = Scene::new();
    let outcome = scene.says("220 mx\r\n").hears("EHLO us.example\r\n").says("250 mx\r\n250 ok\r\n").outcome();
    assert!(matches!((outcome.phase, outcome.ending), (Phase::Ehlo, Ending::Unreadable(_))));
}

#[test]
fn a_421_ends_the_session_in_every_phase() {
    let ends_with_421 = |scene: &mut Scene, phase| {
        let outcome = scene.says("421 4.3.2 closing\r\n").outcome();
        assert!(matches!(&outcome.ending, Ending::Answered(reply) if reply.code == 421));
        assert_eq!(outcome.phase, phase);
        assert!(!scene.client.is_reusable());
    };
    ends_with_421(&mut Scene::new(), Phase::Greeting);
    ends_with_421(Scene::new().says("220 mx\r\n").hears("EHLO us.example\r\n"), Phase::Ehlo);
    ends_with_421(Scene::ready(ALL).begins().hears(PIPELINED), Phase::Mail);
    ends_with_421(Scene::ready(ALL).begins().hears(PIPELINED).says("250\r\n"), Phase::Rcpt);
    ends_with_421(Scene::ready(ALL).begins().hears(PIPELINED).says("250\r\n250\r\n"), Phase::Data);
    ends_with_421(Scene::ready(ALL).begins().hears(PIPELINED).says("250\r\n250\r\n354\r\n").hears(WIRE), Phase::Dot);
}

#[test]
fn reads_the_reason_for_a_disconnect_during_a_message() {
    let hung_up = |pending: &[u8]| {
        let mut scene = Scene::ready(ALL);
        scene.begins().hears(PIPELINED).says("250\r\n250\r\n354\r\n");
        scene.client.write_failed(pending, "broken pipe");
        let outcome = scene.outcome();
        assert_eq!(outcome.phase, Phase::Body);
        outcome.ending
    };
    assert!(matches!(hung_up(b"552 5.3.4 too big\r\n"), Ending::Answered(reply) if reply.code == 552));
    assert!(matches!(hung_up(b"250 ok\r\n"), Ending::Closed(_)));
    assert!(matches!(hung_up(b""), Ending::Closed(_)));
}

#[test]
fn does_not_send_an_envelope_with_line_ends() {
    let mut scene = Scene::ready(ALL);
    let sly = Envelope { rcpt_to: "a@b.example>\r\nRCPT TO:<c@d.example".to_owned(), ..envelope() };
    scene.begins_with(&sly).outcome();
    assert!(scene.client.output().is_empty());
}
