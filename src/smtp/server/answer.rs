//! One answer of our SMTP server: code, enhanced code (RFC 2034, RFC 3463) and one or more lines of text.
//!
//! The code that decides about a recipient or a message creates it; the session writes it. The text may contain
//! untrusted text, such as an address: line ends and non-ASCII characters are replaced when it is written.

/// Maximum length of the text of one line, so that the line stays within 512 bytes (RFC 5321 4.5.3.1.5).
const TEXT_MAX: usize = 480;
/// Number of message identifiers in one line of an answer.
const IDS_PER_LINE: usize = 10;

/// An answer to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    code: u16,
    enhanced: Option<&'static str>,
    lines: Vec<String>,
}

impl Answer {
    /// Creates an answer with an enhanced status code, such as `(550, "5.1.1", "no such user")`.
    pub fn new(code: u16, enhanced: &'static str, text: impl Into<String>) -> Self {
        debug_assert!((200..600).contains(&code), "an SMTP code has three digits from 2 to 5");
        Self { code, enhanced: Some(enhanced), lines: vec![text.into()] }
    }

    /// Returns the answer to mail that can't be accepted now, because the bucket of the replica does not answer or
    /// another machine owns its log. Nothing was committed.
    pub fn replica_unavailable() -> Self {
        Self::new(451, "4.3.2", "The service can't reach the bucket of its replica; try again later")
    }

    /// Returns the answer to mail with an API key that was revoked or has expired since its login.
    pub fn key_has_ended() -> Self {
        Self::new(530, "5.7.0", "The API key was revoked or has expired: log in with another one")
    }

    /// Returns the answer to a message whose copies for all recipients are too large together.
    pub fn copies_too_large() -> Self {
        let text = "The message is too large for so many recipients: the limit is 200 MiB for all copies together";
        Self::new(552, "5.3.4", text)
    }

    /// Creates an answer without an enhanced code: the greeting, the answer to EHLO or HELO, and 354 have none (RFC
    /// 2034 4).
    pub(super) fn plain(code: u16, text: impl Into<String>) -> Self {
        Self { code, enhanced: None, lines: vec![text.into()] }
    }

    /// Returns the answer to an accepted submission: the identifiers of its messages, ten per line, since clients limit
    /// the number of lines of an answer.
    pub fn queued<I: AsRef<str>>(ids: &[I]) -> Self {
        let mut lines: Vec<String> = ids
            .chunks(IDS_PER_LINE)
            .map(|ids| format!("Ok: queued as {}", ids.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" ")))
            .collect();
        if lines.is_empty() {
            lines.push("Ok".to_owned());
        }
        Self { code: 250, enhanced: Some("2.0.0"), lines }
    }

    /// Returns the answer with one more line.
    #[must_use]
    pub fn and(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Returns the three-digit code.
    pub const fn code(&self) -> u16 {
        self.code
    }

    /// Returns the whole answer in one line, such as `550 5.7.1 No`, for lists and logs.
    pub fn as_line(&self) -> String {
        let enhanced = self.enhanced.map(|code| format!("{code} ")).unwrap_or_default();
        format!("{} {enhanced}{}", self.code, self.lines.join(" "))
    }

    /// Returns whether the answer is positive.
    pub const fn is_positive(&self) -> bool {
        self.code < 400
    }

    /// Returns whether the answer is a permanent refusal.
    pub(super) const fn is_permanent(&self) -> bool {
        self.code >= 500
    }

    /// Appends the answer's lines as sent over the wire. Every line has the enhanced code, as in the answers of large
    /// receivers.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let last = self.lines.len() - 1;
        for (place, line) in self.lines.iter().enumerate() {
            let separator = if place == last { ' ' } else { '-' };
            out.extend_from_slice(format!("{}{separator}", self.code).as_bytes());
            if let Some(enhanced) = self.enhanced {
                out.extend_from_slice(enhanced.as_bytes());
                out.push(b' ');
            }
            out.extend(line.chars().take(TEXT_MAX).map(|c| if matches!(c, ' '..='~') { c as u8 } else { b'?' }));
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(answer: &Answer) -> String {
        let mut out = Vec::new();
        answer.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn all_lines_have_the_codes_and_all_but_the_last_a_hyphen() {
        let answer = Answer::new(550, "5.7.1", "No.").and("Really.");
        assert_eq!(written(&answer), "550-5.7.1 No.\r\n550 5.7.1 Really.\r\n");
        assert_eq!(written(&Answer::plain(354, "Go on")), "354 Go on\r\n");
    }

    #[test]
    fn a_line_has_up_to_ten_identifiers_and_nothing_after_the_last() {
        let ids: Vec<_> = (0..12).map(|n| format!("msg_{n}")).collect();
        let lines = written(&Answer::queued(&ids));
        assert_eq!(
            lines,
            "250-2.0.0 Ok: queued as msg_0 msg_1 msg_2 msg_3 msg_4 msg_5 msg_6 msg_7 msg_8 msg_9\r\n\
             250 2.0.0 Ok: queued as msg_10 msg_11\r\n"
        );
        assert_eq!(written(&Answer::queued(&["msg_1"])), "250 2.0.0 Ok: queued as msg_1\r\n");
    }

    #[test]
    fn untrusted_text_cannot_end_or_overflow_a_line() {
        let answer = Answer::new(550, "5.1.1", format!("<a\r\n250 ok\u{e9}{}>", "x".repeat(2000)));
        let line = written(&answer);
        assert!(line.starts_with("550 5.1.1 <a??250 ok?xx"), "{line}");
        assert!(line.len() <= 512 && line.matches('\n').count() == 1);
    }
}
