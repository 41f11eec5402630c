//! The checklist of a sending domain (contract 14.2). It judges the requirements of large receivers by the last DNS
//! check and the mail of the last days. [`dns`] and [`bimi`](mod@bimi) have the items that depend on DNS,
//! [`traffic`] those that depend on the mail itself.

pub mod bimi;
pub mod dns;
pub mod traffic;

use serde::{Deserialize, Serialize};

/// The outcome of one item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The requirement is met.
    Pass,
    /// Some receivers object.
    Warn,
    /// Large receivers refuse the domain's mail, or will soon.
    Fail,
    /// There is too little data.
    Unknown,
    /// The item does not apply.
    Na,
}

impl Status {
    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Unknown => "unknown",
            Self::Na => "na",
        }
    }
}

/// A receiver with requirements for bulk senders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Receiver {
    /// Gmail, since February 2024.
    Google,
    /// Yahoo and AOL, since February 2024.
    Yahoo,
    /// Outlook.com and Microsoft's other consumer domains, since May 2025.
    Microsoft,
}

/// An item of the checklist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemId {
    /// SPF includes this server.
    Spf,
    /// The RSA key is published.
    Dkim,
    /// A DMARC record applies.
    Dmarc,
    /// DKIM and SPF align with the From domain.
    Alignment,
    /// DMARC reports come here.
    DmarcReports,
    /// DMARC reports show that the account's mail passes.
    DmarcObserved,
    /// Marketing mail has one-click unsubscription.
    OneClick,
    /// Source addresses have matching reverse DNS.
    ReverseDns,
    /// Mail is delivered over TLS.
    Tls,
    /// The complaint rate.
    Complaints,
    /// The bounce rate.
    Bounces,
    /// Recipients can reply.
    Replies,
    /// The logo (BIMI).
    Bimi,
}

impl ItemId {
    /// All items, in the order of the list.
    pub const ALL: [Self; 13] = [
        Self::Spf,
        Self::Dkim,
        Self::Dmarc,
        Self::Alignment,
        Self::DmarcReports,
        Self::DmarcObserved,
        Self::OneClick,
        Self::ReverseDns,
        Self::Tls,
        Self::Complaints,
        Self::Bounces,
        Self::Replies,
        Self::Bimi,
    ];

    /// Returns the title.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Spf => "SPF lets this server pass",
            Self::Dkim => "The DKIM key is published",
            Self::Dmarc => "A DMARC record applies",
            Self::Alignment => "DKIM and SPF align with the From domain",
            Self::DmarcReports => "DMARC reports come here",
            Self::DmarcObserved => "Receivers report that your mail passes DMARC",
            Self::OneClick => "Marketing can be unsubscribed with one click",
            Self::ReverseDns => "Reverse DNS leads to the server's name",
            Self::Tls => "Mail is delivered under TLS",
            Self::Complaints => "Few recipients complain",
            Self::Bounces => "Few messages bounce",
            Self::Replies => "The domain can receive replies",
            Self::Bimi => "The logo (BIMI) can be shown",
        }
    }

    /// Returns the receivers that require this item of bulk senders.
    pub const fn required_by(self) -> &'static [Receiver] {
        use Receiver::{Google, Microsoft, Yahoo};
        match self {
            Self::Spf | Self::Dkim | Self::Dmarc | Self::Alignment => &[Google, Yahoo, Microsoft],
            Self::OneClick | Self::ReverseDns | Self::Tls | Self::Complaints => &[Google, Yahoo],
            Self::Replies => &[Microsoft],
            Self::DmarcReports | Self::DmarcObserved | Self::Bounces | Self::Bimi => &[],
        }
    }
}

/// End of the finding of a record that was not looked up.
const NOT_LOOKED_UP: &str = "was not checked yet, or the lookup failed.";

/// The judgement of one item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Judgement {
    /// The outcome.
    pub status: Status,
    /// The facts, in one sentence.
    pub seen: String,
    /// The remedy; `None` if there is nothing to do.
    pub remedy: Option<String>,
}

impl Judgement {
    /// Returns whether a record was not looked up, so that the item can't be judged.
    pub fn is_not_looked_up(&self) -> bool {
        self.status == Status::Unknown && self.seen.ends_with(NOT_LOOKED_UP)
    }

    fn new(status: Status, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status, seen: seen.into(), remedy: Some(remedy.into()) }
    }

    fn pass(seen: impl Into<String>) -> Self {
        Self { status: Status::Pass, seen: seen.into(), remedy: None }
    }

    fn warn(seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Status::Warn, seen, remedy)
    }

    fn fail(seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Status::Fail, seen, remedy)
    }

    fn unknown(seen: impl Into<String>) -> Self {
        Self { status: Status::Unknown, seen: seen.into(), remedy: None }
    }

    fn na(seen: impl Into<String>) -> Self {
        Self { status: Status::Na, seen: seen.into(), remedy: None }
    }
}

/// Formats a share in percent, rounded down, so that it never looks better than it is.
fn percent(count: u64, of: u64) -> String {
    let tenths = u128::from(count) * 1000 / u128::from(of.max(1));
    format!("{}.{}%", tenths / 10, tenths % 10)
}

/// Returns whether `count` of `of` is at least `hundredths` percent.
fn reaches(count: u64, of: u64, hundredths: u64) -> bool {
    u128::from(count) * 100 >= u128::from(of) * u128::from(hundredths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_listed_once_under_its_name() {
        let names: Vec<_> = ItemId::ALL.iter().map(|id| serde_json::to_value(id).unwrap()).collect();
        assert_eq!((names[4].as_str(), names[7].as_str()), (Some("dmarc_reports"), Some("reverse_dns")));
        assert!(ItemId::ALL.iter().all(|id| ItemId::ALL.iter().filter(|other| *other == id).count() == 1));
    }

    #[test]
    fn shares_are_rounded_down() {
        assert_eq!(
            (percent(999, 1000), percent(1999, 2000), percent(0, 0)),
            ("99.9%".into(), "99.9%".into(), "0.0%".into())
        );
        assert!(reaches(99, 100, 99) && !reaches(989, 1000, 99) && reaches(0, 0, 99));
    }
}
