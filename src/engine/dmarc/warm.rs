//! Reads the sums of all domains after a start and once a day, so that the first view of a page finds them in memory.

use std::sync::Arc;

use super::figures::Range;
use crate::base::id::{AccountId, DomainId, Ulid};
use crate::engine::Engine;
use crate::engine::blocking::OPERATOR;
use crate::machine::dmarc_advice;
use crate::store::error::StoreError;
use crate::store::op::dmarc::{day_of, scan_days, start_of};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::domain::DomainRow;
use crate::store::schema::Table;

/// Days of the ranges that are read: those that the panel's page and the advice show.
const RANGES: [u32; 4] = [400, 90, dmarc_advice::DAYS, 7];
/// Maximum number of domains that are searched for reports.
const DOMAINS_MAX: usize = 20_000;

impl Engine {
    /// Reads the sums at the start and after each day, when all ranges move on by a day, as long as the future is
    /// polled.
    pub(in crate::engine) async fn watch_dmarc_sums(self: &Arc<Self>) {
        loop {
            self.warm_dmarc_sums().await;
            let next = start_of(day_of(self.clock.now()).saturating_add(1));
            while self.clock.now() < next {
                self.clock.sleep_until(next).await;
            }
        }
    }

    /// Reads the sums of one domain after the other, on the low-priority thread, until they fill half of their memory.
    pub(in crate::engine) async fn warm_dmarc_sums(self: &Arc<Self>) {
        if let Err(error) = self.read_dmarc_sums().await {
            warn(&error);
        }
    }

    async fn read_dmarc_sums(self: &Arc<Self>) -> Result<(), StoreError> {
        let engine = Arc::clone(self);
        let ids = move || {
            let found = domains_with_reports(&engine.store.snapshot()?)?;
            Ok::<_, StoreError>(found.into_iter().map(|(account, domain, _)| (account, domain)).collect::<Vec<_>>())
        };
        for (account, domain) in self.blocking(OPERATOR, ids).await?? {
            if self.dmarc_sums.is_half_full() {
                break;
            }
            let engine = Arc::clone(self);
            // If the account's jobs fill its part of the queue, the domain's page reads the sums.
            let read = self.list_work.run(account, move || engine.read_sums_of((account, domain))).await;
            if let Ok(Err(error)) = read {
                warn(&error);
            }
        }
        Ok(())
    }

    fn read_sums_of(&self, of: (AccountId, DomainId)) -> Result<(), StoreError> {
        let today = day_of(self.clock.now());
        let snapshot = self.store.snapshot()?;
        for range in RANGES.map(|days| Range::of_last(today, days)) {
            let days = scan_days(&snapshot, of, range.half_open())?;
            self.dmarc_sums.stretches(&snapshot, of, range, &days)?;
        }
        self.keep_dmarc_sums(today);
        Ok(())
    }
}

fn warn(error: &StoreError) {
    tracing::warn!(%error, "could not read DMARC sums in advance; the first view of their page reads them");
}

/// Returns the domains with reports, account by account.
///
/// # Errors
/// Fails if the store fails.
pub(in crate::engine) fn domains_with_reports(
    read: &impl Read,
) -> Result<Vec<(AccountId, DomainId, DomainRow)>, StoreError> {
    let keys = read.sound_keys(Table::Domains, &[], &after_prefix(&[]), Order::Ascending, DOMAINS_MAX)?;
    let mut domains = Vec::new();
    for key in keys {
        let Some((account, domain)) = key.split_first_chunk::<16>() else { continue };
        let Ok(domain) = <[u8; 16]>::try_from(domain) else { continue };
        let has_reports =
            !read.sound_keys(Table::DmarcDays, &key, &after_prefix(&key), Order::Ascending, 1)?.is_empty();
        if let (true, Some(row)) = (has_reports, read.sound_row::<DomainRow>(&key)?) {
            domains.push((AccountId(Ulid(*account)), DomainId(Ulid(domain)), row));
        }
    }
    Ok(domains)
}
