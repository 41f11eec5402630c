//! Parsing of searches.

use super::*;
use crate::machine::transfer::Status;

fn read(text: &str) -> Search {
    Search::read(text, "", "", &TimeZone::get("Europe/Vienna").unwrap())
}

#[test]
fn operators_set_filters_and_other_words_match_the_subject() {
    let search = read("to:ann@example.com status:bounced Your \"big order\" after:2026-11-20");
    assert_eq!(search.value("to"), Some("ann@example.com"));
    assert_eq!(search.value("status"), Some("bounced"));
    assert_eq!(search.value("subject"), Some("your big order"));
    assert_eq!(search.value("after"), Some("2026-11-19T23:00:00.000+00:00"));
    assert!(search.faults.is_empty() && !search.is_empty() && read("  ").is_empty());
}

#[test]
fn the_kind_of_a_pasted_value_is_recognised() {
    let id = MessageId::default();
    assert_eq!(read(&id.to_string()).terms, [Term::Id(id)]);
    assert_eq!(
        read(&format!(" <{id}@example.com> ")).value("message_id_header").unwrap(),
        format!("<{id}@example.com>")
    );
    assert!(read(&format!("{id}@example.com")).value("message_id_header").is_some());
    assert!(read("<abc@gmail.com>").value("message_id_header").is_some());
    assert_eq!(read("ann@example.com").value("to"), Some("ann@example.com"));
}

#[test]
fn a_part_of_an_address_is_its_domain_or_an_error_that_says_what_can_be_searched() {
    assert_eq!(read("@Example.com").value("domain"), Some("Example.com"));
    assert_eq!(read("-@example.com order").terms.len(), 2);
    for part in ["ann@", "@", "@example", "@a b"] {
        let search = read(part);
        let said = search.faults.first().is_some_and(|fault| fault.contains("or for a domain as @example.com"));
        assert!(said && search.value("to").is_none(), "{part}: {:?}", search.faults);
    }
    let instead = |text: &str| read(text).alternative(&TimeZone::UTC).map(|search| search.text);
    assert_eq!(instead("Example.com").as_deref(), Some("domain:example.com"));
    assert_eq!([instead("order"), instead("order example.com")], [None, None]);
}

#[test]
fn a_leading_minus_excludes_a_term() {
    let search = read("order -invoice -to:ann@example.com -status:bounced -code:550 -");
    let mut violations = Violations::new();
    let filter = search.filter(&mut violations);
    assert_eq!(filter.subject_words, ["order"]);
    assert_eq!(filter.without.len(), 4);
    assert_eq!(filter.without[0].subject_words, ["invoice"]);
    assert_eq!((filter.without[3].code, filter.without[3].to.is_none()), (Some(550), true));
    assert!(violations.by_field().is_empty() && search.faults.is_empty() && !read("-x").is_empty());
    assert!(read("-!").filter(&mut violations).without.is_empty(), "without a word, nothing is excluded");
    assert_eq!(read("-after:2026-11-20").faults.len(), 1);
}

#[test]
fn responses_keys_and_domains_can_be_searched() {
    let mut violations = Violations::new();
    let filter = read("code:451 answer:\"Try Again\" domain:GMAIL.com").filter(&mut violations);
    assert_eq!((filter.code, filter.answer.as_deref()), (Some(451), Some("try again")));
    assert_eq!(filter.domain.unwrap().as_str(), "gmail.com");
    assert!(violations.by_field().is_empty());
    read("code:high key:mine domain:.").filter(&mut violations);
    assert_eq!(violations.by_field().len(), 3);
}

#[test]
fn metadata_is_searched_by_its_name() {
    let mut violations = Violations::new();
    let search = read("metadata.order:10482 Metadata.a.b:\"x y\" -metadata.test:1 big");
    let filter = search.filter(&mut violations);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(filter.metadata, [pair("order", "10482"), pair("a.b", "x y")]);
    assert_eq!(filter.without[0].metadata, [pair("test", "1")]);
    assert_eq!(filter.subject_words, ["big"]);
    assert!(violations.is_empty() && search.faults.is_empty() && !read("-metadata.a:1").is_empty());
    assert_eq!(read("metadata.a:1 metadata.a:2 metadata.b:").faults.len(), 2);
    read("metadata.a:1 metadata.b:1 metadata.c:1 metadata.d:1").filter(&mut violations);
    assert_eq!(violations.by_field().keys().collect::<Vec<_>>(), ["metadata"]);
}

#[test]
fn a_word_like_a_metadata_pair_has_a_hint() {
    let of = |text: &str| {
        let hints = read(text).metadata_hints();
        hints.into_iter().map(|(typed, meant, params)| (typed, meant, params[0].1.clone())).collect::<Vec<_>>()
    };
    let hint = |typed: &str, meant: &str, whole: &str| (typed.to_owned(), meant.to_owned(), whole.to_owned());
    assert_eq!(of("big order=10482"), [hint("order=10482", "metadata.order:10482", "big metadata.order:10482")]);
    assert_eq!(of("Order:A1"), [hint("Order:A1", "metadata.Order:A1", "metadata.Order:A1")]);
    for text in ["re: order", "12:30", "to:a@b.c", "metadata.order:1", "https://a.test", "-order:1", "order"] {
        assert!(of(text).is_empty(), "{text}");
    }
}

#[test]
fn the_range_of_a_search_includes_its_last_day() {
    let utc = TimeZone::UTC;
    for text in ["after:2026-11-20 until:2026-11-28", "after:2026-11-20 Before:2026-11-29"] {
        let search = Search::read(text, "", "", &utc);
        assert_eq!(search.value("before"), Some("2026-11-29T00:00:00.000+00:00"));
        assert_eq!(search.range(&utc), ["2026-11-20", "2026-11-28"]);
    }
    assert_eq!(read("until:2026-11-28 before:2026-11-28").faults.len(), 1);
    assert_eq!(read("order").range(&utc), ["", ""]);
}

#[test]
fn a_status_may_be_a_group_of_statuses() {
    let mut violations = Violations::new();
    let filter = read("status:waiting -status:problems").filter(&mut violations);
    assert_eq!(filter.statuses, [Status::Queued, Status::Deferred]);
    let problems = [Status::Bounced, Status::Failed, Status::Suppressed, Status::Complained];
    assert_eq!(filter.without[0].statuses, problems);
    let chosen = Search::read("big", "problems", "", &TimeZone::UTC).filter(&mut violations);
    assert_eq!((chosen.statuses, chosen.subject_words), (problems.to_vec(), vec!["big".to_owned()]));
    assert!(violations.is_empty());
    read("status:open").filter(&mut violations);
    assert_eq!(violations.by_field().keys().collect::<Vec<_>>(), ["status"]);
}

#[test]
fn another_status_replaces_the_typed_one() {
    let search = Search::read("Status:bounced \"big order\" -status:failed", "queued", "marketing", &TimeZone::UTC);
    let params = search.with_status("waiting").into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(params, ["\"big order\" -status:failed", "waiting", "marketing"]);
}

#[test]
fn invalid_terms_are_reported() {
    assert_eq!(read("to:").faults, ["The filter to: needs a value directly after the colon."]);
    assert_eq!(read("to:a@b.c to:d@e.f").faults, ["The filter to:d@e.f is set twice. Remove one of them."]);
    // The word is not an operator, so it is ordinary text.
    assert_eq!(read("re: order").value("subject"), Some("re: order"));
}

#[test]
fn each_term_can_be_removed() {
    let search = Search::read("big \"my order\" to:a@b.c", "queued", "", &TimeZone::UTC);
    let without = search.without_each(&TimeZone::UTC);
    let without: Vec<_> = without.into_iter().map(|(part, params)| (part, params[0].1.clone())).collect();
    assert_eq!(without[0], ("big".to_owned(), "\"my order\" to:a@b.c".to_owned()));
    assert_eq!(without[1], ("my order".to_owned(), "big to:a@b.c".to_owned()));
    assert_eq!(without.len(), 4);
    assert_eq!(without[3].0, "Status: queued");
    let range = read("order after:2026-11-20 until:2026-11-28").without_each(&TimeZone::UTC);
    assert_eq!((range[0].0.as_str(), range[0].1[0].1.as_str()), ("Accepted 20 to 28 Nov 2026", "order"));
    assert_eq!(range.len(), 2);
}

#[test]
fn the_search_of_a_metadata_pair_finds_exactly_that_pair() {
    for (name, value) in [
        ("order", "10482"),
        ("k:colon", "v:1"),
        ("a", "\u{f6}\"q"),
        ("a", "two \"quoted\" words"),
        ("a b", "c d"),
        ("k:x", "with space"),
        ("path", "C:\\my dir\\"),
        ("path", "C:\\dir\\"),
        ("ends\\", "v"),
        ("ends\\\\", ":v"),
        ("a\\:b", "v"),
        ("a\\b", "v"),
    ] {
        let text = of_metadata(name, value);
        let search = Search::read(&text, "", "", &TimeZone::UTC);
        let expected = Term::Metadata(format!("metadata[{name}]"), value.to_owned(), String::new());
        let [Term::Metadata(found_name, found_value, _)] = search.terms.as_slice() else { panic!("{text}") };
        let Term::Metadata(name, value, _) = expected else { unreachable!() };
        assert_eq!((found_name, found_value), (&name, &value), "{text}");
        let kept = search.with_status("bounced").into_iter().find(|(key, _)| *key == "q").unwrap().1;
        assert_eq!(Search::read(&kept, "", "", &TimeZone::UTC).terms, search.terms, "{kept}");
    }
}

#[test]
fn text_that_matches_nothing_is_searched_as_the_sender_or_as_a_part_of_the_subject() {
    let other = |text: &str| read(text).alternative(&TimeZone::UTC).map(|search| search.text);
    assert_eq!(other("shop@example.test").as_deref(), Some("from:shop@example.test"));
    for subject in ["Status: shipped", "Invoice for ann@example.org", "Summer sale -50% today", "code:550"] {
        let found = read(subject).alternative(&TimeZone::UTC).unwrap();
        assert_eq!((found.value("subject"), found.faults.len()), (Some(subject.to_lowercase().as_str()), 0));
        assert_eq!(found.alternative(&TimeZone::UTC), None);
    }
    for searched in ["", "invoice", "\"your invoice\"", "subject:invoice"] {
        assert_eq!(other(searched), None, "{searched}");
    }
}
