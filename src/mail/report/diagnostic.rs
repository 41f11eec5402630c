//! The reason for a failed delivery, in the words of the refusing server: a Diagnostic-Code field (RFC 3464 2.3.6), or
//! a reply quoted in a text.

use super::super::section::Field;
use super::{TEXT_BYTES_MAX, text};
use crate::domain::enhanced_code::EnhancedCode;

/// Texts before a quoted reply, in lower case.
const QUOTES: [&str; 5] = [" said: ", " error ", " error: ", " response: ", "<<< "];

/// A server's answer or a program's error message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// The reply code, if the diagnostic is a reply or quotes one: 400 to 599 for a refusal, 200 to 399 otherwise.
    pub smtp_code: Option<u16>,
    /// The enhanced code after the reply code, or at the start of the text.
    pub enhanced: Option<EnhancedCode>,
    /// The text without its type. The lines of a reply are joined by `\n` if they can be recognised; other folds are
    /// spaces. At most [`TEXT_BYTES_MAX`] bytes.
    pub text: String,
}

impl Diagnostic {
    /// Parses a field; `None` if it is empty.
    pub(super) fn read(field: &Field<'_>) -> Option<Self> {
        let lines = text::lines(field);
        let first = lines.first()?;
        let (kind, begin) = text::typed(first);
        let mut lines = std::iter::once(begin).chain(lines[1..].iter().map(String::as_str)).filter(|l| !l.is_empty());
        let mut joined = lines.next()?.to_owned();
        let code = reply_code(&joined).map(|(code, _)| code);
        for line in lines {
            // A server's reply repeats its code on every line. Other lines were folded by the reporting server.
            let is_reply_line = code.is_some() && reply_code(line).map(|(code, _)| code) == code;
            joined.push(if is_reply_line { '\n' } else { ' ' });
            joined.push_str(line);
        }
        Self::of(kind.as_deref(), &joined)
    }

    /// Parses a line of text that begins with a server's refusal; `None` if it does not.
    pub(super) fn quoted(line: &str) -> Option<Self> {
        let (code, _) = reply_code(line)?;
        (code >= 400).then(|| Self::of(None, line)).flatten()
    }

    fn of(kind: Option<&str>, text: &str) -> Option<Self> {
        let text = text::filled(text, TEXT_BYTES_MAX)?;
        // Codes of other types are not reply codes: `x-unix; 550` is a program's exit status.
        let is_reply = matches!(kind, None | Some("smtp" | "esmtp" | "lmtp"));
        let reply = if is_reply { reply_code(&text) } else { None };
        let (smtp_code, enhanced) = match reply.map(|(code, rest)| (code, enhanced_behind(rest))) {
            Some((code, enhanced)) => (Some(code), enhanced),
            None => {
                let quoted = quoted_reply(&text);
                let begins = EnhancedCode::find(&text);
                (quoted.map(|(code, _)| code), begins.or(quoted.and_then(|(_, enhanced)| enhanced)))
            }
        };
        Some(Self { smtp_code, enhanced, text })
    }

    /// Returns the text in one line without any codes, for phrase searches.
    pub fn sentence(&self) -> String {
        let code = self.smtp_code.map(|code| code.to_string()).unwrap_or_default();
        let enhanced = self.enhanced.map(|enhanced| enhanced.to_string()).unwrap_or_default();
        let is_code = |word: &str| {
            let word = word.strip_prefix(code.as_str()).map_or(word, |rest| rest.trim_start_matches('-'));
            let word = word.trim_matches(['#', ':']);
            word.is_empty() || word == enhanced
        };
        let words: Vec<_> = self.text.split_whitespace().filter(|word| !is_code(word)).collect();
        words.join(" ")
    }
}

/// Returns the reply code at the start of `text`, 200 to 599, and the rest.
fn reply_code(text: &str) -> Option<(u16, &str)> {
    let digits = text.get(..3).filter(|digits| digits.bytes().all(|c| c.is_ascii_digit()))?;
    let rest = &text[3..];
    if rest.starts_with(|next: char| next.is_alphanumeric() || matches!(next, '.' | '_')) {
        return None;
    }
    let code = digits.parse().ok().filter(|code| (200..=599).contains(code))?;
    Some((code, rest))
}

/// Returns the enhanced code after a reply code, directly or where qmail puts it.
fn enhanced_behind(rest: &str) -> Option<EnhancedCode> {
    EnhancedCode::find(rest.trim_start_matches([' ', '-', '\'', ':']))
}

/// Returns a refusal quoted in `text`: `host mx.example said: 550 5.1.1 no such user`, `error 550-'5.1.1 no'`.
fn quoted_reply(text: &str) -> Option<(u16, Option<EnhancedCode>)> {
    let lower = text.to_ascii_lowercase();
    let mut quotes = QUOTES.iter().filter_map(|quote| Some(lower.find(quote)? + quote.len()));
    quotes.find_map(|place| {
        let (code, rest) = reply_code(&text[place..]).filter(|(code, _)| *code >= 400)?;
        Some((code, enhanced_behind(rest)))
    })
}

/// Returns the refusal that a plain-text bounce most likely quotes. A reply code with an enhanced code of the same
/// class counts anywhere. A number alone counts only at the start of a line or after a text that introduces a
/// quotation, since texts contain many numbers.
pub(super) fn refusal_in(text: &str) -> (Option<u16>, Option<EnhancedCode>) {
    let is_refusal = |code: u16| (400..=599).contains(&code);
    let mut weak = None;
    for line in text.lines().map(str::trim) {
        let bare = line.trim_start_matches('#');
        let at_start = reply_code(bare).filter(|(code, _)| is_refusal(*code));
        let quoted = || at_start.map(|(code, rest)| (code, enhanced_behind(rest))).or_else(|| quoted_reply(line));
        if let Some((code, enhanced)) = strong_reply(line) {
            return (Some(code), Some(enhanced));
        }
        weak = weak.or_else(quoted);
    }
    let enhanced = || text.lines().find_map(|line| EnhancedCode::find(line.trim())).filter(|code| code.class > 3);
    match weak {
        Some((code, found)) => (Some(code), found.or_else(enhanced)),
        None => (None, enhanced()),
    }
}

fn strong_reply(line: &str) -> Option<(u16, EnhancedCode)> {
    let mut before = ' ';
    for (place, character) in line.char_indices() {
        let is_start = !before.is_alphanumeric() && !matches!(before, '.' | '-' | '_');
        before = character;
        if !is_start || !matches!(character, '4' | '5') {
            continue;
        }
        let Some((code, rest)) = reply_code(&line[place..]) else { continue };
        let enhanced = EnhancedCode::split_from(rest.trim_start_matches([' ', '-'])).map(|(enhanced, _)| enhanced);
        if let Some(enhanced) = enhanced.filter(|enhanced| u16::from(enhanced.class) == code / 100) {
            return Some((code, enhanced));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::section;

    fn read(value: &str) -> Option<(Option<u16>, Option<String>, String)> {
        let section = format!("Diagnostic-Code: {value}\r\n");
        let (fields, _) = section::split(section.as_bytes());
        let read = Diagnostic::read(&fields[0])?;
        Some((read.smtp_code, read.enhanced.map(|code| code.to_string()), read.text))
    }

    #[test]
    fn parses_a_diagnostic_in_every_form() {
        for (value, code, enhanced, text) in [
            ("smtp; 550 5.1.1 no such user", Some(550), Some("5.1.1"), "550 5.1.1 no such user"),
            ("SMTP;550 no such user", Some(550), None, "550 no such user"),
            (
                "smtp; 550-5.1.1 a\r\n 550-5.1.1 b\r\n\t550 5.1.1 c",
                Some(550),
                Some("5.1.1"),
                "550-5.1.1 a\n550-5.1.1 b\n550 5.1.1 c",
            ),
            ("smtp; 550 5.1.1 a folded\r\n    line", Some(550), Some("5.1.1"), "550 5.1.1 a folded line"),
            ("smtp;\r\n 550 late", Some(550), None, "550 late"),
            ("smtp; 550 : User unknown", Some(550), None, "550 : User unknown"),
            ("smtp; 550 #5.1.0 Address rejected", Some(550), Some("5.1.0"), "550 #5.1.0 Address rejected"),
            ("smtp; 550 no mailbox (#5.1.1)", Some(550), Some("5.1.1"), "550 no mailbox (#5.1.1)"),
            (
                "smtp; 5.1.0 - Unknown address error 550-'5.1.1 no'",
                Some(550),
                Some("5.1.0"),
                "5.1.0 - Unknown address error 550-'5.1.1 no'",
            ),
            (
                "x-postfix; host mx.example[192.0.2.1] said: 452 4.2.2 full",
                Some(452),
                Some("4.2.2"),
                "host mx.example[192.0.2.1] said: 452 4.2.2 full",
            ),
            ("X-Unix; 550", None, None, "550"),
            ("X-Notes; Recipient not listed", None, None, "Recipient not listed"),
            ("smtp; 5500 gold coins", None, None, "5500 gold coins"),
            ("smtp; 550.1 is no code", None, None, "550.1 is no code"),
            ("smtp; 120 nor this", None, None, "120 nor this"),
            ("421 4.4.2 without a type", Some(421), Some("4.4.2"), "421 4.4.2 without a type"),
            ("ääää", None, None, "ääää"),
        ] {
            let expected = (code, enhanced.map(str::to_owned), text.to_owned());
            assert_eq!(read(value), Some(expected), "{value}");
        }
        for nothing in ["", " \r\n ", "smtp;", "smtp;\r\n  "] {
            assert_eq!(read(nothing), None);
        }
    }

    #[test]
    fn the_sentence_contains_no_codes() {
        for (value, sentence) in [
            ("550-5.1.1 The account\r\n 550-5.1.1 does not\r\n 550 5.1.1 exist", "The account does not exist"),
            ("550-5.1.1 The account 550-5.1.1 does not 550 5.1.1 exist", "The account does not exist"),
            ("554 5.7.1: blocked", "blocked"),
            ("no code, 550 times", "no code, 550 times"),
        ] {
            let section = format!("D: smtp; {value}\r\n");
            let read = Diagnostic::read(&section::split(section.as_bytes()).0[0]).unwrap();
            assert_eq!(read.sentence(), sentence);
        }
    }

    #[test]
    fn finds_a_quoted_refusal_but_ignores_other_numbers() {
        for (text, code, enhanced) in [
            ("host mx said: 550 5.1.1 <a@b.example>: unknown", Some(550), Some("5.1.1")),
            ("#550 5.2.2 full ##", Some(550), Some("5.2.2")),
            ("#< #5.1.1 smtp;550 5.1.1 no>", Some(550), Some("5.1.1")),
            ("after RCPT TO:<a@b.example>:\n    550 no such user", Some(550), None),
            ("Remote host said: 554 no\nmore 550 5.1.1 no", Some(550), Some("5.1.1")),
            ("Sorry, no mailbox here by that name. (#5.1.1)", None, Some("5.1.1")),
            ("<<< 550 unknown", Some(550), None),
            ("550 people took part, 450 left", Some(550), None),
            ("all 550 people took part", None, None),
            ("call 555 1.2.3 or 550 4.1.1", None, None),
            ("version 5.1.1", None, None),
            ("", None, None),
        ] {
            assert_eq!(refusal_in(text), (code, enhanced.map(|code| EnhancedCode::find(code).unwrap())), "{text}");
        }
    }
}
