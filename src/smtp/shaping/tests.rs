//! Tests of limits: the built-in file, an operator's overlay, and the errors of an invalid file.

use super::*;
use crate::domain::provider_name::provider_name;

const HOUR: Duration = Duration::from_secs(3600);

fn names(servers: &[&str]) -> Vec<String> {
    servers.iter().map(|&server| server.to_owned()).collect()
}

fn reply(text: &str) -> Reply {
    ReplyParser::new().feed(format!("{text}\n").as_bytes()).unwrap().1.unwrap()
}

fn fault(text: &str) -> String {
    Shaping::with_overlay(text).unwrap_err().to_string()
}

#[test]
fn the_built_in_file_parses_and_every_rule_has_an_example() {
    let shaping = Shaping::built_in();
    assert_eq!(shaping.limits(None).connections, 10);
    assert!(shaping.providers.len() > 10);
    for rule in &shaping.rules {
        assert!(!rule.examples.is_empty(), "{}", rule.id);
        for example in &rule.examples {
            let found = shaping.actions(rule.provider.as_deref(), &reply(example));
            assert_eq!(found, rule.actions, "an earlier rule matches the example of {}", rule.id);
        }
    }
}

#[test]
fn recognises_a_provider_by_its_mail_servers() {
    for (servers, provider) in [
        (&["gmail-smtp-in.l.google.com", "alt1.gmail-smtp-in.l.google.com"][..], Some("google")),
        (&["aspmx.l.google.com", "aspmx2.googlemail.com"], Some("google")),
        (&["mta5.am0.yahoodns.net"], Some("yahoo")),
        (&["hotmail-com.olc.protection.outlook.com"], Some("outlook")),
        (&["contoso-com.mail.protection.outlook.com"], Some("office365")),
        (&["contoso-com.d-v1.mx.microsoft"], Some("office365-dane")),
        (&["mx01.mail.icloud.com"], Some("apple")),
        (&["eu-smtp-inbound-1.mimecast.com", "eu-smtp-inbound-2.mimecast.com"], Some("mimecast-eu")),
        (&["usb-smtp-inbound-1.mimecast.com"], Some("mimecast")),
        (&["mx00.emig.gmx.net", "mx-ha02.web.de"], Some("gmx")),
        (&["mx.example.net"], None),
        (&["aspmx.l.google.com", "backup.example.net"], None),
        (&["google.com.example.net"], None),
        (&[".google.com"], None),
        (&[], None),
    ] {
        assert_eq!(Shaping::built_in().provider_of(&names(servers)), provider, "{servers:?}");
    }
}

#[test]
fn only_known_providers_have_rates_and_defaults_fill_the_rest() {
    let text = "[default]\nconnections = 4\nconnection_seconds = 60\n[[provider]]\nname = \"p\"\nmx = [\"mx.p.example\"]\n\
                messages_per_minute = 600\nconnections_per_minute = 30";
    let shaping = Shaping::with_overlay(text).unwrap();
    let usual = Limits { connections: 4, connection_age: Duration::from_secs(60), ..file_limits() };
    assert_eq!(shaping.limits(None), usual);
    let paced = Limits { messages_per_minute: Some(600), connections_per_minute: Some(30), ..usual };
    assert_eq!(shaping.limits(shaping.provider_of(&names(&["mx.p.example"]))), paced);
    assert!(fault("[default]\nmessages_per_minute = 1").contains("line 2"), "an unknown site has no rate");
}

fn file_limits() -> Limits {
    Shaping::built_in().default
}

#[test]
fn an_answer_requests_the_actions_of_its_providers_rule() {
    let shaping = Shaping::built_in();
    let yahoo = reply("421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred");
    assert_eq!(shaping.actions(Some("yahoo"), &yahoo), [Action::Pause(2 * HOUR)]);
    assert_eq!(shaping.actions(None, &yahoo), []);
    let google = reply("421 4.7.28 Our system has detected an unusual rate of unsolicited mail");
    let slower = Action::Rate { messages_per_minute: 10, lasts: HOUR / 2 };
    assert_eq!(shaping.actions(Some("google"), &google), [slower]);
    let orange = reply("421 mwinf ME Trop de connexions");
    assert_eq!(shaping.actions(Some("orange"), &orange), [Action::Connections { most: 1, lasts: HOUR }]);
    assert_eq!(
        shaping.actions(Some("yahoo"), &reply("250 2.0.0 [ts01] ok")),
        [],
        "an accepted message requests no action"
    );
}

#[test]
fn an_operators_file_replaces_by_name_and_comes_first() {
    let text = "[[provider]]\nname = \"google\"\nmx = [\".google.com\"]\nconnections = 2\n\
                [[provider]]\nname = \"ours\"\nmx = [\".l.google.com\", \"mx*.ours.example\"]\n\
                [[rule]]\nid = \"yahoo-deferred\"\nprovider = \"yahoo\"\ntext = [\"[TS01]\"]\npause_minutes = 1\n\
                connections = 3\nfor_minutes = 2\n\
                [[rule]]\nid = \"ours-slow\"\nprovider = \"ours\"\nenhanced = [\"4.7.*\"]\nmessages_per_minute = 5\nfor_minutes = 1";
    let shaping = Shaping::with_overlay(text).unwrap();
    assert_eq!(shaping.limits(Some("google")).connections, 2);
    assert_eq!(shaping.limits(Some("google")).messages_per_connection, 100, "a replaced provider keeps nothing");
    assert_eq!(shaping.provider_of(&names(&["mx7.ours.example"])), Some("ours"));
    assert_eq!(shaping.provider_of(&names(&["smtp.google.com"])), Some("google"));
    let minute = Duration::from_secs(60);
    let both = [Action::Pause(minute), Action::Connections { most: 3, lasts: 2 * minute }];
    assert_eq!(shaping.actions(Some("yahoo"), &reply("421 4.7.0 [TS01] later")), both);
    assert_eq!(shaping.actions(Some("yahoo"), &reply("421 4.7.0 [TS02] later")), [], "the built-in rule was replaced");
    assert_eq!(shaping.actions(Some("yahoo"), &reply("421 4.7.0 [TSS05] later")), [Action::Pause(4 * HOUR)]);
    let slow = Action::Rate { messages_per_minute: 5, lasts: minute };
    assert_eq!(shaping.actions(Some("ours"), &reply("450 4.7.1 slow down")), [slow]);
}

#[test]
fn errors_are_reported_with_their_line() {
    for (text, expected) in [
        ("[[rule]]\nid = \"a\"\nspeed = 1", "line 3"),
        ("\n\nprovider = 1", "line 3"),
        ("[[provider]]\nname = \"a\"\nmx = [\".a.example\"]\nconnections = 0", "line 4"),
        ("\n[[provider]]\nmx = []\nname = \"a\"", "line 4: a: mx must name at least one mail server"),
        ("[[provider]]\nname = \"a\"\nmx = [\"*\"]", "line 2: a: \"*\" is not a mail server"),
        ("[[provider]]\nname = \"a\"\nmx = [\"a b\"]", "line 2: a: \"a b\" is not a mail server"),
        (
            "[[provider]]\nname = \"a\"\nmx = [\".a.example\"]\n[[provider]]\nname = \"a\"\nmx = [\".b.example\"]",
            "line 5: a: two providers have this name",
        ),
        ("[[rule]]\nid = \"a\"\npause_minutes = 1", "line 2: a: it needs at least one of code, enhanced and text"),
        ("[[rule]]\nid = \"a\"\ncode = [\"421\"]", "line 2: a: it needs at least one of pause_minutes"),
        ("[[rule]]\nid = \"a\"\ncode = [\"42\"]\npause_minutes = 1", "line 2: a: \"42\" is not a code"),
        ("[[rule]]\nid = \"a\"\ntext = [\" \"]\npause_minutes = 1", "line 2: a: \" \" matches every answer or none"),
        ("[[rule]]\nid = \"a\"\nenhanced = [\"4.7\"]\npause_minutes = 1", "line 2: a: \"4.7\" is not a code"),
        ("[[rule]]\nid = \"a\"\ncode = [\"421\"]\nconnections = 1", "line 2: a: for_minutes must set"),
        (
            "[[rule]]\nid = \"a\"\ncode = [\"421\"]\npause_minutes = 1\nfor_minutes = 1",
            "line 2: a: for_minutes belongs",
        ),
        ("[[rule]]\nid = \"a\"\nprovider = \"b\"\ncode = [\"421\"]\npause_minutes = 1", "line 2: a: unknown provider"),
        (
            "[[rule]]\nid = \"a\"\ncode = [\"421\"]\npause_minutes = 1\nexamples = [\"450 no\"]",
            "line 2: a: one of its examples does not match",
        ),
    ] {
        assert!(fault(text).contains(expected), "{expected:?} for {text:?}: {}", fault(text));
    }
}

#[test]
fn every_provider_of_the_guide_has_a_name_for_people() {
    for name in Shaping::built_in().provider_names().chain(["other"]) {
        let for_people = provider_name(name);
        assert!(for_people.starts_with(char::is_uppercase) || for_people == "iCloud", "{name}");
    }
    assert_eq!(provider_name("mx.example.com"), "mx.example.com");
}
