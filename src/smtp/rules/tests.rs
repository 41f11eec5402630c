//! Tests of the rules: file order, overlay, errors, and properties of every built-in rule.

use super::*;

fn reply(text: &str) -> Reply {
    ReplyParser::new().feed(format!("{text}\n").as_bytes()).unwrap().1.unwrap()
}

fn explain(text: &str) -> Bounce {
    Rules::built_in().explain_reply(&reply(text), None)
}

#[test]
fn every_example_matches_its_own_rule() {
    let rules = Rules::read(BUILT_IN).unwrap();
    assert!(rules.rules.len() >= 90, "{}", rules.rules.len());
    assert!(rules.rules.iter().all(|rule| !rule.examples.is_empty()));
    assert_eq!(rules.check_examples(), Ok(()));
}

#[test]
fn rules_are_ordered_by_host_text_enhanced_code_and_code() {
    let rank = |rule: &Rule| match (rule.hosts.is_empty(), rule.texts.is_empty(), rule.enhanced.is_empty()) {
        (false, _, _) => 0,
        (true, false, _) => 1,
        (true, true, false) => 2,
        (true, true, true) => 3,
    };
    assert!(Rules::built_in().rules.is_sorted_by_key(rank));
}

#[test]
fn advice_is_a_plain_sentence() {
    let jargon =
        ["mta", "mx", "rcpt", "rbl", "ptr", "rdns", "ehlo", "helo", "ndr", "dsn", "smtp", "envelope", "bounce"];
    for rule in &Rules::built_in().rules {
        let advice = &rule.advice;
        assert!(advice.ends_with('.') && advice.starts_with(char::is_uppercase), "{}: {advice}", rule.id);
        assert!((30..=200).contains(&advice.len()), "{}: {advice}", rule.id);
        let words = advice.to_lowercase();
        let mut words = words.split(|c: char| !c.is_alphanumeric()).filter(|word| jargon.contains(word));
        let word = words.find(|word| *word != "bounce" || !advice.contains("bounce address"));
        assert_eq!(word, None, "{}: {advice}", rule.id);
    }
}

#[test]
fn only_advice_about_transient_failures_promises_a_retry() {
    for rule in &Rules::built_in().rules {
        let is_transient = |pattern: &CodePattern| match pattern {
            CodePattern::Class(class) => *class == 4,
            CodePattern::Exact(code) => *code < 500,
        };
        let is_for_transient = !rule.codes.is_empty() && rule.codes.iter().all(is_transient);
        let promises = ["Nothing to do", "retries"].iter().any(|words| rule.advice.contains(words));
        assert!(!promises || is_for_transient, "{}: {}", rule.id, rule.advice);
    }
}

#[test]
fn advice_to_correct_an_address_belongs_to_final_failures() {
    for rule in &Rules::built_in().rules {
        let asks_for_it = ["Correct ", "Remove the address"].iter().any(|words| rule.advice.starts_with(words));
        assert!(!asks_for_it || rule.kind == BounceKind::Hard, "{}", rule.id);
        assert!(!rule.may_suppress || asks_for_it, "{}", rule.id);
    }
}

#[test]
fn only_hard_failures_of_the_recipient_suppress() {
    for (text, suppressed) in [
        ("550 5.1.1 <a@b.example>: Recipient address rejected: User unknown", true),
        ("550 5.1.2 Bad destination system", true),
        ("553 5.1.3 Bad recipient address syntax", true),
        ("550 5.1.6 Mailbox has moved", true),
        ("550 5.1.10 RESOLVER.ADR.RecipientNotFound", true),
        ("550 5.2.1 The email account is inactive", true),
        ("550 No such user here", true),
        ("554 5.7.1 Mailbox is disabled", false),
        ("550 5.7.1 <a@b.example>: Recipient address rejected: User unknown", false),
        ("550 5.4.1 Recipient address rejected: Access denied. AS(201806281)", false),
        ("551 user not local", false),
        ("450 4.1.1 User unknown", false),
        ("550 4.1.1 User unknown", false),
        ("450 5.1.1 User unknown", false),
        ("450 User unknown", false),
        ("552 5.2.2 Mailbox full", false),
        ("552 5.1.1 Mailbox full", false),
        ("550 5.7.1 Message rejected due to local policy", false),
        ("550 5.1.1 Blocked: see https://www.spamhaus.org/query/ip/192.0.2.1", false),
        ("550 5.2.1 The user you are trying to contact is receiving mail at a rate that", false),
        ("550 rejected", false),
        ("550", false),
        ("554 5.4.4 Unable to route", false),
        ("550 5.1.8 Sender domain does not exist", false),
        ("550 5.1.7 Sender address rejected: user unknown", false),
        ("550 Sender verify failed: no such user here", false),
        ("421 4.3.0 No such user, try again", false),
    ] {
        assert_eq!(explain(text).suppressed, suppressed, "{text}");
    }
}

#[test]
fn a_transient_refusal_is_never_hard() {
    let refusal = Refusal { host: None, code: None, enhanced: Some(EnhancedCode::new(4, 4, 1)), words: "" };
    assert_eq!(Rules::built_in().explain(refusal, BounceSource::Dsn).kind, BounceKind::Soft);
    let file =
        "[[rule]]\nid = \"x\"\ncode = [\"450\", \"550\"]\nkind = \"hard\"\ncategory = \"other\"\nadvice = \"No.\"";
    let rules = Rules::with_overlay(file).unwrap();
    assert_eq!(rules.explain_reply(&reply("450 x"), None).kind, BounceKind::Soft);
    assert_eq!(rules.explain_reply(&reply("550 x"), None).kind, BounceKind::Hard);
}

#[test]
fn full_mailboxes_are_soft_even_if_the_answer_is_final() {
    for text in ["552 full", "552 5.2.2 full", "550 5.2.2 whatever", "554 5.2.2", "552"] {
        assert_eq!(explain(text).kind, BounceKind::Soft, "{text}");
    }
}

#[test]
fn the_recipients_name_does_not_affect_the_classification() {
    let bounce = explain("550 5.1.1 <spamhaus@b.example> User unknown");
    assert!(bounce.suppressed, "{bounce:?}");
}

#[test]
fn the_host_decides_if_the_same_words_are_ambiguous() {
    let denied = reply("550 5.4.1 Recipient address rejected: Access denied");
    let explain = |host| Rules::built_in().explain_reply(&denied, host).category;
    assert_eq!(explain(Some("x.mail.protection.OUTLOOK.com")), "invalid_recipient");
    assert_eq!(explain(Some("mx.b.example")), "connection_failed");
    assert_eq!(explain(None), "connection_failed");
}

#[test]
fn a_report_without_a_code_is_classified_by_its_enhanced_code() {
    let explain = |class, words| {
        let enhanced = Some(EnhancedCode::new(class, 1, 1));
        Rules::built_in().explain(Refusal { host: None, code: None, enhanced, words }, BounceSource::Dsn)
    };
    let bounce = explain(5, "user x not listed in domino directory");
    assert_eq!((bounce.rule.as_str(), bounce.suppressed), ("user-unknown", true));
    assert!(!explain(4, "user unknown").suppressed);
    let nothing = Refusal { host: None, code: None, enhanced: None, words: "user unknown" };
    assert_eq!(Rules::built_in().explain(nothing, BounceSource::Dsn).rule, "unexplained-transient");
}

#[test]
fn text_after_4_kib_is_ignored() {
    let words = format!("{} user unknown", "x".repeat(TEXT_BYTES_MAX));
    let refusal = Refusal { host: None, code: Some(550), enhanced: None, words: &words };
    assert_eq!(Rules::built_in().explain(refusal, BounceSource::Dsn).rule, "unexplained");
    let words = "é".repeat(TEXT_BYTES_MAX);
    let refusal = Refusal { words: &words, ..refusal };
    assert_eq!(Rules::built_in().explain(refusal, BounceSource::Dsn).rule, "unexplained");
}

#[test]
fn operator_rules_come_first_and_replace_by_id() {
    let file = r#"
        [[rule]]
        id = "user-unknown"
        code = ["550"]
        text = ["our own words"]
        kind = "soft"
        category = "other"
        advice = "Wait."

        [[rule]]
        id = "our-partner"
        host = ["partner.example"]
        kind = "block"
        category = "policy"
        advice = "Call them."
        examples = ["550 5.1.1 No such user"]
    "#;
    let rules = Rules::with_overlay(file).unwrap();
    let explain = |text: &str, host| rules.explain_reply(&reply(text), host).rule;
    assert_eq!(explain("550 5.1.1 Our own words", None), "user-unknown");
    assert_eq!(explain("550 5.1.1 User unknown", Some("mx.partner.example")), "our-partner");
    assert_eq!(explain("550 5.1.1 User unknown", Some("mx.b.example")), "enhanced-invalid-recipient");
    assert_eq!(rules.rules.len(), Rules::built_in().rules.len() + 1);
}

#[test]
fn rejects_an_invalid_file_with_reason_and_line() {
    let refused = |rest: &str| {
        let file = format!("# Ours.\n[[rule]]\nadvice = \"\"\nid = \"x\"\n{rest}");
        Rules::with_overlay(&file).unwrap_err()
    };
    let of = |fault| InvalidRules::Rule { line: 4, rule: "x".to_owned(), fault };
    let block = "kind = \"block\"\ncategory = \"policy\"\n";
    assert_eq!(refused(block), of(RuleFault::Unconditional));
    assert_eq!(refused(&format!("{block}code = [\"550\"]\nsuppress = true")), of(RuleFault::Suppression));
    for code in ["code = [\"250\"]", "code = [\"55\"]", "enhanced = [\"5.1\"]", "enhanced = [\"2.1.1\"]"] {
        let fault = refused(&format!("{block}{code}"));
        assert!(matches!(fault, InvalidRules::Rule { fault: RuleFault::Code(_), .. }), "{code}");
    }
    assert_eq!(refused(&format!("{block}host = [\".a\"]")), of(RuleFault::Host(".a".to_owned())));
    assert_eq!(refused(&format!("{block}text = [\"a\", \" \"]")), of(RuleFault::Text(" ".to_owned())));
    let misses = refused(&format!("{block}code = [\"550\"]\nexamples = [\"551 no\"]"));
    assert_eq!(misses, of(RuleFault::Example("551 no".to_owned())));
    assert_eq!(misses.to_string(), "line 4: rule x: its example \"551 no\" does not match it");
    let twice = refused(&format!("{block}code = [\"550\"]\n\n[[rule]]\nid = \"x\"\nadvice = \"\"\n{block}"));
    assert_eq!(twice, InvalidRules::Rule { line: 10, rule: "x".to_owned(), fault: RuleFault::Duplicate });
    match refused("kind = \"nope\"\n") {
        InvalidRules::Syntax(text) => assert!(text.contains("line 5"), "{text}"),
        other => panic!("{other:?}"),
    }
}
