//! Command lines of submission clients, parsed more leniently than those of mail servers. EHLO and HELO accept any
//! argument and MAIL accepts any path, because printers, applications and libraries send arbitrary values that affect
//! nothing. The line itself is parsed strictly.

use super::answer::Answer;
use super::command::{Command, Sender, check_repetition, parameters_of};
use super::path::{InvalidPath, Path};

/// Maximum size of a sender's path in bytes, without its brackets.
const SENDER_BYTES_MAX: usize = 320;

/// Returns the argument of AUTH, if `line` is that command.
pub(super) fn auth_argument(line: &[u8]) -> Option<&[u8]> {
    let (verb, argument) = line.split_at_checked(4)?;
    let is_separated = argument.first().is_none_or(|b| matches!(b, b' ' | b'\t'));
    (verb.eq_ignore_ascii_case(b"AUTH") && is_separated).then_some(argument)
}

/// Parses a line other than AUTH, without its CR LF.
pub(super) fn parse(line: &[u8]) -> Result<Command, Answer> {
    let end = line.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(line.len());
    let verb = String::from_utf8_lossy(&line[..end]).to_ascii_uppercase();
    match verb.as_str() {
        "EHLO" => Ok(Command::Ehlo(name(&line[end..]))),
        "HELO" => Ok(Command::Helo(name(&line[end..]))),
        "MAIL" => sender(checked_text(&line[end..])?),
        "RCPT" => recipient(checked_text(&line[end..])?),
        // BDAT frames messages differently: the bytes that follow are not commands.
        "BDAT" => Ok(Command::Farewell(Answer::new(502, "5.5.1", "Command not implemented"))),
        "GET" | "HEAD" | "POST" | "PUT" | "CONNECT" | "OPTIONS" => {
            Ok(Command::Farewell(Answer::new(421, "4.7.0", "This is an SMTP server")))
        }
        _ => Command::parse(line),
    }
}

/// Returns the client's name as sent, for display only.
fn name(argument: &[u8]) -> String {
    String::from_utf8_lossy(argument.trim_ascii()).into_owned()
}

fn checked_text(argument: &[u8]) -> Result<&str, Answer> {
    let text = std::str::from_utf8(argument).map_err(|_| Answer::new(553, "5.6.7", "The address is not UTF-8"))?;
    if text.chars().any(|c| c.is_control() && c != '\t') {
        return Err(Answer::new(500, "5.5.2", "The line has a control character"));
    }
    Ok(text.trim_matches([' ', '\t']))
}

fn sender(argument: &str) -> Result<Command, Answer> {
    let usage = || Answer::new(501, "5.5.4", "Syntax: MAIL FROM:<address> [parameters]");
    let text = after_keyword(argument, "FROM:").ok_or_else(usage)?;
    let bad_path = |InvalidPath| Answer::new(501, "5.1.7", "Bad sender address: write up to 320 bytes in <>");
    let (path, parameters) = Path::read_any(text).map_err(bad_path)?;
    if path.as_ref().is_some_and(|path| path.as_str().len() > SENDER_BYTES_MAX) {
        return Err(bad_path(InvalidPath));
    }
    let mut sender = Sender { path, ..Sender::default() };
    for parameter in parameters_of(parameters).ok_or_else(usage)? {
        let keyword = parameter.split_once('=').map_or(parameter, |(keyword, _)| keyword);
        // RFC 4954 5: the AUTH parameter names the original submitter. It must be accepted and is ignored.
        if !(keyword.eq_ignore_ascii_case("AUTH") && parameter.contains('=')) {
            sender.take(parameter)?;
        }
    }
    check_repetition(parameters)?;
    if !sender.smtputf8 && sender.path.as_ref().is_some_and(|path| !path.is_ascii()) {
        return Err(Answer::new(553, "5.6.7", "This address needs SMTPUTF8"));
    }
    Ok(Command::Mail(sender))
}

fn recipient(argument: &str) -> Result<Command, Answer> {
    let no_path = || Answer::new(501, "5.1.3", "Syntax: RCPT TO:<address>");
    let text = after_keyword(argument, "TO:").ok_or_else(no_path)?;
    let (path, parameters) = Path::read_any(text).map_err(|InvalidPath| no_path())?;
    if parameters_of(parameters).ok_or_else(no_path)?.next().is_some() {
        return Err(Answer::new(555, "5.5.4", "RCPT parameter not recognized"));
    }
    path.map(Command::Rcpt).ok_or_else(no_path)
}

fn after_keyword<'a>(argument: &'a str, keyword: &str) -> Option<&'a str> {
    let (head, rest) = argument.split_at_checked(keyword.len())?;
    head.eq_ignore_ascii_case(keyword).then(|| rest.trim_start_matches([' ', '\t']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &[u8]) -> String {
        parse(line).map_or_else(|answer| answer.as_line()[..9].to_owned(), |_| "ok".to_owned())
    }

    #[test]
    fn ehlo_and_helo_accept_any_argument() {
        for (argument, name) in [("", ""), (" _", "_"), (" my printer  ", "my printer"), (" [::1", "[::1")] {
            assert_eq!(parse(format!("EHLO{argument}").as_bytes()), Ok(Command::Ehlo(name.to_owned())));
            assert_eq!(parse(format!("helo{argument}").as_bytes()), Ok(Command::Helo(name.to_owned())));
        }
        assert_eq!(parse(b"EHLO \xe4"), Ok(Command::Ehlo("\u{fffd}".to_owned())));
    }

    #[test]
    fn mail_accepts_any_path_and_the_offered_parameters() {
        for line in [
            "MAIL FROM:<>",
            "MAIL FROM:<wordpress>",
            "MAIL FROM: <root@localhost> SIZE=12 BODY=8BITMIME AUTH=<>",
            "MAIL FROM:<a b@c> BODY=7BIT auth=e+3Dmc2@example.com",
            "MAIL FROM:<д@example.test> SMTPUTF8",
        ] {
            assert!(matches!(parse(line.as_bytes()), Ok(Command::Mail(_))), "{line}");
        }
    }

    #[test]
    fn each_error_of_a_line_has_its_code() {
        let table: [(&[u8], &str); 23] = [
            (b"MAIL", "501 5.5.4"),
            (b"MAIL FROM:a@b.example", "501 5.1.7"),
            (b"MAIL FROM:<a@b.example>SIZE=1", "501 5.5.4"),
            (b"MAIL FROM:<a@b.example> SIZE=x", "501 5.5.4"),
            (b"MAIL FROM:<a@b.example> BODY=BINARYMIME", "501 5.5.4"),
            (b"MAIL FROM:<a@b.example> RET=FULL", "555 5.5.4"),
            (b"MAIL FROM:<a@b.example> SIZE=1 SIZE=2", "501 5.5.4"),
            (b"MAIL FROM:<a@b.example> BODY=7BIT body=8BITMIME", "501 5.5.4"),
            (b"MAIL FROM:<a@b.example> AUTH=<> AUTH=a", "501 5.5.4"),
            (b"MAIL FROM:<a@b.example> AUTH", "555 5.5.4"),
            ("MAIL FROM:<ä@b.example>".as_bytes(), "553 5.6.7"),
            (b"MAIL FROM:<\xe4@b.example>", "553 5.6.7"),
            (b"MAIL FROM:<a\x07@b.example>", "500 5.5.2"),
            (b"RCPT TO:<>", "501 5.1.3"),
            (b"RCPT TO:", "501 5.1.3"),
            (b"RCPT TO:a@b.example", "501 5.1.3"),
            (b"RCPT", "501 5.1.3"),
            (b"RCPT TO:<a@b.example> NOTIFY=NEVER", "555 5.5.4"),
            (b"RCPT TO:<\xe4@b.example>", "553 5.6.7"),
            (b"EXPN list", "502 5.5.1"),
            (b"ETRN a", "502 5.5.1"),
            (b"NONSENSE", "500 5.5.1"),
            (b"\xff", "500 5.5.2"),
        ];
        for (line, expected) in table {
            assert_eq!(code(line), expected, "{:?}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn auth_is_recognised_by_its_whole_verb() {
        assert_eq!(auth_argument(b"auth PLAIN"), Some(b" PLAIN".as_slice()));
        assert_eq!(auth_argument(b"AUTH"), Some(b"".as_slice()));
        assert_eq!(auth_argument(b"AUTHOR x"), None);
        assert_eq!(auth_argument(b"AUT"), None);
    }
}
