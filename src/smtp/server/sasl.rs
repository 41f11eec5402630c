//! The exchange of AUTH (RFC 4954) with PLAIN (RFC 4616) or LOGIN, on the server's side: lines in; challenges and
//! finally a password out. It verifies nothing: the password is an API key, and the user name is ignored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::answer::Answer;
use crate::base::secret::Secret;

/// Base64 of `Username:`. Some clients require exactly this prompt.
const USERNAME: &str = "VXNlcm5hbWU6";
/// Base64 of `Password:`.
const PASSWORD: &str = "UGFzc3dvcmQ6";

/// An exchange that waits for the client's next line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exchange {
    /// PLAIN without an initial response.
    Plain,
    /// LOGIN, before the user name.
    Username,
    /// LOGIN, before the password.
    Password,
}

/// The next step of an exchange.
#[derive(Debug)]
pub(super) enum Step {
    /// Send this challenge and wait for a line.
    Challenge(&'static str, Exchange),
    /// The exchange is complete: check this password.
    Password(Secret),
}

/// A reason to end an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SaslFault {
    /// AUTH without a mechanism.
    NoMechanism,
    /// A mechanism other than PLAIN and LOGIN.
    UnknownMechanism,
    /// A line that is not base64, or PLAIN without its two NUL bytes.
    NotBase64,
    /// The client sent `*`.
    Cancelled,
}

impl SaslFault {
    /// Returns the answer to the client.
    pub(super) fn answer(self) -> Answer {
        match self {
            Self::NoMechanism => Answer::new(501, "5.5.4", "Syntax: AUTH PLAIN or AUTH LOGIN"),
            Self::UnknownMechanism => {
                Answer::new(504, "5.5.4", "Authentication mechanism not supported, use PLAIN or LOGIN")
            }
            Self::NotBase64 => Answer::new(501, "5.5.2", "Cannot decode the authentication response"),
            Self::Cancelled => Answer::new(501, "5.7.0", "Authentication cancelled"),
        }
    }
}

/// Starts the exchange of AUTH with `argument`: the mechanism and an optional initial response.
pub(super) fn begin(argument: &[u8]) -> Result<Step, SaslFault> {
    let argument = argument.trim_ascii();
    let end = argument.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(argument.len());
    let (mechanism, initial) = (&argument[..end], argument[end..].trim_ascii());
    let begun = match mechanism.to_ascii_uppercase().as_slice() {
        b"" => return Err(SaslFault::NoMechanism),
        b"PLAIN" => Exchange::Plain,
        b"LOGIN" => Exchange::Username,
        _ => return Err(SaslFault::UnknownMechanism),
    };
    match (initial, begun) {
        (b"", Exchange::Plain) => Ok(Step::Challenge("", begun)),
        (b"", Exchange::Username | Exchange::Password) => Ok(Step::Challenge(USERNAME, begun)),
        // RFC 4954 4: an empty initial response is written as `=`.
        (b"=", _) => begun.take(&[]),
        (_, _) => begun.take(&decoded(initial)?),
    }
}

impl Exchange {
    /// Handles the client's next line, without its CR LF.
    pub(super) fn continue_with(self, line: &[u8]) -> Result<Step, SaslFault> {
        match line.trim_ascii() {
            b"*" => Err(SaslFault::Cancelled),
            line => self.take(&decoded(line)?),
        }
    }

    fn take(self, response: &[u8]) -> Result<Step, SaslFault> {
        match self {
            Self::Plain => plain_password(response).map(|password| Step::Password(Secret::new(password))),
            Self::Username => Ok(Step::Challenge(PASSWORD, Self::Password)),
            Self::Password => Ok(Step::Password(Secret::new(response))),
        }
    }
}

/// Returns the last of the three parts of PLAIN: authzid, authcid and password, separated by NUL.
fn plain_password(response: &[u8]) -> Result<&[u8], SaslFault> {
    let parts: Vec<_> = response.split(|b| *b == 0).collect();
    match parts.as_slice() {
        [_, _, password] => Ok(password),
        _ => Err(SaslFault::NotBase64),
    }
}

fn decoded(text: &[u8]) -> Result<Zeroizing<Vec<u8>>, SaslFault> {
    STANDARD.decode(text).map(Zeroizing::new).map_err(|_| SaslFault::NotBase64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats the password, the challenge or the error.
    fn outcome(step: Result<Step, SaslFault>) -> String {
        match step {
            Ok(Step::Password(password)) => format!("password {}", password.expose_text()),
            Ok(Step::Challenge(text, next)) => format!("334 {text} {next:?}"),
            Err(fault) => format!("{fault:?}"),
        }
    }

    fn base64(text: &str) -> Vec<u8> {
        STANDARD.encode(text).into_bytes()
    }

    #[test]
    fn both_mechanisms_yield_the_password_with_and_without_an_initial_response() {
        let plain = base64("other\0postrider\0pr_key");
        assert_eq!(outcome(begin(&[b"PLAIN ", plain.as_slice()].concat())), "password pr_key");
        assert_eq!(outcome(begin(b"plain")), "334  Plain");
        assert_eq!(outcome(Exchange::Plain.continue_with(&plain)), "password pr_key");
        assert_eq!(outcome(begin(b"Login")), "334 VXNlcm5hbWU6 Username");
        assert_eq!(outcome(begin(&[b"LOGIN ", base64("me").as_slice()].concat())), "334 UGFzc3dvcmQ6 Password");
        assert_eq!(outcome(begin(b"LOGIN =")), "334 UGFzc3dvcmQ6 Password");
        assert_eq!(outcome(Exchange::Username.continue_with(b"")), "334 UGFzc3dvcmQ6 Password");
        assert_eq!(outcome(Exchange::Password.continue_with(&base64("pr_key"))), "password pr_key");
    }

    #[test]
    fn each_error_of_an_exchange_is_distinguished() {
        let table: [(&[u8], &str); 8] = [
            (b"", "NoMechanism"),
            (b"CRAM-MD5", "UnknownMechanism"),
            (b"PLAIN ***", "NotBase64"),
            (b"PLAIN YQ== YQ==", "NotBase64"),
            (b"PLAIN =", "NotBase64"),
            (b"PLAIN YQ==", "NotBase64"),
            (b"LOGIN \xff", "NotBase64"),
            (b"PLAIN AAAA", "NotBase64"),
        ];
        for (argument, expected) in table {
            assert_eq!(outcome(begin(argument)), expected, "{:?}", String::from_utf8_lossy(argument));
        }
        for exchange in [Exchange::Plain, Exchange::Username, Exchange::Password] {
            assert_eq!(outcome(exchange.continue_with(b"*")), "Cancelled");
            assert_eq!(outcome(exchange.continue_with(b"?")), "NotBase64");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        assert!(!format!("{:?}", begin(&[b"PLAIN ", base64("\0me\0pr_key").as_slice()].concat())).contains("pr_key"));
    }
}
