//! Tests of the parser with replies of real servers.

use super::*;

fn parse(bytes: &[u8]) -> Result<Reply, UnreadableReply> {
    let (used, reply) = ReplyParser::new().feed(bytes)?;
    assert_eq!(used, bytes.len(), "a test's reply is complete");
    Ok(reply.unwrap())
}

#[test]
fn parses_every_form_sent_by_real_servers() {
    for (bytes, code, text) in [
        (&b"250 ok\r\n"[..], 250, "250 ok"),
        (b"250\r\n", 250, "250"),
        (b"250 \r\n", 250, "250 "),
        (b"250 ok\n", 250, "250 ok"),
        (b"571 5.7.1 no\r\n", 571, "571 5.7.1 no"),
        (b"599 odd\r\n", 599, "599 odd"),
        (b"550 bo\xeete pleine\r\n", 550, "550 bo\u{fffd}te pleine"),
        (b"550No such user\r\n", 550, "550No such user"),
        (b"250-a\r\n250-\r\n250 b\r\n", 250, "250-a\n250-\n250 b"),
        (b"250-a\r\n550 b\r\n", 550, "250-a\n550 b"),
        (b"550-a\n550\n", 550, "550-a\n550"),
    ] {
        let reply = parse(bytes).unwrap();
        assert_eq!((reply.code, reply.text().as_str()), (code, text));
    }
}

#[test]
fn rejects_malformed_replies() {
    for bytes in
        [&b"100 go on\r\n"[..], b"\r\n", b"25\r\n", b"600 no\r\n", b"2500 no\r\n", b"HTTP/1.1 400\r\n", b"250_x\r\n"]
    {
        assert_eq!(parse(bytes), Err(UnreadableReply::NoCode), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn a_reply_parses_the_same_byte_by_byte() {
    let bytes = b"250-one\r\n250-two\n250 three\r\n";
    let mut parser = ReplyParser::new();
    let replies: Vec<_> = bytes.iter().filter_map(|byte| parser.feed(&[*byte]).unwrap().1).collect();
    assert_eq!(replies, [parse(bytes).unwrap()]);
    assert!(!parser.is_amid());
}

#[test]
fn limits_apply_before_a_newline_arrives() {
    let mut parser = ReplyParser::new();
    let fed = std::iter::repeat_with(|| parser.feed(&[b'2'; 512])).take(10).find_map(Result::err);
    assert_eq!(fed, Some(UnreadableReply::LineTooLong));

    let mut parser = ReplyParser::new();
    let fed = std::iter::repeat_with(|| parser.feed(b"250-on and on\r\n")).take(101).find_map(Result::err);
    assert_eq!(fed, Some(UnreadableReply::TooManyLines));

    let long = [b"250-", &[b'x'; 4000][..], b"\r\n"].concat();
    let mut parser = ReplyParser::new();
    let fed = std::iter::repeat_with(|| parser.feed(&long)).take(20).find_map(Result::err);
    assert_eq!(fed, Some(UnreadableReply::TooLong));
}

#[test]
fn the_line_limit_does_not_count_the_line_end() {
    let exact = [b"250 ", &[b'x'; LINE_BYTES_MAX - 4][..], b"\r\n"].concat();
    assert!(parse(&exact).is_ok());
    let over = [b"250 ", &[b'x'; LINE_BYTES_MAX - 3][..], b"\n"].concat();
    assert_eq!(parse(&over), Err(UnreadableReply::LineTooLong));
}

#[test]
fn the_text_is_truncated_at_4_kib_between_characters() {
    let line = "é".repeat(2000);
    let reply = parse(format!("550-{line}\r\n550 {line}\r\n").as_bytes()).unwrap();
    assert!(reply.text().len() <= TEXT_BYTES_MAX && reply.text().len() > TEXT_BYTES_MAX - 4);
}

#[test]
fn finds_enhanced_codes_in_all_common_places() {
    for (text, code) in [
        ("550 5.7.509 Access denied", Some("5.7.509")),
        ("550-5.1.1 a\r\n550 5.1.1 b", Some("5.1.1")),
        ("550-5.1.1 a\r\n550 see our page", Some("5.1.1")),
        ("550 #5.1.0 Address rejected", Some("5.1.0")),
        ("550 sorry, no mailbox here by that name. (#5.1.1)", Some("5.1.1")),
        ("554 5.7.1: blocked", Some("5.7.1")),
        ("554 5.7.1", Some("5.7.1")),
        ("554 5.6.7.8 is blocked", None),
        ("554 3.1.1 no such class", None),
        ("554 5.1234.1 no", None),
        ("550 no such user", None),
        ("550", None),
    ] {
        let reply = parse(format!("{text}\r\n").as_bytes()).unwrap();
        assert_eq!(reply.enhanced().map(|code| code.to_string()).as_deref(), code, "{text}");
    }
}

#[test]
fn the_words_join_the_lines_without_addresses() {
    let reply = parse(b"550-5.1.1 The account does\r\n550 5.1.1 NOT exist <spam@b.example>\r\n").unwrap();
    assert_eq!(reply.words(), "the account does not exist");
    assert_eq!(words_of("smtp; 550 No such\n user <a@b.example>"), "smtp; 550 no such user");
    let quoted = r#"<" server busy \" > "@b.example>: greylisted, "x y"@b.example: "no" "mail""#;
    assert_eq!(words_of(quoted), r#"< greylisted, "no" "mail""#);
    assert_eq!(words_of("< server busy@b.example>: greylisted <x"), ": greylisted <x");
    assert_eq!(parse(b"550No such user\r\n").unwrap().words(), "no such user");
    assert_eq!(parse(b"550\r\n").unwrap().words(), "");
}

#[test]
fn the_words_of_a_latin_1_line_are_decoded() {
    let reply = parse(b"550-5.2.2 BO\xceTE pleine\r\n550 5.2.2 \xd1\x8f\xd1\x89\xd0\xb8\xd0\xba\r\n").unwrap();
    assert_eq!(reply.words(), "boîte pleine ящик");
    assert_eq!(reply.enhanced(), Some(EnhancedCode::new(5, 2, 2)));
}

#[test]
fn the_words_are_limited_to_4_kib() {
    let line = [b"550-", &"É ".repeat(1300).into_bytes()[..], b"\r\n"].concat();
    let reply = parse(&[&line.repeat(15)[..], b"550 end\r\n"].concat()).unwrap();
    assert!((TEXT_BYTES_MAX - 4..=TEXT_BYTES_MAX).contains(&reply.words().len()), "{}", reply.words().len());
    let word = [b"550 ", &b"x"[..], &b"y".repeat(4000)[..], b"\r\n"].concat();
    assert_eq!(parse(&word).unwrap().words().len(), 4001);
}
