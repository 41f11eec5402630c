//! Sentences of the service for people, such as those of alerts and checks. Commands in backquotes become code, and
//! times of the API are shown in the account's time zone.

use askama::Template;
use askama::filters::HtmlSafe;
use jiff::tz::TimeZone;

use super::timestamp::Moment;
use crate::base::time::Timestamp;

/// Length of the shortest time with date, hour, minute, second and zone.
const TIME_BYTES: usize = "2026-11-20T15:04:05Z".len();

/// A text with its code and times marked up.
#[derive(Template)]
#[template(path = "prose.html")]
pub(super) struct Prose {
    parts: Vec<Part>,
}

enum Part {
    Text(String),
    Code(String),
    Time(Moment),
}

impl HtmlSafe for Prose {}

impl Prose {
    /// Reads a text, whose times are shown in `zone`.
    pub(super) fn new(text: &str, zone: &TimeZone) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, (code, behind))) =
            rest.split_once('`').and_then(|(before, from)| Some((before, from.split_once('`')?)))
        {
            add_text(&mut parts, before, zone);
            parts.push(Part::Code(code.to_owned()));
            rest = behind;
        }
        add_text(&mut parts, rest, zone);
        Self { parts }
    }
}

/// Adds a text without code, divided at its times.
fn add_text(parts: &mut Vec<Part>, text: &str, zone: &TimeZone) {
    let mut plain = String::new();
    for word in text.split_inclusive(char::is_whitespace) {
        let known = word.trim_end_matches(|c: char| c.is_whitespace() || ".,;:)".contains(c));
        match known.parse::<Timestamp>().ok().filter(|_| known.len() >= TIME_BYTES && known.contains('T')) {
            Some(at) => {
                parts.push(Part::Text(std::mem::take(&mut plain)));
                parts.push(Part::Time(Moment::new(at, zone.clone())));
                plain.push_str(&word[known.len()..]);
            }
            None => plain.push_str(word),
        }
    }
    parts.push(Part::Text(plain));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        Prose::new(text, &TimeZone::get("Europe/Vienna").unwrap()).to_string()
    }

    #[test]
    fn commands_are_code_and_other_text_is_escaped() {
        assert_eq!(shown("Run `postrider x <ID>` & wait."), "Run <code>postrider x &#60;ID&#62;</code> &#38; wait.");
        assert_eq!(shown("`a` or `b`"), "<code>a</code> or <code>b</code>");
        assert_eq!(shown("one ` alone <b>"), "one ` alone &#60;b&#62;");
    }

    #[test]
    fn times_are_shown_in_the_zone_of_the_account() {
        let text = shown("Taken at 2026-11-20T15:04:05.000+00:00, next 2026-11-21T15:04:05Z.");
        assert!(text.starts_with("Taken at <time datetime=\"2026-11-20T15:04:05.000+00:00\""), "{text}");
        assert!(text.contains(">20 Nov 2026, <span>16:04:05 CET</span></time>, next <time"), "{text}");
        assert!(text.ends_with("16:04:05 CET</span></time>."), "{text}");
        assert_eq!(shown("2026-11-20 and 2026 stay"), "2026-11-20 and 2026 stay");
    }
}
