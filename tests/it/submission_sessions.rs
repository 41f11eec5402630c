//! Tests of submission sessions with arbitrary bytes: the properties that the fuzz target of `fuzz/` checks for longer.

use proptest::prelude::*;

use crate::session_properties::check;

const PIECES: [&str; 28] = [
    "EHLO me\r\n",
    "AUTH PLAIN AG1lAGdvb2Q=\r\n",
    "AUTH PLAIN AG1lAGJhZA==\r\n",
    "AUTH LOGIN\r\n",
    "Z29vZA==\r\n",
    "*\r\n",
    "MAIL FROM:<a@b.example>\r\n",
    "MAIL FROM:<a@b.example> SIZE=9999999 SIZE=1\r\n",
    "RCPT TO:<c@d.example>\r\n",
    "RCPT TO:<no@d.example>\r\n",
    "DATA\r\n",
    "From: a@b.example\r\n\r\n",
    "\r\n.\r\n",
    ".\r\n",
    "\n.\n",
    "\n.\r\n",
    "\r\n.\n",
    "\r.\r",
    "\n",
    "\r",
    "..",
    "\0",
    "\u{e4}",
    "RSET\r\n",
    "NOOP\r\n",
    "STARTTLS\r\n",
    "BDAT 3\r\n",
    "QUIT\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_submission_session_accepts_only_messages_that_a_strict_parser_sees(
        pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..60),
        is_logged_in in any::<bool>(),
        size in 1_usize..80,
    ) {
        let begin = if is_logged_in { "EHLO me\r\nAUTH PLAIN AG1lAGdvb2Q=\r\n" } else { "" };
        check(format!("{begin}{}", pieces.concat()).as_bytes(), size);
    }

    #[test]
    fn a_submission_session_survives_any_bytes(input in prop::collection::vec(any::<u8>(), 0..3000), size in 1_usize..300) {
        check(&input, size);
    }
}

#[test]
fn a_message_sent_byte_by_byte_is_accepted() {
    let session =
        "EHLO me\r\nAUTH PLAIN AG1lAGdvb2Q=\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\nx\r\n.\r\n";
    assert_eq!(check(session.as_bytes(), 1), 1);
}
