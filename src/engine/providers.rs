//! The answers of receiving providers to an account: counts from the hourly rows, and the most frequent answers from
//! the newest events.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use super::Engine;
use super::events::{EventFilter, Log, Place};
use crate::base::id::{AccountId, MessageId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::machine::provider;
use crate::machine::reputation::Level;
use crate::store::error::StoreError;
use crate::store::op::outcomes::{OTHER, hour_of, scan, start_of};
use crate::store::op::sweep::oldest_kept;
use crate::store::read::{Order, Read, sound};
use crate::store::row::message::TransferRow;
use crate::store::row::outcomes::OutcomeCounts;
use crate::store::schema;

const DAY_HOURS: u32 = 24;
/// Maximum number of newest bounces, and of newest deferrals, that are grouped for one provider.
const EVENTS_OF_PROVIDER: usize = 200;
/// Events that are read at once.
const EVENTS_PAGE: usize = 1_000;
/// Maximum number of newest bounces, and of newest deferrals, that are searched for those of quiet providers. Most of
/// them belong to busy providers, and only their messages are read: about 5 microseconds each.
const EVENTS_READ: usize = 20_000;
/// Maximum number of answers shown for a provider.
const ANSWERS_MAX: usize = 5;

/// Answers of all providers in a range of UTC days.
#[derive(Clone, Debug)]
pub struct Providers {
    /// Start of the first day.
    pub from: Timestamp,
    /// Start of the last day.
    pub to: Timestamp,
    /// One entry for each provider that answered, most answers first.
    pub providers: Vec<Provider>,
}

/// The answers of one provider.
#[derive(Clone, Debug, Default)]
pub struct Provider {
    /// Name in the provider rules, or [`OTHER`].
    pub name: String,
    /// The outcomes.
    pub counts: OutcomeCounts,
    /// Answers, most frequent first.
    pub answers: Vec<FrequentAnswer>,
}

/// An answer that a provider gave repeatedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrequentAnswer {
    /// The code.
    pub code: Option<u16>,
    /// The enhanced code.
    pub enhanced: Option<String>,
    /// The newest answer, as received.
    pub response: Option<String>,
    /// The category.
    pub category: Option<String>,
    /// Number of times that the provider gave the answer.
    pub count: u64,
    /// The message that got the newest answer.
    pub message: MessageId,
}

impl Provider {
    /// Returns the number of messages that the provider accepted or permanently refused.
    pub const fn answered(&self) -> u64 {
        self.counts.delivered + self.counts.bounced()
    }

    /// Returns the level.
    pub fn level(&self) -> Level {
        provider::level(self.counts.bounced_block, self.answered())
    }
}

impl Engine {
    /// Returns the answers of all providers in the `days` UTC days that end today.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn providers(&self, account: AccountId, days: u32) -> Result<Providers, StoreError> {
        let time = self.clock.time();
        let today = hour_of(time.now) / DAY_HOURS;
        let first = today.saturating_sub(days.saturating_sub(1));
        let (from, to) = (first * DAY_HOURS, (today + 1) * DAY_HOURS);
        self.off_thread(account, move |store| {
            let snapshot = store.snapshot()?;
            let mut providers = counts(&snapshot, account, from, to)?;
            let oldest = oldest_kept(&snapshot, time.expiry)?.max(Ulid::new(start_of(from), [0; 10]));
            for kind in [EventType::Bounced, EventType::Deferred] {
                let wanted = wanted(&providers, kind);
                Answers::read(&snapshot, account, kind, oldest, wanted)?.add_to(&mut providers);
            }
            let mut providers: Vec<_> = providers.into_values().collect();
            for provider in &mut providers {
                provider.answers.sort_by_key(|answer| std::cmp::Reverse((answer.count, answer.message)));
                provider.answers.truncate(ANSWERS_MAX);
            }
            providers.sort_by_key(|provider| std::cmp::Reverse(provider.answered() + provider.counts.deferred));
            Ok(Providers { from: start_of(from), to: start_of(today * DAY_HOURS), providers })
        })
        .await
    }

    /// Returns the level of each provider over the last 24 hours.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn provider_levels(&self, account: AccountId) -> Result<Vec<(String, Level)>, StoreError> {
        let end = hour_of(self.clock.now()).saturating_add(1);
        let providers = counts(&self.store.snapshot()?, account, end.saturating_sub(DAY_HOURS), end)?;
        Ok(providers.into_iter().map(|(name, provider)| (name, provider.level())).collect())
    }
}

/// Returns the outcomes of the hours `from..to` by provider. Messages without a server, such as those to nonexistent
/// domains, count for [`OTHER`].
fn counts(read: &impl Read, account: AccountId, from: u32, to: u32) -> Result<BTreeMap<String, Provider>, StoreError> {
    let mut providers: BTreeMap<String, Provider> = BTreeMap::new();
    scan(read, account, from, to, &mut |row| {
        let name = if row.provider.is_empty() { OTHER } else { row.provider };
        match providers.get_mut(name) {
            Some(provider) => provider.counts.add(&row.counts),
            None => {
                let provider = Provider { name: name.to_owned(), counts: row.counts, answers: Vec::new() };
                providers.insert(name.to_owned(), provider);
            }
        }
    })?;
    providers.retain(|_, provider| provider.answered() + provider.counts.deferred + provider.counts.complained > 0);
    Ok(providers)
}

/// Returns the number of answers to read for each provider.
fn wanted(providers: &BTreeMap<String, Provider>, kind: EventType) -> HashMap<String, usize> {
    let wanted = |(name, provider): (&String, &Provider)| {
        let all = if kind == EventType::Bounced { provider.counts.bounced() } else { provider.counts.deferred };
        let all = usize::try_from(all).unwrap_or(usize::MAX);
        (all > 0).then(|| (name.clone(), all.min(EVENTS_OF_PROVIDER)))
    };
    providers.iter().filter_map(wanted).collect()
}

/// The members of an event by which answers are grouped.
#[derive(Deserialize)]
struct EventFacts {
    smtp_code: Option<u16>,
    smtp_enhanced_code: Option<String>,
    smtp_response: Option<String>,
    bounce: Option<BounceFacts>,
}

#[derive(Deserialize)]
struct BounceFacts {
    category: String,
}

/// Key by which equal answers are grouped.
type AnswerKey = (Option<u16>, Option<String>, Option<String>, String);

/// The newest answers of one type of event.
#[derive(Default)]
struct Answers {
    /// Events that are still to be read, by provider.
    wanted: HashMap<String, usize>,
    groups: HashMap<(String, AnswerKey), FrequentAnswer>,
    /// Providers of the messages read so far: a message is often deferred many times.
    providers: HashMap<MessageId, String>,
}

impl Answers {
    /// Reads the newest events of a type that are not older than `oldest`, until each provider has as many as wanted.
    fn read(
        read: &impl Read,
        account: AccountId,
        kind: EventType,
        oldest: Ulid,
        wanted: HashMap<String, usize>,
    ) -> Result<Self, StoreError> {
        let mut log = Log { read, account, from: oldest, before: None, order: Order::Descending, count: EVENTS_PAGE };
        let mut answers = Self { wanted, ..Self::default() };
        for _ in 0..EVENTS_READ / EVENTS_PAGE {
            let places = log.places(EventFilter { kind: Some(kind), ..EventFilter::default() })?;
            for place in &places {
                if answers.wanted.is_empty() {
                    return Ok(answers);
                }
                answers.add(&log, place)?;
            }
            match places.last() {
                Some(last) if places.len() == EVENTS_PAGE => log.before = Some(last.event.0),
                _ => break,
            }
        }
        Ok(answers)
    }

    fn add<R: Read>(&mut self, log: &Log<'_, R>, place: &Place) -> Result<(), StoreError> {
        let provider = match self.providers.get(&place.message) {
            Some(provider) => provider.clone(),
            None => {
                let transfer = log.read.row::<TransferRow>(&schema::message(log.account, place.message));
                let provider = sound(transfer)?.flatten().and_then(|transfer| transfer.provider);
                let provider = provider.unwrap_or_else(|| OTHER.to_owned());
                self.providers.insert(place.message, provider.clone());
                provider
            }
        };
        let Some(wanted) = self.wanted.get_mut(&provider) else { return Ok(()) };
        *wanted -= 1;
        if *wanted == 0 {
            self.wanted.remove(&provider);
        }
        let Some(bytes) = log.bytes(place)? else { return Ok(()) };
        let Ok(facts) = serde_json::from_slice::<EventFacts>(&bytes) else { return Ok(()) };
        let category = facts.bounce.map(|bounce| bounce.category);
        if facts.smtp_code.is_none() && category.is_none() {
            return Ok(());
        }
        let words = facts.smtp_response.as_deref().map(common_words).unwrap_or_default();
        let key = (facts.smtp_code, facts.smtp_enhanced_code.clone(), category.clone(), words);
        let newest = FrequentAnswer {
            code: facts.smtp_code,
            enhanced: facts.smtp_enhanced_code,
            response: facts.smtp_response,
            category,
            count: 0,
            message: place.message,
        };
        self.groups.entry((provider, key)).or_insert(newest).count += 1;
        Ok(())
    }

    fn add_to(self, providers: &mut BTreeMap<String, Provider>) {
        for ((name, _), answer) in self.groups {
            if let Some(provider) = providers.get_mut(&name) {
                provider.answers.push(answer);
            }
        }
    }
}

/// Returns an answer without the parts that differ between messages: identifiers, addresses and times.
fn common_words(response: &str) -> String {
    let is_common = |word: &&str| !word.contains(|c: char| c.is_ascii_digit() || c == '@');
    response.split_whitespace().filter(is_common).collect::<Vec<_>>().join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_differ_only_in_identifiers_are_grouped() {
        let one = common_words("550-5.7.1 [192.0.2.1] Message blocked\r\n550 5.7.1 gsmtp a1b2 <bob@example.com>");
        assert_eq!(one, "message blocked gsmtp");
        assert_eq!(one, common_words("550-5.7.1 [192.0.2.77] Message  blocked\r\n550 5.7.1 gsmtp ff03"));
    }
}
