//! Parses one command line of a client (RFC 5321 4.1.1), or returns the answer for its error.
//!
//! Only the line is checked. The session decides whether the command is valid in its current state.

use std::collections::HashSet;

use super::answer::Answer;
use super::path::{InvalidPath, Path};

/// A command of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Ehlo(String),
    Helo(String),
    Mail(Sender),
    Rcpt(Path),
    Data,
    Rset,
    Noop,
    Quit,
    Vrfy,
    Help,
    StartTls,
    /// A command whose answer ends the session.
    Farewell(Answer),
}

/// The sender and the parameters of MAIL.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sender {
    /// The path; `None` for the null path `<>`.
    pub(super) path: Option<Path>,
    /// SIZE (RFC 1870), 0 if not declared.
    pub(super) size: u64,
    /// BODY=8BITMIME (RFC 6152).
    pub(super) eight_bit: bool,
    /// SMTPUTF8 (RFC 6531).
    pub(super) smtputf8: bool,
}

impl Command {
    /// Parses a line without its CR LF.
    pub(super) fn parse(line: &[u8]) -> Result<Self, Answer> {
        let Ok(line) = std::str::from_utf8(line) else {
            return Err(Answer::new(500, "5.5.2", "The line is not UTF-8"));
        };
        if line.chars().any(|c| c.is_control() && c != '\t') {
            return Err(Answer::new(500, "5.5.2", "The line has a control character"));
        }
        let (verb, argument) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let argument = argument.trim_matches([' ', '\t']);
        match verb.to_ascii_uppercase().as_str() {
            "EHLO" => hello(argument).map(Self::Ehlo),
            "HELO" => hello(argument).map(Self::Helo),
            "MAIL" => sender(argument).map(Self::Mail),
            "RCPT" => recipient(argument).map(Self::Rcpt),
            "DATA" => bare(Self::Data, argument),
            "RSET" => bare(Self::Rset, argument),
            "QUIT" => bare(Self::Quit, argument),
            "STARTTLS" => bare(Self::StartTls, argument),
            "NOOP" => Ok(Self::Noop),
            "VRFY" => Ok(Self::Vrfy),
            "HELP" => Ok(Self::Help),
            "EXPN" | "AUTH" | "BDAT" | "ETRN" | "TURN" => Err(Answer::new(502, "5.5.1", "Command not implemented")),
            _ => Err(Answer::new(500, "5.5.1", "Command not recognized")),
        }
    }
}

fn bare(command: Command, argument: &str) -> Result<Command, Answer> {
    if argument.is_empty() { Ok(command) } else { Err(Answer::new(501, "5.5.4", "This command takes no argument")) }
}

fn hello(name: &str) -> Result<String, Answer> {
    if name.is_empty() || name.contains([' ', '\t']) {
        return Err(Answer::new(501, "5.5.4", "Syntax: EHLO host.example"));
    }
    Ok(name.to_owned())
}

fn sender(argument: &str) -> Result<Sender, Answer> {
    let usage = || Answer::new(501, "5.5.4", "Syntax: MAIL FROM:<address> [parameters]");
    let text = after_keyword(argument, "FROM:").ok_or_else(usage)?;
    let (path, parameters) =
        Path::read(text).map_err(|InvalidPath| Answer::new(501, "5.1.7", "Bad sender address syntax"))?;
    let mut sender = Sender { path, ..Sender::default() };
    for parameter in parameters_of(parameters).ok_or_else(usage)? {
        sender.take(parameter)?;
    }
    check_repetition(parameters)?;
    if !sender.smtputf8 && sender.path.as_ref().is_some_and(|path| !path.is_ascii()) {
        return Err(Answer::new(553, "5.6.7", "This address needs SMTPUTF8"));
    }
    Ok(sender)
}

impl Sender {
    /// Takes one parameter of MAIL.
    pub(super) fn take(&mut self, parameter: &str) -> Result<(), Answer> {
        let (keyword, value) = match parameter.split_once('=') {
            Some((keyword, value)) => (keyword, Some(value.to_ascii_uppercase())),
            None => (parameter, None),
        };
        match (keyword.to_ascii_uppercase().as_str(), value.as_deref()) {
            ("SIZE", Some(digits)) if is_size(digits) => {
                // 20 digits may exceed 64 bits: such a message is too large in any case.
                self.size = digits.parse().unwrap_or(u64::MAX);
                Ok(())
            }
            ("BODY", Some("7BIT")) => Ok(()),
            ("BODY", Some("8BITMIME")) => {
                self.eight_bit = true;
                Ok(())
            }
            ("SMTPUTF8", None) => {
                self.smtputf8 = true;
                Ok(())
            }
            ("SIZE" | "BODY" | "SMTPUTF8", _) => Err(Answer::new(501, "5.5.4", "Bad value of a MAIL parameter")),
            _ => Err(Answer::new(555, "5.5.4", "MAIL parameter not recognized")),
        }
    }
}

/// Returns whether the text is a size: one to twenty digits (RFC 1870 3).
fn is_size(text: &str) -> bool {
    (1..=20).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}

fn recipient(argument: &str) -> Result<Path, Answer> {
    let usage = || Answer::new(501, "5.5.4", "Syntax: RCPT TO:<address>");
    let text = after_keyword(argument, "TO:").ok_or_else(usage)?;
    let bad = || Answer::new(501, "5.1.3", "Bad recipient address syntax");
    let (path, parameters) = Path::read(text).map_err(|InvalidPath| bad())?;
    if parameters_of(parameters).ok_or_else(usage)?.next().is_some() {
        return Err(Answer::new(555, "5.5.4", "RCPT parameter not recognized"));
    }
    // The null path is not a recipient.
    path.ok_or_else(bad)
}

/// Accepts a space after the colon. The grammar has none, but it is common.
fn after_keyword<'a>(argument: &'a str, keyword: &str) -> Option<&'a str> {
    let (head, rest) = argument.split_at_checked(keyword.len())?;
    head.eq_ignore_ascii_case(keyword).then(|| rest.trim_start_matches(' '))
}

/// Refuses a repeated keyword: the two values may differ, and servers disagree about which one counts.
pub(super) fn check_repetition(parameters: &str) -> Result<(), Answer> {
    let mut keywords = HashSet::new();
    let is_repeated = parameters.split_ascii_whitespace().any(|parameter| {
        let keyword = parameter.split_once('=').map_or(parameter, |(keyword, _)| keyword);
        !keywords.insert(keyword.to_ascii_uppercase())
    });
    if is_repeated { Err(Answer::new(501, "5.5.4", "A MAIL parameter is given twice")) } else { Ok(()) }
}

/// Returns the parameters after a path. A space is required before the first.
pub(super) fn parameters_of(text: &str) -> Option<impl Iterator<Item = &str>> {
    (text.is_empty() || text.starts_with([' ', '\t'])).then(|| text.split_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &str) -> u16 {
        Command::parse(line.as_bytes()).map_or_else(|answer| answer.code(), |_| 0)
    }

    #[test]
    fn parses_commands_in_any_case_with_parameters() {
        let Ok(Command::Mail(sender)) = Command::parse(b"mail from:<a@b.example> size=12 Body=8bitmime SMTPUTF8")
        else {
            panic!("MAIL was refused");
        };
        assert_eq!((sender.size, sender.eight_bit, sender.smtputf8), (12, true, true));
        assert_eq!(Command::parse(b"Quit"), Ok(Command::Quit));
        assert_eq!(Command::parse(b"HELO  me "), Ok(Command::Helo("me".to_owned())));
        assert!(
            matches!(Command::parse(b"MAIL FROM: <> SIZE=99999999999999999999"), Ok(Command::Mail(s)) if s.size == u64::MAX)
        );
        assert!(matches!(Command::parse(b"rcpt TO:<a@b.example>"), Ok(Command::Rcpt(_))));
    }

    #[test]
    fn each_error_of_a_line_has_its_code() {
        let table = [
            ("", 500),
            ("GET / HTTP/1.1", 500),
            ("BDAT 5", 502),
            ("EHLO", 501),
            ("DATA now", 501),
            ("MAIL FROM:a@b.example", 501),
            ("MAIL FROM:<a@b.example>SIZE=1", 501),
            ("MAIL FROM:<a@b.example> SIZE=x", 501),
            ("MAIL FROM:<a@b.example> BODY=BINARYMIME", 501),
            ("MAIL FROM:<a@b.example> FOO=1", 555),
            ("MAIL FROM:<a@b.example> SIZE=1 size=2", 501),
            ("MAIL FROM:<a@b.example> SMTPUTF8 SMTPUTF8", 501),
            ("MAIL FROM:<ä@b.example>", 553),
            ("MAIL", 501),
            ("RCPT TO:<>", 501),
            ("RCPT TO:<a@b.example> NOTIFY=NEVER", 555),
            ("RCPT TOÄ", 501),
            ("NOOP \u{7}", 500),
            ("NOOP a\rb", 500),
        ];
        for (line, expected) in table {
            assert_eq!(code(line), expected, "{line}");
        }
        assert_eq!(Command::parse(b"NOOP \xff").map_err(|answer| answer.code()), Err(500));
    }
}
