//! The checklist items that depend on the mail itself.

use super::{Judgement, percent, reaches};
use crate::domain::stream::Stream;
use crate::machine::reputation::{DELIVERIES_MIN, Level, Measure, Rate};

/// Minimum number of deliveries for a meaningful share of TLS.
const TLS_DELIVERIES_MIN: u64 = 20;
/// Minimum number of reported messages for a meaningful share of DMARC passes.
const OBSERVED_MIN: u64 = 100;

/// The account's own mail in the DMARC reports of 30 days.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observed {
    /// Number of messages.
    pub messages: u64,
    /// Number of messages that passed.
    pub passed: u64,
}

/// Judges the account's own mail in DMARC reports. `mail` is `None` if reports are not counted.
pub fn dmarc_observed(mail: Option<Observed>) -> Judgement {
    let Some(Observed { messages, passed }) = mail else {
        return Judgement::unknown("This service receives no DMARC reports, because its incoming mail is off.");
    };
    let share = percent(passed, messages);
    let seen = format!("{share} of your {messages} messages in the reports of 30 days passed DMARC.");
    let remedy = "See the DMARC page for the addresses that fail, and whether SPF or DKIM fails there.";
    match messages {
        0..OBSERVED_MIN => Judgement::unknown(format!(
            "Receivers reported {messages} of your messages in 30 days. At least {OBSERVED_MIN} are needed."
        )),
        _ if reaches(passed, messages, 99) => Judgement::pass(seen),
        _ if reaches(passed, messages, 95) => Judgement::warn(seen, remedy),
        _ => Judgement::fail(seen, remedy),
    }
}

/// Marketing messages of seven days.
#[derive(Clone, Copy, Debug)]
pub struct Marketing {
    /// Number of accepted messages.
    pub accepted: u64,
    /// Number of accepted messages without an https `unsubscribe_url`.
    pub without: u64,
}

/// Judges one-click unsubscription. `mail` is `None` for a transactional domain.
pub fn one_click(mail: Option<Marketing>) -> Judgement {
    match mail {
        None => Judgement::na("The domain is transactional."),
        Some(Marketing { accepted: 0, .. }) => {
            Judgement::unknown("No mail yet: this domain sent no marketing in 7 days.")
        }
        Some(Marketing { accepted, without: 0 }) => {
            Judgement::pass(format!("All {accepted} messages of 7 days had an https unsubscribe_url."))
        }
        Some(Marketing { accepted, without }) => Judgement::fail(
            format!("{without} of {accepted} messages of 7 days had no https unsubscribe_url."),
            "Give every marketing message an https unsubscribe_url that answers a POST, or use hosted unsubscription.",
        ),
    }
}

/// Judges the deliveries of seven days; `secured` is the number made over TLS.
pub fn tls(deliveries: u64, secured: u64) -> Judgement {
    let seen = format!("{} of this domain's {deliveries} deliveries of 7 days used TLS.", percent(secured, deliveries));
    match deliveries {
        0 => Judgement::unknown("No mail yet: nothing of this domain was delivered in 7 days."),
        1..TLS_DELIVERIES_MIN => {
            let noun = if deliveries == 1 { "delivery" } else { "deliveries" };
            Judgement::unknown(format!(
                "{deliveries} {noun} of this domain in 7 days; at least {TLS_DELIVERIES_MIN} are needed."
            ))
        }
        _ if reaches(secured, deliveries, 99) => Judgement::pass(seen),
        _ => Judgement::warn(
            seen,
            "Find the receivers without TLS. If it is all of them, a device between this server and the internet \
             removes STARTTLS.",
        ),
    }
}

/// Judges a rate of the stream, with the mail of all domains, by its level in `GET /v1/me`.
pub fn rate(measure: Measure, stream: Stream, level: Level, week: Rate) -> Judgement {
    let Rate { count, of } = week;
    let mail = format!("{} mail of all your domains", stream.as_str());
    if of < DELIVERIES_MIN {
        let noun = if of == 1 { "answer" } else { "answers" };
        let seen = match of {
            0 => format!("No mail yet: the {mail} had no answer in 7 days."),
            _ => format!("Of the {mail}: {of} {noun} in 7 days; at least {DELIVERIES_MIN} are needed."),
        };
        return Judgement::unknown(seen);
    }
    let (what, remedy) = match measure {
        Measure::Bounces => (
            "bounced",
            "Find the source of the bouncing addresses (see the events of type bounced), and stop writing to them.",
        ),
        Measure::Complaints => {
            ("were marked as spam", "Send only to people who opted in, and let them unsubscribe with one click.")
        }
    };
    let seen = format!("Of the {mail}: {count} of {of} messages of 7 days {what}.");
    match level {
        Level::Ok => Judgement::pass(seen),
        Level::Warn => Judgement::warn(seen, remedy),
        Level::Alarm => Judgement::fail(seen, remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::checklist::Status::{Fail, Na, Pass, Unknown, Warn};

    #[test]
    fn dmarc_observed_has_thresholds_at_99_and_95_percent_of_100_messages() {
        for (messages, passed, expected) in
            [(99, 99, Unknown), (100, 99, Pass), (1000, 989, Warn), (100, 95, Warn), (1000, 949, Fail)]
        {
            let mail = Some(Observed { messages, passed });
            assert_eq!(dmarc_observed(mail).status, expected, "{passed} of {messages}");
        }
    }

    #[test]
    fn one_click_passes_only_if_all_marketing_has_it() {
        let judged = |accepted, without| one_click(Some(Marketing { accepted, without })).status;
        assert_eq!(one_click(None).status, Na);
        assert_eq!([judged(0, 0), judged(10, 0), judged(10, 1)], [Unknown, Pass, Fail]);
    }

    #[test]
    fn tls_passes_at_99_percent_of_20_deliveries() {
        for (deliveries, secured, expected) in [(19, 0, Unknown), (20, 20, Pass), (100, 99, Pass), (100, 98, Warn)] {
            assert_eq!(tls(deliveries, secured).status, expected, "{secured} of {deliveries}");
        }
    }

    #[test]
    fn an_item_without_mail_says_why() {
        let rate = rate(Measure::Bounces, Stream::Transactional, Level::Ok, Rate { count: 0, of: 0 });
        let marketing = one_click(Some(Marketing { accepted: 0, without: 0 }));
        for judgement in [tls(0, 0), rate, marketing] {
            assert!(judgement.status == Unknown && judgement.seen.starts_with("No mail yet"), "{}", judgement.seen);
        }
    }

    #[test]
    fn rates_follow_their_levels_from_100_deliveries_on() {
        let judged = |level, of| rate(Measure::Complaints, Stream::Marketing, level, Rate { count: 1, of }).status;
        assert_eq!(
            [judged(Level::Ok, 99), judged(Level::Ok, 100), judged(Level::Warn, 100), judged(Level::Alarm, 100)],
            [Unknown, Pass, Warn, Fail]
        );
        for of in [1, 100] {
            let seen = rate(Measure::Bounces, Stream::Transactional, Level::Ok, Rate { count: 1, of }).seen;
            assert!(seen.contains("transactional mail of all your domains"), "{seen}");
        }
    }
}
