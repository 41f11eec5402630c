//! Tests of logins: at a server that requires one, and their secrecy in clear text.

use super::script::{PIPELINED, Scene, WIRE, facts, settings};
use super::*;
use crate::base::secret::Secret;

const OFFERS: &str = "250-mx.example\r\n250-PIPELINING\r\n250-SIZE 1000\r\n";

fn with_login(starttls: StartTls) -> Scene {
    let login = Login { username: "user".to_owned(), password: Secret::new(*b"pass") };
    Scene::with(Settings { starttls, login: Some(login), ..settings() })
}

/// Returns a session after STARTTLS, with these mechanisms after AUTH.
fn secured(mechanisms: &str) -> Scene {
    let mut scene = with_login(StartTls::Required);
    scene.says("220 mx.example\r\n").hears("EHLO us.example\r\n").says("250-mx.example\r\n250 STARTTLS\r\n");
    scene.hears("STARTTLS\r\n").says("220 go\r\n");
    let now = scene.now;
    scene.client.secured(facts(), now);
    scene.hears("EHLO us.example\r\n").says(format!("{OFFERS}250 AUTH {mechanisms}\r\n"));
    scene
}

fn refused(scene: &mut Scene) -> (Phase, Ending) {
    let outcome = scene.outcome();
    (outcome.phase, outcome.ending)
}

#[test]
fn prefers_plain_to_login_and_sends_the_message_afterwards() {
    let mut scene = secured("LOGIN PLAIN");
    scene.hears("AUTH PLAIN AHVzZXIAcGFzcw==\r\n").says("235 2.7.0 welcome\r\n");
    scene.begins().hears(PIPELINED);
    let mut scene = secured("CRAM-MD5 login");
    scene.hears("AUTH LOGIN\r\n").says("334 VXNlcm5hbWU6\r\n").hears("dXNlcg==\r\n");
    scene.says("334 UGFzc3dvcmQ6\r\n").hears("cGFzcw==\r\n").says("235 welcome\r\n");
    scene.begins().hears(PIPELINED);
}

#[test]
fn tries_login_if_the_server_does_not_support_plain() {
    let mut scene = secured("PLAIN LOGIN");
    scene.hears("AUTH PLAIN AHVzZXIAcGFzcw==\r\n").says("504 5.5.4 unknown\r\n").hears("AUTH LOGIN\r\n");
}

#[test]
fn a_refused_login_ends_the_session_in_phase_auth_with_the_answer() {
    let mut scene = secured("PLAIN");
    scene.hears("AUTH PLAIN AHVzZXIAcGFzcw==\r\n").says("535 5.7.8 bad credentials\r\n");
    let (phase, ending) = refused(&mut scene);
    assert!(phase == Phase::Auth && matches!(ending, Ending::Answered(reply) if reply.code == 535));
    let mut scene = secured("PLAIN");
    scene.hears("AUTH PLAIN AHVzZXIAcGFzcw==\r\n").says("334 more\r\n");
    assert!(matches!(refused(&mut scene), (Phase::Auth, Ending::Unreadable(_))));
    let mut scene = secured("XOAUTH2");
    assert!(matches!(refused(&mut scene), (Phase::Auth, Ending::Unreadable(_))));
}

#[test]
fn sends_no_login_if_required_tls_is_unavailable() {
    let mut scene = with_login(StartTls::Required);
    scene.says("220 mx\r\n").hears("EHLO us.example\r\n").says("250-mx\r\n250 AUTH PLAIN\r\n");
    assert!(matches!(refused(&mut scene), (Phase::StartTls, Ending::PolicyFailed { .. })));
    let mut scene = with_login(StartTls::Required);
    scene.says("220 mx\r\n").hears("EHLO us.example\r\n").says("250-mx\r\n250-AUTH PLAIN\r\n250 STARTTLS\r\n");
    scene.hears("STARTTLS\r\n").says("454 not now\r\n");
    assert!(matches!(refused(&mut scene), (Phase::StartTls, Ending::PolicyFailed { .. })));
    let mut scene = with_login(StartTls::Required);
    scene.says("220 mx\r\n").hears("EHLO us.example\r\n").says("502 what\r\n");
    scene.hears("HELO us.example\r\n").says("250 mx\r\n");
    assert!(matches!(refused(&mut scene), (Phase::StartTls, Ending::PolicyFailed { .. })));
}

#[test]
fn a_connection_with_implicit_tls_needs_no_starttls() {
    let login = Login { username: "user".to_owned(), password: Secret::new(*b"pass") };
    let settings = Settings { starttls: StartTls::Never, login: Some(login), ..settings() };
    let mut scene = Scene::with(settings.clone());
    scene.client = Client::new(settings, Duration::ZERO).over_tls(facts());
    scene.says("220 mx\r\n").hears("EHLO us.example\r\n").says("250-mx\r\n250 AUTH PLAIN\r\n");
    scene.hears("AUTH PLAIN AHVzZXIAcGFzcw==\r\n").says("535 no\r\n");
    assert_eq!(scene.outcome().tls, Some(facts()));
}

#[test]
fn the_transcript_contains_neither_the_login_nor_the_message() {
    let mut scene = secured("CRAM-MD5 login");
    scene.hears("AUTH LOGIN\r\n").says("334 VXNlcm5hbWU6\r\n").hears("dXNlcg==\r\n");
    scene.says("334 UGFzc3dvcmQ6\r\n").hears("cGFzcw==\r\n").says("235 welcome\r\n");
    scene.begins().hears(PIPELINED).says("250 ok\r\n250 ok\r\n354 go\r\n").hears(WIRE).says("554 5.7.1 spam\r\n");
    let transcript = scene.outcome().transcript;
    let said = transcript.as_str();
    for line in [
        "> EHLO us.example\n",
        "TLSv1.3 with TLS_AES_128_GCM_SHA256\n",
        "> AUTH exchange, not shown\n< 235 welcome\n",
        "> MAIL FROM:<b@r.example> SIZE=20\n> RCPT TO:<a@mx.example>\n> DATA\n",
        "< 354 go\n> the message\n< 554 5.7.1 spam\n",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    assert!(!said.contains("cGFzcw==") && !said.contains("dXNlcg==") && !said.contains("Subject"), "{said}");
    // The next message of the session starts a new transcript.
    scene.begins().hears(&format!("RSET\r\n{PIPELINED}")).says("250 ok\r\n").passes(Duration::from_secs(600));
    scene.client.deadline_passed();
    let transcript = scene.outcome().transcript;
    let said = transcript.as_str();
    assert!(said.starts_with("on a connection kept") && said.ends_with("no answer in time\n"), "{said}");
    assert!(!said.contains("spam") && !said.contains("AUTH"));
}
