//! A memory cache for the sums of a domain's counts, by ranges of days called stretches. A sum over 400 days adds up a
//! dozen stretches instead of every row. A stretch is valid as long as the rows of its days are unchanged, so a new
//! report need not notify the cache.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use super::figures::Range;
use crate::base::id::{AccountId, DomainId};
use crate::domain::dmarc_source::{DmarcCounts, SourceNetwork};
use crate::domain::hostname::DomainName;
use crate::store::error::StoreError;
use crate::store::op::dmarc::{CountedSource, ReporterDays, scan};
use crate::store::read::Read;
use crate::store::schema::dmarc::ReporterKey;

/// Number of days in a complete stretch.
const STRETCH_DAYS: u32 = 32;
/// Maximum number of cached sums of all domains: some 30 MiB.
const SUMS_MAX: usize = 100_000;
/// Maximum candidates for the most frequent signing domains of a source.
const SIGNERS_MAX: usize = 16;

/// The sums of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceSums {
    pub(super) counts: DmarcCounts,
    pub(super) has_own_signature: bool,
    pub(super) dkim_domains: Vec<(DomainName, u64)>,
    pub(super) spf_domains: Vec<(DomainName, u64)>,
    pub(super) first_day: u32,
    pub(super) last_day: u32,
}

impl SourceSums {
    /// Returns the empty sums of a source that is first listed on this day.
    pub(super) fn since(first_day: u32) -> Self {
        Self { first_day, ..Self::default() }
    }

    /// Adds the sums of later days.
    pub(super) fn merge(&mut self, later: &Self) {
        self.last_day = later.last_day;
        self.counts.merge(&later.counts);
        self.has_own_signature |= later.has_own_signature;
        add_signers(&mut self.dkim_domains, &later.dkim_domains);
        add_signers(&mut self.spf_domains, &later.spf_domains);
    }
}

fn add_signers(known: &mut Vec<(DomainName, u64)>, more: &[(DomainName, u64)]) {
    for (domain, messages) in more {
        if let Some((_, counted)) = known.iter_mut().find(|(name, _)| name == domain) {
            *counted = counted.saturating_add(*messages);
        } else if known.len() < SIGNERS_MAX {
            known.push((domain.clone(), *messages));
        }
    }
}

/// The sums of some days, by reporter.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The sources, in the order of the rows.
    pub(super) sources: Vec<(SourceNetwork, ReporterKey, SourceSums)>,
    /// The days, oldest first.
    pub(super) days: Vec<(u32, ReporterKey, DmarcCounts)>,
}

impl Stretch {
    fn read(read: &impl Read, of: (AccountId, DomainId), range: Range) -> Result<Self, StoreError> {
        let mut stretch = Self::default();
        let (mut sources, mut days) = (HashMap::new(), HashMap::new());
        scan(read, of, range.half_open(), &mut |CountedSource { day, network, reporter, row }| {
            let place = *days.entry((day, reporter)).or_insert_with(|| {
                stretch.days.push((day, reporter, DmarcCounts::ZERO));
                stretch.days.len() - 1
            });
            stretch.days[place].2.merge(&row.counts);
            let place = *sources.entry((network, reporter)).or_insert_with(|| {
                stretch.sources.push((network, reporter, SourceSums::since(day)));
                stretch.sources.len() - 1
            });
            stretch.sources[place].2.merge(&SourceSums {
                counts: row.counts,
                has_own_signature: row.has_own_signature,
                dkim_domains: row.dkim_domains,
                spf_domains: row.spf_domains,
                first_day: day,
                last_day: day,
            });
        })?;
        Ok(stretch)
    }

    fn weight(&self) -> usize {
        self.sources.len() + self.days.len()
    }
}

/// The domain and the days of a stretch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct StretchKey {
    of: (AccountId, DomainId),
    from: u32,
    to: u32,
}

/// A cached stretch.
struct Kept {
    /// Digest of the rows of its days.
    version: u64,
    stretch: Arc<Stretch>,
    /// Value of the use counter at its last use.
    used: u64,
}

#[derive(Default)]
struct Stretches {
    kept: HashMap<StretchKey, Kept>,
    weight: usize,
    uses: u64,
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
        let mut from = range.from;
        while from <= range.to {
            let to = (from / STRETCH_DAYS * STRETCH_DAYS).saturating_add(STRETCH_DAYS - 1).min(range.to);
            let mut digest = DefaultHasher::new();
            let own = days.iter().filter(|day| (from..=to).contains(&day.day));
            let count = own.map(|day| (day.day, day.digest).hash(&mut digest)).count();
            if count > 0 {
                stretches.push(self.stretch(read, StretchKey { of, from, to }, digest.finish())?);
            }
            from = to.saturating_add(1);
        }
        Ok(stretches)
    }

    fn stretch(&self, read: &impl Read, key: StretchKey, version: u64) -> Result<Arc<Stretch>, StoreError> {
        if let Some(stretch) = self.known(key, version) {
            return Ok(stretch);
        }
        let stretch = Arc::new(Stretch::read(read, key.of, Range { from: key.from, to: key.to })?);
        self.keep(key, version, Arc::clone(&stretch));
        Ok(stretch)
    }

    fn known(&self, key: StretchKey, version: u64) -> Option<Arc<Stretch>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.uses += 1;
        let used = all.uses;
        let kept = all.kept.get_mut(&key).filter(|kept| kept.version == version)?;
        kept.used = used;
        Some(Arc::clone(&kept.stretch))
    }

    /// Caches a stretch, and evicts the least recently used ones if the cache is full.
    fn keep(&self, key: StretchKey, version: u64, stretch: Arc<Stretch>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.weight += stretch.weight();
        all.uses += 1;
        let used = all.uses;
        if let Some(before) = all.kept.insert(key, Kept { version, stretch, used }) {
            all.weight -= before.stretch.weight();
        }
        while all.weight > SUMS_MAX {
            let Some(oldest) = all.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key) else { break };
            let removed = all.kept.remove(&oldest).map_or(0, |kept| kept.stretch.weight());
            all.weight -= removed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::account::QuotaLimits;
    use crate::domain::dmarc_record::DmarcPolicy;
    use crate::domain::dmarc_source::Evaluation;
    use crate::domain::sending_domain::DomainStatus;
    use crate::domain::stream::Stream;
    use crate::store::op::dmarc::{RecordDmarcReport, Recorded, SourceCounts, day_of, scan_days, start_of};
    use crate::store::row::dmarc::DmarcReportRow;
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
            assert_eq!(test.done(report(&test, of, &format!("r{days_ago}"), days_ago)), Recorded::Counted);
        }
        let first = stretches(&sums);
        assert!(first.iter().zip(stretches(&sums)).all(|(one, other)| Arc::ptr_eq(one, &other)), "kept");
        assert_eq!(test.done(report(&test, of, "again", 1)), Recorded::Counted);
        let second = stretches(&sums);
        assert!(Arc::ptr_eq(&first[0], &second[0]), "the older days are unchanged");
        assert!(!Arc::ptr_eq(first.last().unwrap(), second.last().unwrap()), "the newer ones are read again");
        assert_eq!(second, stretches(&DmarcSums::default()), "a fresh read gives the same sums");
        let messages: u64 = second.iter().flat_map(|stretch| &stretch.days).map(|day| day.2.messages()).sum();
        assert_eq!(messages, 30);
    }

    #[test]
    fn the_least_recently_used_stretch_is_evicted() {
        let sums = DmarcSums::default();
        let key = |from| StretchKey { of: (AccountId::default(), DomainId::default()), from, to: from };
        let heavy = || {
            let day = (1, ReporterKey::default(), DmarcCounts::ZERO);
            Arc::new(Stretch { sources: Vec::new(), days: vec![day; SUMS_MAX / 3] })
        };
        for from in 0..3 {
            sums.keep(key(from), 1, heavy());
        }
        assert!(sums.known(key(0), 1).is_some() && sums.known(key(0), 2).is_none(), "another version does not match");
        sums.keep(key(3), 1, heavy());
        let known = [0, 1, 2, 3].map(|from| sums.known(key(from), 1).is_some());
        assert_eq!(known, [true, false, true, true]);
        assert!(sums.0.lock().unwrap().weight <= SUMS_MAX);
    }
}
