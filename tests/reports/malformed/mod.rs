//! Malformed messages, each with a name and its expected classification. An error may cost a report its details or its
//! classification, but never turns another message into a bounce or a complaint.

mod delivery;
mod feedback;
mod mime;
mod plain;

use postrider::mail::report::Report;

use crate::laws;

/// Kind that a message is recognised as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Delivery,
    Feedback,
    AutoReply,
    /// Undetermined: it suppresses nobody.
    Bounce,
    Unknown,
}

/// A malformed message.
pub(crate) struct Malformed {
    pub(crate) name: String,
    pub(crate) message: Vec<u8>,
    kind: Kind,
}

impl Malformed {
    fn new(name: &str, message: &str, kind: Kind) -> Self {
        // A table of texts can't contain invalid UTF-8, so this character stands for such a byte.
        let message = message.replace('\n', "\r\n").bytes().collect::<Vec<u8>>();
        let marker = "¿".as_bytes();
        let mut bytes = Vec::with_capacity(message.len());
        let mut rest = message.as_slice();
        while let Some((first, after)) = rest.split_first() {
            if let Some(after) = rest.strip_prefix(marker) {
                bytes.push(0xff);
                rest = after;
            } else {
                bytes.push(*first);
                rest = after;
            }
        }
        Self { name: name.to_owned(), message: bytes, kind }
    }
}

/// One error in a valid message: its name, the text to replace, the replacement, and the resulting classification.
type Defect<'t> = (&'t str, &'t str, &'t str, Kind);

fn with_faults(good: &str, faults: &[Defect<'_>]) -> Vec<Malformed> {
    let one = |(name, from, to, kind): &Defect<'_>| {
        assert_eq!(good.matches(from).count(), 1, "{name}: the text to replace must occur exactly once");
        Malformed::new(name, &good.replace(from, to), *kind)
    };
    faults.iter().map(one).collect()
}

/// Returns every malformed message.
pub(crate) fn all() -> Vec<Malformed> {
    [delivery::all(), feedback::all(), mime::all(), plain::all()].into_iter().flatten().collect()
}

fn kind(report: &Report) -> Kind {
    match report {
        Report::Delivery(_) => Kind::Delivery,
        Report::Feedback(_) => Kind::Feedback,
        Report::AutoReply => Kind::AutoReply,
        Report::Unknown(Some(_)) => Kind::Bounce,
        Report::Unknown(None) => Kind::Unknown,
    }
}

#[test]
fn a_malformed_message_is_classified_conservatively() {
    let all = all();
    let mut names: Vec<_> = all.iter().map(|malformed| malformed.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == all.len() && all.len() >= 200, "{} names of {} messages", names.len(), all.len());
    let found = all.iter().map(|malformed| (malformed, kind(&laws::check(&malformed.message))));
    let wrong: Vec<_> = found.filter(|(malformed, found)| malformed.kind != *found).collect();
    let list: String = wrong.iter().map(|(m, found)| format!("\n{}: {found:?}, not {:?}", m.name, m.kind)).collect();
    assert!(wrong.is_empty(), "{list}");
}
