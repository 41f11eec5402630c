//! Small components that many pages share. Each writes its own markup and escapes foreign text, so templates can use it
//! anywhere.

use std::fmt;

use askama::filters::HtmlSafe;

use super::wording::sentences;
pub(super) use crate::base::digits::grouped;
use crate::domain::event::EventType;
use crate::domain::violation::Violations;
use crate::machine::transfer::Status;

/// Maximum number of bytes of a text that a page shows.
const EXCERPT_BYTES: usize = 20_000;
/// Maximum number of characters of a response in a list row.
const ANSWER_CHARACTERS: usize = 120;

/// An icon in the colour of its text. The text beside it always has the same meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Icon(pub(super) &'static str);

impl Icon {
    const fn path(self) -> &'static str {
        match self.0.as_bytes() {
            b"bell" => "M6 16V11a6 6 0 0 1 12 0v5l2 2H4l2-2ZM10 21h4",
            b"gauge" => "M3 13a9 9 0 1 1 18 0M12 13l4-4M5 19h14",
            b"mail" => "M3 6h18v12H3zM3 7l9 7 9-7",
            b"sliders" => "M4 7h9M17 7h3M4 17h3M11 17h9M13 5v4M7 15v4",
            b"people" => "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM3 20c0-8 12-8 12 0M16 5a3 3 0 0 1 0 6M18 14l3 6",
            b"globe" => "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM3 12h18M12 3c3 3 3 15 0 18M12 3c-3 3-3 15 0 18",
            b"hook" => "M12 4a3 3 0 1 1 2 5l3 6M6 12a4 4 0 1 0 4 5h7M10 9l-4 7",
            b"key" => "M8 15a4 4 0 1 1 3.5-6H21v3h-2v3h-3v-3h-4.500A4 4 0 0 1 8 15z",
            b"list" => "M8 6h12M8 12h12M8 18h12M4 6h.01M4 12h.01M4 18h.01",
            b"shield" => "M12 3l8 3v6c0 5-3.500 8-8 9-4.500-1-8-4-8-9V6z",
            b"queue" => "M4 6h16M4 12h10M4 18h6M18 12v7M15 16l3 3 3-3",
            b"book" => "M5 4h12a2 2 0 0 1 2 2v14H7a2 2 0 0 1-2-2zM5 18a2 2 0 0 1 2-2h12M9 8h6",
            b"inbox" => "M4 5h16v14H4zM4 13h5l1.500 3h3L15 13h5",
            b"plug" => "M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4",
            b"server" => "M4 5h16v6H4zM4 13h16v6H4zM7.500 8h.01M7.500 16h.01",
            b"building" => "M5 20V4h9v16M14 9h5v11M3 20h18M8 8h3M8 12h3M8 16h3",
            b"menu" => "M4 7h16M4 12h16M4 17h16",
            b"search" => "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5",
            b"check" => "M5 12.500l4.500 4.500L19 7.500",
            b"page" => "M5 3h9l5 5v13H5zM14 3v5h5M8 13h8M8 17h5",
            b"cross" => "M6 6l12 12M18 6L6 18",
            b"clock" => "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4.500l3 2",
            b"again" => "M19 8a8 8 0 1 0 1 6M19 3v5h-5",
            b"flag" => "M6 21V4M6 5h11l-2 4 2 4H6",
            b"stop" => "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM6.500 6.500l11 11",
            b"leave" => "M10 5H5v14h5M14 8l4 4-4 4M18 12H9",
            b"warn" => "M12 4l9 16H3zM12 10v4M12 17h.01",
            b"help" => "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM9.500 10a2.500 2.500 0 1 1 3.500 2.300l-1 1.500M12 17h.01",
            b"lock" => "M6 11h12v9H6zM8.500 11V8a3.500 3.500 0 0 1 7 0v3",
            _ => "M12 12h.01",
        }
    }
}

impl fmt::Display for Icon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<svg class=\"icon\" viewBox=\"0 0 24 24\" aria-hidden=\"true\"><path d=\"{}\"/></svg>", self.path())
    }
}

impl HtmlSafe for Icon {}

/// A status or an event type: icon, word in sentence case, and colour. Colour never carries meaning alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Badge {
    word: &'static str,
    tone: &'static str,
    icon: Icon,
}

impl Badge {
    /// Creates a badge from a word, a tone (`good`, `wait`, `bad`, `calm`) and an icon.
    pub(super) const fn new(word: &'static str, tone: &'static str, icon: &'static str) -> Self {
        Self { word, tone, icon: Icon(icon) }
    }

    /// Returns the tone, for elements beside the badge in the same colour.
    pub(super) const fn tone(&self) -> &'static str {
        self.tone
    }

    /// Returns the badge of a message status.
    pub(super) const fn of_status(status: Status) -> Self {
        let word = status.as_str();
        match status {
            Status::Queued => Self::new(word, "calm", "clock"),
            Status::Deferred => Self::new(word, "wait", "again"),
            Status::Delivered => Self::new(word, "good", "check"),
            Status::Bounced => Self::new(word, "bad", "cross"),
            Status::Failed => Self::new(word, "bad", "stop"),
            Status::Complained => Self::new(word, "bad", "flag"),
            Status::Suppressed => Self::new(word, "wait", "shield"),
            Status::Canceled => Self::new(word, "calm", "stop"),
        }
    }

    /// Returns the badge of an event type.
    pub(super) const fn of_event(kind: EventType) -> Self {
        let word = kind.as_str();
        match kind {
            EventType::Queued => Self::new(word, "calm", "clock"),
            EventType::Deferred => Self::new(word, "wait", "again"),
            EventType::Delivered => Self::new(word, "good", "check"),
            EventType::Bounced => Self::new(word, "bad", "cross"),
            EventType::Failed => Self::new(word, "bad", "stop"),
            EventType::Complained => Self::new(word, "bad", "flag"),
            EventType::Suppressed => Self::new(word, "wait", "shield"),
            EventType::Unsubscribed => Self::new(word, "wait", "leave"),
            EventType::Canceled => Self::new(word, "calm", "stop"),
        }
    }
}

impl fmt::Display for Badge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Tags of a DNS record, such as `p=none`, keep their case.
        let word = if self.word.contains('=') { self.word.to_owned() } else { sentence_case(self.word) };
        write!(f, "<span class=\"badge {}\">{}{word}</span>", self.tone, self.icon)
    }
}

impl HtmlSafe for Badge {}

/// One option of a choice, as a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// Label of the option.
    pub(super) words: String,
    /// Path of the page for this option.
    pub(super) path: String,
    /// Whether the page shows this option now.
    pub(super) is_here: bool,
}

/// Errors of a form, by field.
#[derive(Debug, Clone, Default)]
pub(super) struct FormErrors(Violations);

impl FormErrors {
    /// Returns no errors.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// Returns the errors of a field and of the values in it as sentences.
    pub(super) fn within(&self, field: &str) -> String {
        let is_within =
            |path: &str| path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let faults = self.0.by_field().iter().filter(|(path, _)| is_within(path));
        sentences(field, faults.flat_map(|(_, errors)| errors))
    }

    /// Returns the errors of one field as sentences, or an empty string.
    pub(super) fn of(&self, field: &str) -> String {
        self.0.by_field().get(field).map(|errors| sentences(field, errors)).unwrap_or_default()
    }

    /// Returns the errors of each field as sentences.
    pub(super) fn all(&self) -> Vec<String> {
        self.0.by_field().iter().map(|(field, errors)| sentences(field, errors)).collect()
    }
}

impl From<Violations> for FormErrors {
    fn from(violations: Violations) -> Self {
        Self(violations)
    }
}

/// Writes the first letter of an English word as a capital.
pub(super) fn sentence_case(word: &str) -> String {
    let (first, rest) = word.split_at_checked(1).unwrap_or(("", word));
    format!("{}{rest}", first.to_ascii_uppercase())
}

/// Shortens a response to one line for lists.
pub(super) fn shortened(answer: &str) -> String {
    let line = answer.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(ANSWER_CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Shortens a response to one line without the recipient's address, which the row has already, so that the reason is
/// seen. Without a known recipient, an address in angle brackets is left out.
pub(super) fn excerpt(answer: &str, recipient: &str) -> String {
    let words = answer.split_whitespace().filter(|word| {
        let address = word.trim_matches(|c: char| "<>()[]\"',;:.".contains(c));
        let is_recipient = address.eq_ignore_ascii_case(recipient);
        !(is_recipient || (recipient.is_empty() && word.starts_with('<') && address.contains('@')))
    });
    shortened(&words.collect::<Vec<_>>().join(" "))
}

/// Shortens a text to `most` characters in its middle, so that its beginning and its end stay.
pub(super) fn cut_in_middle(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let (head, tail) = (most.div_ceil(2), most / 2);
    let beginning: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count + 1 - tail).collect();
    format!("{beginning}…{end}")
}

/// The beginning of a long text. It limits the size of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    /// Text that the page shows.
    pub(super) text: String,
    /// Whether text was cut off.
    pub(super) is_cut: bool,
}

impl Excerpt {
    /// Takes the beginning of `text`.
    pub(super) fn of(text: &str) -> Self {
        let shown = &text[..text.floor_char_boundary(EXCERPT_BYTES)];
        Self { text: shown.to_owned(), is_cut: shown.len() < text.len() }
    }
}

/// Formats a number of bytes for people.
pub(super) fn byte_size(count: u64) -> String {
    match count {
        0..1_024 => format!("{count} B"),
        1_024..1_048_576 => format!("{}.{} KiB", count / 1_024, count % 1_024 * 10 / 1_024),
        1_048_576..1_073_741_824 => format!("{}.{} MiB", count / 1_048_576, count % 1_048_576 * 10 / 1_048_576),
        _ => format!("{}.{} GiB", count / 1_073_741_824, count % 1_073_741_824 * 10 / 1_073_741_824),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_badge_has_words_as_well_as_colour() {
        for status in Status::ALL {
            assert!(Badge::of_status(status).to_string().to_lowercase().contains(status.as_str()), "{status}");
        }
        for kind in EventType::ALL {
            assert!(Badge::of_event(kind).to_string().to_lowercase().contains(kind.as_str()), "{kind}");
        }
    }

    #[test]
    fn a_badge_starts_with_a_capital_unless_it_is_a_record_tag() {
        assert!(Badge::new("verified", "good", "check").to_string().ends_with("Verified</span>"));
        assert!(Badge::new("p=none", "wait", "warn").to_string().ends_with("p=none</span>"));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(Excerpt::of("short"), Excerpt { text: "short".to_owned(), is_cut: false });
        let long = Excerpt::of(&"€".repeat(10_000));
        assert!(long.is_cut && long.text.len() == 19_998);
    }

    #[test]
    fn a_text_is_cut_in_its_middle() {
        assert_eq!(cut_in_middle("€uro/path", 9), "€uro/path");
        for most in [4, 5, 8] {
            let cut = cut_in_middle("€uro/path", most);
            assert!(cut.chars().count() == most && cut.starts_with('€') && cut.ends_with('h'), "{cut}");
        }
    }

    #[test]
    fn an_excerpt_leaves_out_the_recipient() {
        for (answer, shown) in [
            ("550 5.1.1 <bob@example.com>: Recipient address rejected", "550 5.1.1 Recipient address rejected"),
            ("550 mailbox Bob@Example.com unavailable", "550 mailbox unavailable"),
            ("550 ask postmaster@example.com", "550 ask postmaster@example.com"),
            ("451 4.7.1 Try again later", "451 4.7.1 Try again later"),
        ] {
            assert_eq!(excerpt(answer, "bob@example.com"), shown);
        }
        assert_eq!(
            excerpt("550 5.1.1 <bob@example.com>: Unknown user <script>", ""),
            "550 5.1.1 Unknown user <script>"
        );
    }

    #[test]
    fn sizes_are_formatted_for_people() {
        assert_eq!([0, 1_536, 5 << 20, 3 << 29].map(byte_size), ["0 B", "1.5 KiB", "5.0 MiB", "1.5 GiB"]);
    }
}
