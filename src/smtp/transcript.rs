//! Transcript of a session, for the analysis of a failed attempt. The client writes it during the session. It never
//! contains the message or a login. It is limited to 2 KiB. Only the end of a longer session is kept, which has the
//! failure.

use super::outcome::Ending;
use super::reply::Reply;

/// Maximum size in bytes.
pub const BYTES_MAX: usize = 2 * 1024;
/// Maximum size of one line in bytes.
const LINE_BYTES_MAX: usize = 256;
/// Marks text that was cut.
const CUT: &str = "\u{2026}\n";

/// Lines of a session: `> ` was sent, `< ` was received, other lines are events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript(String);

impl Transcript {
    /// Adds one or several sent lines.
    pub fn said(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        text.lines().for_each(|line| self.push("> ", line));
    }

    /// Adds a received reply.
    pub fn record_reply(&mut self, reply: &Reply) {
        reply.lines.iter().for_each(|line| self.push("< ", &String::from_utf8_lossy(line)));
    }

    /// Adds an event.
    pub fn happened(&mut self, what: &str) {
        self.push("", what);
    }

    /// Adds an event, unless it is the same as the last line.
    pub fn happened_once(&mut self, what: &str) {
        if self.0.lines().next_back() != Some(what) {
            self.happened(what);
        }
    }

    /// Appends the end of a session that did not end with an answer.
    pub fn ended(&mut self, ending: &Ending) {
        match ending {
            Ending::Answered(_) => {}
            Ending::Unreachable(why) | Ending::Unusable(why) => self.happened(&format!("no connection: {why}")),
            Ending::TimedOut => self.happened("no answer in time"),
            Ending::Closed(why) => self.happened(&format!("the connection ended: {why}")),
            Ending::Unreadable(why) => self.happened(&format!("unreadable answer: {why}")),
            Ending::TlsFailed(why) | Ending::PolicyFailed { why, .. } => self.happened(&format!("no TLS: {why}")),
            Ending::TooLarge { limit } => self.happened(&format!("too large: the server accepts {limit} bytes")),
            Ending::NeedsSmtpUtf8 => self.happened("the server lacks SMTPUTF8, which the message needs"),
            Ending::Loop => self.happened("the server is this service"),
        }
    }

    /// Appends the transcript of a session with another server.
    pub fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
        self.cut();
    }

    /// Returns the text; empty if the transcript is.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn push(&mut self, mark: &str, line: &str) {
        let shown = &line[..line.floor_char_boundary(LINE_BYTES_MAX)];
        self.0.push_str(mark);
        self.0.extend(shown.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }));
        self.0.push_str(if shown.len() < line.len() { CUT } else { "\n" });
        self.cut();
    }

    /// Drops the first lines if the transcript is too long.
    fn cut(&mut self) {
        let Some(over) = self.0.len().checked_sub(BYTES_MAX).filter(|over| *over > 0) else { return };
        let from = self.0.ceil_char_boundary(over + CUT.len());
        let end = self.0[from..].find('\n').map_or(self.0.len(), |end| from + end + 1);
        self.0.replace_range(..end, CUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: u16, text: &str) -> Reply {
        Reply { code, lines: text.lines().map(|line| line.as_bytes().to_vec()).collect() }
    }

    #[test]
    fn a_session_is_recorded_in_order() {
        let mut transcript = Transcript::default();
        transcript.record_reply(&reply(220, "220-mx.example\n220 ready"));
        transcript.said(b"EHLO us.example\r\n");
        transcript.happened("TLS");
        transcript.happened_once("TLS");
        transcript.record_reply(&reply(550, "550 \x1b[31mno"));
        let written = "< 220-mx.example\n< 220 ready\n> EHLO us.example\nTLS\n< 550 \u{fffd}[31mno\n";
        assert_eq!(transcript.as_str(), written);
    }

    #[test]
    fn an_end_without_an_answer_is_recorded() {
        let mut transcript = Transcript::default();
        transcript.ended(&Ending::Answered(reply(550, "550 no")));
        assert_eq!(transcript.as_str(), "");
        transcript.ended(&Ending::Closed("reset".to_owned()));
        transcript.ended(&Ending::TooLarge { limit: 9 });
        assert_eq!(transcript.as_str(), "the connection ended: reset\ntoo large: the server accepts 9 bytes\n");
    }

    #[test]
    fn a_long_transcript_keeps_only_its_end() {
        let mut transcript = Transcript::default();
        for number in 0..500 {
            transcript.said(format!("NOOP {number} é\r\n").as_bytes());
            assert!(transcript.as_str().len() <= BYTES_MAX);
        }
        transcript.record_reply(&reply(250, &"é".repeat(5_000)));
        let text = transcript.as_str();
        assert!(text.len() <= BYTES_MAX && text.starts_with(CUT) && text.contains("> NOOP 499 é\n"));
        assert!(text.ends_with("é\u{2026}\n"));
        let mut both = transcript.clone();
        both.append(&transcript);
        assert!(both.as_str().len() <= BYTES_MAX && both.as_str().ends_with("é\u{2026}\n"));
    }
}
