//! Sums of a domain's counts by stretches of days: the figures of 400 days add up some dozens of them instead of every
//! row. They are kept in memory, and in the store for the time after a start. A stretch is valid as long as the rows of
//! its days are unchanged, so a new report needs no notice to the cache.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use super::figures::Range;
use crate::base::id::{AccountId, DomainId};
use crate::domain::dmarc_source::DmarcCounts;
use crate::domain::hostname::DomainName;
use crate::engine::Engine;
use crate::store::error::StoreError;
use crate::store::op::dmarc::{CountedSource, KeepDmarcSums, ReporterDays, scan};
use crate::store::read::Read;
use crate::store::row::dmarc::{DmarcSourceSums, DmarcSumsRow};
use crate::store::schema::dmarc::dmarc_day;

/// Days of the stretches that are kept in the store, the longest first. A stretch begins at a multiple of its length,
/// so all ranges share them. The days that are left at the ends of a range are stretches of their own, so that a new
/// report outdates the sums of its day alone.
const LENGTHS: [u32; 2] = [32, 4];
/// Sums that are kept in memory over all domains: some 30 MiB.
const SUMS_MAX: usize = 100_000;
/// Sums of one stretch that are kept in the store: some 500 KiB.
const STORED_MAX: usize = 8_000;
/// Stretches that wait for the store at most.
const UNSAVED_MAX: usize = 64;
/// Maximum number of candidates for the most frequent signing domains of a source.
const SIGNERS_MAX: usize = 16;

/// Adds signing domains to the known ones, up to [`SIGNERS_MAX`].
pub(super) fn add_signers(known: &mut Vec<(DomainName, u64)>, more: &[(DomainName, u64)]) {
    for (domain, messages) in more {
        if let Some((_, counted)) = known.iter_mut().find(|(name, _)| name == domain) {
            *counted = counted.saturating_add(*messages);
        } else if known.len() < SIGNERS_MAX {
            known.push((domain.clone(), *messages));
        }
    }
}

/// The sums of some days, by reporter.
pub(super) type Stretch = DmarcSumsRow;

/// Adds up the counts of these days.
fn added_up(read: &impl Read, of: (AccountId, DomainId), range: Range, version: u64) -> Result<Stretch, StoreError> {
    let mut stretch = Stretch { to: range.to, version, sources: Vec::new(), days: Vec::new() };
    let (mut sources, mut days) = (HashMap::new(), HashMap::new());
    scan(read, of, range.half_open(), &mut |CountedSource { day, network, reporter, row }| {
        let place = *days.entry((day, reporter)).or_insert_with(|| {
            stretch.days.push((day, reporter, DmarcCounts::ZERO));
            stretch.days.len() - 1
        });
        stretch.days[place].2.merge(&row.counts);
        match sources.entry((network, reporter)) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(stretch.sources.len());
                stretch.sources.push(DmarcSourceSums {
                    network,
                    reporter,
                    counts: row.counts,
                    has_own_signature: row.has_own_signature,
                    dkim_domains: row.dkim_domains,
                    spf_domains: row.spf_domains,
                    first_day: day,
                    last_day: day,
                });
            }
            std::collections::hash_map::Entry::Occupied(entry) => {
                let sums = &mut stretch.sources[*entry.get()];
                sums.last_day = day;
                sums.counts.merge(&row.counts);
                sums.has_own_signature |= row.has_own_signature;
                add_signers(&mut sums.dkim_domains, &row.dkim_domains);
                add_signers(&mut sums.spf_domains, &row.spf_domains);
            }
        }
    })?;
    stretch.sources.sort_by_key(|sums| sums.network.number());
    Ok(stretch)
}

fn weight(stretch: &Stretch) -> usize {
    stretch.sources.len() + stretch.days.len()
}

/// The domain and the days of a stretch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct StretchKey {
    of: (AccountId, DomainId),
    from: u32,
    to: u32,
}

impl StretchKey {
    /// Returns the longest stretch from `from` to `last` at most.
    fn next(of: (AccountId, DomainId), from: u32, last: u32) -> Self {
        let end = |length: &u32| from.checked_add(length - 1).filter(|_| from.is_multiple_of(*length));
        Self { of, from, to: LENGTHS.iter().filter_map(end).find(|to| *to <= last).unwrap_or(from) }
    }

    /// Returns whether the stretch is one of those that all ranges share.
    fn is_whole(self) -> bool {
        LENGTHS.iter().any(|length| self.from.is_multiple_of(*length) && self.to - self.from + 1 == *length)
    }
}

/// A stretch that is kept.
struct CachedSums {
    stretch: Arc<Stretch>,
    /// Value of the use counter at its last use.
    used: u64,
}

#[derive(Default)]
struct Stretches {
    kept: HashMap<StretchKey, CachedSums>,
    weight: usize,
    uses: u64,
    /// Stretches that the store does not have yet.
    unsaved: Vec<(StretchKey, Arc<Stretch>)>,
}

/// The cached sums of all domains, up to [`SUMS_MAX`].
#[derive(Default)]
pub(in crate::engine) struct DmarcSums(Mutex<Stretches>);

impl DmarcSums {
    /// Returns the stretches of a range, oldest first. `days` are the rows of its days from the same snapshot.
    pub(super) fn stretches(
        &self,
        read: &impl Read,
        of: (AccountId, DomainId),
        range: Range,
        days: &[ReporterDays],
    ) -> Result<Vec<Arc<Stretch>>, StoreError> {
        let mut stretches = Vec::new();
        let (mut from, mut days) = (range.from, days);
        while from <= range.to {
            let key = StretchKey::next(of, from, range.to);
            let (own, later) = days.split_at(days.partition_point(|day| day.day <= key.to));
            if !own.is_empty() {
                let mut digest = DefaultHasher::new();
                own.iter().for_each(|day| (day.day, day.digest).hash(&mut digest));
                stretches.push(self.stretch(read, key, digest.finish())?);
            }
            days = later;
            from = key.to.saturating_add(1);
        }
        Ok(stretches)
    }

    /// Returns whether the kept sums fill half of their memory.
    pub(super) fn is_half_full(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).weight >= SUMS_MAX / 2
    }

    /// Returns the number of kept stretches.
    #[cfg(test)]
    pub(in crate::engine) fn kept(&self) -> usize {
        self.0.lock().unwrap().kept.len()
    }

    fn stretch(&self, read: &impl Read, key: StretchKey, version: u64) -> Result<Arc<Stretch>, StoreError> {
        if let Some(stretch) = self.known(key, version) {
            return Ok(stretch);
        }
        let stored = match key.is_whole() {
            true => read.sound_row::<DmarcSumsRow>(&dmarc_day(key.of.0, key.of.1, key.from))?,
            false => None,
        };
        let stored = stored.filter(|row| (row.to, row.version) == (key.to, version));
        let is_stored = stored.is_some();
        let stretch = match stored {
            Some(row) => row,
            None => added_up(read, key.of, Range { from: key.from, to: key.to }, version)?,
        };
        let stretch = Arc::new(stretch);
        self.keep(key, Arc::clone(&stretch), !is_stored && key.is_whole());
        Ok(stretch)
    }

    fn known(&self, key: StretchKey, version: u64) -> Option<Arc<Stretch>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.uses += 1;
        let used = all.uses;
        let kept = all.kept.get_mut(&key).filter(|kept| kept.stretch.version == version)?;
        kept.used = used;
        Some(Arc::clone(&kept.stretch))
    }

    /// Keeps a stretch in memory. The least recently used stretches are removed to make space for it. With `is_new` the
    /// stretch is also stored later.
    fn keep(&self, key: StretchKey, stretch: Arc<Stretch>, is_new: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let added = weight(&stretch);
        if is_new && added <= STORED_MAX && all.unsaved.len() < UNSAVED_MAX {
            all.unsaved.push((key, Arc::clone(&stretch)));
        }
        all.weight += added;
        all.uses += 1;
        let used = all.uses;
        if let Some(before) = all.kept.insert(key, CachedSums { stretch, used }) {
            all.weight -= weight(&before.stretch);
        }
        while all.weight > SUMS_MAX {
            let Some(oldest) = all.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key) else { break };
            let removed = all.kept.remove(&oldest).map_or(0, |kept| weight(&kept.stretch));
            all.weight -= removed;
        }
    }

    /// Takes the operations that store new stretches. Only days before `today` by two count: reports of later days are
    /// still arriving, so their sums would be stored again and again.
    fn unsaved(&self, today: u32) -> Vec<KeepDmarcSums> {
        let taken = std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).unsaved);
        let settled = taken.into_iter().filter(|(key, _)| key.to.saturating_add(2) < today);
        settled
            .map(|(StretchKey { of: (account, domain), from, .. }, stretch)| KeepDmarcSums {
                account,
                domain,
                from,
                row: Arc::unwrap_or_clone(stretch),
            })
            .collect()
    }
}

impl Engine {
    /// Stores the sums that were added up since the last call, without waiting for it. Should that fail, they are added
    /// up again after the next start.
    pub(super) fn keep_dmarc_sums(&self, today: u32) {
        for op in self.dmarc_sums.unsaved(today) {
            self.store.post(op, |_kept| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::account::QuotaLimits;
    use crate::domain::dmarc_record::DmarcPolicy;
    use crate::domain::dmarc_source::{Evaluation, SourceNetwork};
    use crate::domain::sending_domain::DomainStatus;
    use crate::domain::stream::Stream;
    use crate::store::op::dmarc::{RecordDmarcReport, RecordOutcome, SourceCounts, day_of, scan_days, start_of};
    use crate::store::row::dmarc::DmarcReportRow;
    use crate::store::schema::Table;
    use crate::store::schema::dmarc::ReporterKey;
    use crate::store::testing::TestStore;

    /// Adds a report with two networks for the day `days_ago` days before today.
    fn report(test: &TestStore, of: (AccountId, DomainId), id: &str, days_ago: u32) -> RecordDmarcReport {
        let mut counts = DmarcCounts::default();
        counts.add(Evaluation { disposition: DmarcPolicy::None, dkim: true, spf: false }, 3);
        let network = |number| SourceCounts {
            network: SourceNetwork::V4([192, 0, number]),
            counts,
            has_own_signature: number == 1,
            dkim_domains: vec![("example.com".parse().unwrap(), 3)],
            spf_domains: Vec::new(),
        };
        let begin = start_of(day_of(test.now()) - days_ago);
        let signer: DomainName = "reporter.example".parse().unwrap();
        RecordDmarcReport {
            account: of.0,
            domain: of.1,
            report: DmarcReportRow {
                reporter: "Reporter".to_owned(),
                from_domain: Some(signer.clone()),
                report_id: id.to_owned(),
                policy_domain: "example.com".parse().unwrap(),
                begin,
                end: begin + std::time::Duration::from_secs(86_399),
                messages: 6,
                passed: 6,
                skipped_rows: 0,
                is_authentic: true,
            },
            signer: Some(signer),
            policy: DmarcPolicy::None,
            own: Vec::new(),
            sources: vec![network(1), network(2)],
        }
    }

    #[test]
    fn a_stretch_is_read_again_only_after_a_new_report_for_one_of_its_days() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let of = (account, test.domain(account, "example.com", Stream::Transactional, DomainStatus::Verified));
        let (sums, range) = (DmarcSums::default(), Range::of_last(day_of(test.now()), 100));
        let stretches = |sums: &DmarcSums| {
            let snapshot = test.snapshot();
            let days = scan_days(&snapshot, of, (range.from, range.to + 1)).unwrap();
            sums.stretches(&snapshot, of, range, &days).unwrap()
        };
        for days_ago in [1, 2, 50, 51] {
            assert_eq!(test.done(report(&test, of, &format!("r{days_ago}"), days_ago)), RecordOutcome::Counted);
        }
        let first = stretches(&sums);
        assert!(first.iter().zip(stretches(&sums)).all(|(one, other)| Arc::ptr_eq(one, &other)), "kept");
        assert_eq!(test.done(report(&test, of, "again", 1)), RecordOutcome::Counted);
        let second = stretches(&sums);
        assert!(Arc::ptr_eq(&first[0], &second[0]), "the older days are unchanged");
        assert!(!Arc::ptr_eq(first.last().unwrap(), second.last().unwrap()), "the newer ones are read again");
        assert_eq!(second, stretches(&DmarcSums::default()), "a fresh read gives the same sums");
        let messages: u64 = second.iter().flat_map(|stretch| &stretch.days).map(|day| day.2.messages()).sum();
        assert_eq!(messages, 30);
    }

    #[test]
    fn ranges_share_their_whole_stretches() {
        let lengths = |from: u32, to: u32| {
            let (mut lengths, mut next) = (Vec::new(), from);
            while next <= to {
                let key = StretchKey::next((AccountId::default(), DomainId::default()), next, to);
                let length = key.to - key.from + 1;
                assert!(key.from == next && key.is_whole() == LENGTHS.contains(&length), "{next}");
                lengths.push(length);
                next = key.to + 1;
            }
            lengths
        };
        assert_eq!(lengths(64, 95), [32]);
        assert_eq!(lengths(63, 97), [1, 32, 1, 1]);
        assert_eq!(lengths(65, 140), [1, 1, 1, 4, 4, 4, 4, 4, 4, 4, 32, 4, 4, 4, 1]);
        assert_eq!(lengths(70, 70), [1]);
    }

    #[test]
    fn stored_sums_are_used_after_a_start_until_a_report_of_one_of_their_days() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let of = (account, test.domain(account, "example.com", Stream::Transactional, DomainStatus::Verified));
        let today = day_of(test.now());
        let range = Range::of_last(today, 55);
        for days_ago in 0..55 {
            assert_eq!(test.done(report(&test, of, &format!("r{days_ago}"), days_ago)), RecordOutcome::Counted);
        }
        let after_a_start = || {
            let (snapshot, sums) = (test.snapshot(), DmarcSums::default());
            let days = scan_days(&snapshot, of, range.half_open()).unwrap();
            let stretches = sums.stretches(&snapshot, of, range, &days).unwrap();
            let messages: u64 = stretches.iter().flat_map(|stretch| &stretch.days).map(|day| day.2.messages()).sum();
            (stretches, messages, sums.unsaved(today))
        };
        let (first, messages, unsaved) = after_a_start();
        assert_eq!(messages, 55 * 6);
        assert!(unsaved.len() > 2 && unsaved.iter().all(|op| op.row.to + 2 < today));
        let stored = unsaved.len();
        unsaved.into_iter().for_each(|op| test.done(op));
        assert_eq!(test.count(Table::DmarcSums, &[]), stored);
        let (second, messages, unsaved) = after_a_start();
        assert_eq!((&second, messages, unsaved.len()), (&first, 55 * 6, 0), "all of them are stored");
        assert_eq!(test.done(report(&test, of, "late", 20)), RecordOutcome::Counted);
        let (_, messages, unsaved) = after_a_start();
        assert_eq!((messages, unsaved.len()), (56 * 6, 1), "the stored sums of one stretch are outdated");
    }

    #[test]
    fn the_least_recently_used_stretch_is_removed_first() {
        let sums = DmarcSums::default();
        let key = |from| StretchKey { of: (AccountId::default(), DomainId::default()), from, to: from };
        let heavy = || {
            let day = (1, ReporterKey::default(), DmarcCounts::ZERO);
            Arc::new(Stretch { to: 0, version: 1, sources: Vec::new(), days: vec![day; SUMS_MAX / 3] })
        };
        for from in 0..3 {
            sums.keep(key(from), heavy(), false);
        }
        assert!(sums.known(key(0), 1).is_some() && sums.known(key(0), 2).is_none(), "another version is another");
        sums.keep(key(3), heavy(), false);
        let known = [0, 1, 2, 3].map(|from| sums.known(key(from), 1).is_some());
        assert_eq!(known, [true, false, true, true]);
        assert!(sums.0.lock().unwrap().weight <= SUMS_MAX);
    }
}
