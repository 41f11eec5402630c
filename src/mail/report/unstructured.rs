//! Non-standard bounces: qmail's QSBMF, older formats of Exim and Exchange, plain text. Their meaning is a guess, so
//! they suppress no address.

use mail_parser::decoders::html::html_to_text;

use super::entity::Entity;
use super::{DEPTH_MAX, TEXT_BYTES_MAX, diagnostic, text};
use crate::domain::enhanced_code::EnhancedCode;

/// Maximum number of bytes read of a bounce's text. HTML needs more of them than plain text.
const WORDS_BYTES_MAX: usize = 64 * 1024;

/// Names of mail systems in From, in lower case.
const SYSTEMS: [&str; 6] =
    ["mailer-daemon", "mailerdaemon", "postmaster", "mail delivery s", "microsoftexchange", "mail-daemon"];
/// Phrases in subjects and texts of bounces, in lower case.
const PHRASES: [&str; 28] = [
    "undeliverable",
    "undelivered",
    "non-deliver",
    "nondeliver",
    "delivery failure",
    "delivery failed",
    "delivery has failed",
    "delivery error",
    "delivery status notification (failure)",
    "failure notice",
    "returned mail",
    "returned to sender",
    "returning message to sender",
    "mail system error",
    "not be delivered",
    "not delivered to",
    "not been delivered",
    "n't be delivered",
    "n't delivered",
    "unable to deliver",
    "did not reach the following",
    "address(es) failed",
    "permanent fatal errors",
    "message you sent blocked",
    "unzustellbar",
    "nicht zugestellt",
    "non remis",
    "no se pudo entregar",
];
/// Phrases in subjects or texts of delay notices, in lower case. Such notices are not bounces.
const DELAYS: [&str; 6] =
    ["delayed", "(delay)", "still being retried", "will be retried", "will continue to try", "will keep trying"];
/// Phrases in subjects of other notices, in lower case.
const OTHERWISE: [&str; 3] = ["warning:", "(success)", "successful"];
/// Subject prefixes of people's own mail, in lower case.
const PERSONAL: [&str; 7] = ["re:", "fw:", "fwd:", "aw:", "wg:", "tr:", "rv:"];
/// Dashed lines before the returned message, in lower case.
const COPIES: [&str; 7] =
    ["copy", "original", "header", "returned message", "unsent message", "below this line", "body of"];

/// A bounce without reliable fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnstructuredBounce {
    /// The text before the quoted message; at most [`TEXT_BYTES_MAX`] bytes.
    pub text: String,
    /// The reply code that the text most likely quotes, 400 to 599.
    pub smtp_code: Option<u16>,
    /// The enhanced code that the text most likely quotes.
    pub enhanced: Option<EnhancedCode>,
}

/// Parses `message`; `None` if it is not a bounce.
pub(super) fn read(message: &Entity<'_>) -> Option<UnstructuredBounce> {
    let lower = |name: &str| message.value(name).unwrap_or_default().to_lowercase();
    let subject = lower("Subject");
    let is_otherwise = says(&subject.replace("unsuccessful", ""), &OTHERWISE) || says(&subject, &DELAYS);
    if is_otherwise || PERSONAL.iter().any(|begin| subject.starts_with(begin)) {
        return None;
    }
    let words = before_copy(&words(message)?);
    let opening = words.to_lowercase();
    let is_bounce = message.value("X-Failed-Recipients").is_some()
        || is_qsbmf(&opening)
        || (is_from_mail_system(message) && (says(&subject, &PHRASES) || says(&opening, &PHRASES)));
    if !is_bounce || says(&opening, &DELAYS) {
        return None;
    }
    let text = text::clipped(&words, TEXT_BYTES_MAX);
    let (smtp_code, enhanced) = diagnostic::refusal_in(&text);
    Some(UnstructuredBounce { text, smtp_code, enhanced })
}

/// Returns whether the message claims to be from a mail system.
pub(super) fn is_from_mail_system(message: &Entity<'_>) -> bool {
    says(&message.value("From").unwrap_or_default().to_lowercase(), &SYSTEMS)
}

fn says(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| text.contains(phrase))
}

/// Returns whether the text is in qmail's format: it starts with `Hi. This is the`, and a paragraph begins with the
/// recipient in brackets and a colon (qmail-send-bounce message format, "Failure messages").
fn is_qsbmf(opening: &str) -> bool {
    let is_recipient = |line: &str| line.starts_with('<') && line.trim_end().ends_with(">:");
    opening.starts_with("hi. this is the") && opening.lines().any(is_recipient)
}

/// Returns the first text shown by a mail program: the message's own, or that of its first readable part.
pub(super) fn words(message: &Entity<'_>) -> Option<String> {
    let mut part = None;
    for _ in 0..DEPTH_MAX {
        let entity = part.as_ref().unwrap_or(message);
        let media_type = entity.media_type();
        if media_type.starts_with("text/") {
            let content = entity.content(WORDS_BYTES_MAX);
            let words = String::from_utf8_lossy(&content).replace("\r\n", "\n");
            return Some(if media_type == "text/html" { html_to_text(&words) } else { words });
        }
        let is_readable = |part: &Entity<'_>| {
            let media_type = part.media_type();
            media_type.starts_with("text/") || media_type.starts_with("multipart/")
        };
        part = Some(entity.parts().into_iter().filter_map(Entity::read).find(is_readable)?);
    }
    None
}

/// Returns the text before the returned message. Only this text is the bounce's own.
fn before_copy(words: &str) -> String {
    let is_copy = |line: &&str| {
        let line = line.trim().to_lowercase();
        line.starts_with("original message headers") || (line.starts_with("---") && says(&line, &COPIES))
    };
    let own: Vec<_> = words.lines().take_while(|line| !is_copy(line)).collect();
    own.join("\n").trim().to_owned()
}
