//! Tests of the first things that newcomers type: only a port, unknown identifiers, a domain to verify, a message to
//! send.

use super::*;

#[test]
fn a_bare_port_means_loopback_and_port_is_an_alias_of_listen() {
    for (line, listen) in [
        ("dev --listen 9000", "127.0.0.1:9000"),
        ("dev --port 9000", "127.0.0.1:9000"),
        ("dev --listen [::1]:0", "[::1]:0"),
    ] {
        let seen = RefCell::new(None);
        let dev = |options: DevOptions| {
            *seen.borrow_mut() = Some(options.config.http.listen);
            Exit::Done
        };
        let ran = typed(
            line,
            &[],
            &Services { serve: &|_, _, _| Exit::Failed, dev: &dev, standby: &|_, _| panic!("stands by") },
        );
        assert_eq!((ran.exit, seen.take()), (Exit::Done, Some(vec![listen.parse().unwrap()])), "{line}: {ran:?}");
    }
}

#[test]
fn an_unknown_identifier_is_reported_with_the_list_command() {
    let missing = "{\"message\":\"There is nothing.\",\"code\":\"not_found\"}";
    let one = format!("{{\"data\":[{{\"id\":\"{ACCOUNT}\"}}],\"next_cursor\":null}}");
    for (line, says) in [
        ("key show key_1", "No key key_1. Run: postrider key list"),
        ("key remove key_1", "No key key_1. Run: postrider key list"),
        ("webhook test whk_1", "No webhook whk_1. Run: postrider webhook list"),
        ("suppression remove a@b.example", "No suppression a@b.example. Run: postrider suppression list"),
        ("message cancel msg_1", "No message msg_1. Run: postrider message list"),
        ("user remove usr_1", "No user usr_1. Run: postrider user list"),
    ] {
        let (ran, _) = asking(line, &[(200, &one), (404, missing)]);
        assert!(ran.exit == Exit::NotFound && ran.err.ends_with(&format!("\n  {says}\n")), "{line}: {ran:?}");
    }
    let (ran, _) = asking(&format!("account show {ACCOUNT}"), &[(404, missing)]);
    assert!(ran.err.contains(&format!("No account {ACCOUNT}. Run: postrider account list")), "{ran:?}");
    let (ran, requests) = asking(&format!("key show key_1 --account {ACCOUNT}"), &[(404, missing), (404, missing)]);
    assert!(ran.err.contains(&format!("No account {ACCOUNT}. ")), "the account is named where it is missing: {ran:?}");
    assert!(requests[1].starts_with(&format!("GET /v1/accounts/{ACCOUNT} ")), "{requests:?}");
}

#[test]
fn verify_exits_with_7_unless_the_domain_is_verified() {
    let record =
        "{\"type\":\"TXT\",\"name\":\"s1._domainkey.a.example\",\"required\":true,\"status\":\"missing\",\"found\":[]}";
    let domain = |status: &str| {
        format!("{{\"id\":\"{DOMAIN}\",\"name\":\"a.example\",\"status\":\"{status}\",\"records\":[{record}]}}")
    };
    let line = format!("domain verify {DOMAIN} --account {ACCOUNT}");
    let (ran, _) = asking(&line, &[(200, &domain("pending"))]);
    assert_eq!(ran.exit, Exit::ChecksFailed);
    assert_eq!(ran.out.lines().last(), Some("Not verified: TXT s1._domainkey.a.example was not found"));
    for line in [line.clone(), format!("{line} --wait"), format!("{line} --wait 60")] {
        let (ran, _) = asking(&line, &[(200, &domain("verified"))]);
        assert_eq!((ran.exit, ran.out.lines().last()), (Exit::Done, Some("Verified.")), "{line}");
    }
}

#[test]
fn message_send_sends_a_message_and_waits_for_its_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    fs::write(&file, "<p>Hi</p>").unwrap();
    let line = format!("message send --from a@example.test --to b@example.org --account {ACCOUNT}");
    let accepted = "{\"id\":\"msg_1\",\"status\":\"queued\"}";
    for (options, body) in [
        (
            "--subject S --text T",
            "{\"from\":\"a@example.test\",\"subject\":\"S\",\"text\":\"T\",\"to\":\"b@example.org\"}",
        ),
        ("", "{\"from\":\"a@example.test\",\"text\":\"From standard input.\",\"to\":\"b@example.org\"}"),
        ("--html F", "{\"from\":\"a@example.test\",\"html\":\"<p>Hi</p>\",\"to\":\"b@example.org\"}"),
        ("--raw F", "{\"from\":\"a@example.test\",\"raw\":\"PHA+SGk8L3A+\",\"to\":\"b@example.org\"}"),
    ] {
        let options = options.replace('F', file.to_str().unwrap());
        let (ran, requests) = asking(&format!("{line} {options} --json"), &[(202, accepted)]);
        assert_eq!((ran.exit, ran.out), (Exit::Done, format!("{accepted}\n")), "{options}");
        assert!(requests[0].starts_with("POST /v1/messages ") && requests[0].ends_with(body), "{requests:?}");
    }
    for (status, exit) in [("delivered", Exit::Done), ("bounced", Exit::Failed), ("complained", Exit::Failed)] {
        let settled = format!("{{\"id\":\"msg_1\",\"status\":\"{status}\",\"events\":[]}}");
        let answers = [(202, accepted), (200, accepted), (200, settled.as_str())];
        let (ran, requests) = asking(&format!("{line} --text T --wait --json"), &answers);
        assert_eq!((ran.exit, ran.out), (exit, format!("{settled}\n")));
        assert!(requests[2].starts_with("GET /v1/messages/msg_1 "), "{requests:?}");
    }
}
