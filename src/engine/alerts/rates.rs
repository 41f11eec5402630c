//! Check for bounce and complaint rates that rose without a bounce or complaint: with the delivery that makes them
//! meaningful, or because older deliveries left their window. All others are found when they are counted.

use std::sync::Arc;
use std::time::Duration;

use super::checks::DAY;
use crate::base::id::{AccountId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::alert::Condition;
use crate::domain::stream::Stream;
use crate::engine::Engine;
use crate::engine::blocking::OPERATOR;
use crate::machine::reputation::{Measure, Windows};
use crate::store::error::StoreError;
use crate::store::op::alert::{Finding, known_subjects};
use crate::store::op::outcomes::hour_of;
use crate::store::op::reputation::{condition_of, sighting};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::schema::{self, Table};

/// Maximum number of accounts that one check reads.
const ACCOUNTS_MAX: usize = 100_000;
/// The longer window of the rates.
const WEEK: Duration = DAY.saturating_mul(7);

/// Returns the findings of every account that sent mail in the last seven days or has an alert. It reads the counts of
/// all these days, so it runs only every hour.
pub(super) async fn findings(engine: &Arc<Engine>) -> Result<Vec<Finding>, StoreError> {
    let of = Arc::clone(engine);
    engine.blocking(OPERATOR, move || all(&of, of.clock.now())).await?
}

fn all(engine: &Engine, now: Timestamp) -> Result<Vec<Finding>, StoreError> {
    let snapshot = engine.store.snapshot()?;
    let mut findings = Vec::new();
    for key in snapshot.sound_keys(Table::Accounts, &[], &after_prefix(&[]), Order::Ascending, ACCOUNTS_MAX)? {
        let Ok(account) = <[u8; 16]>::try_from(key).map(|id| AccountId(Ulid(id))) else { continue };
        let (from, to) = (hour_of(now - WEEK), hour_of(now).saturating_add(1));
        let (from, to) = (schema::outcomes_of_hour(account, from), schema::outcomes_of_hour(account, to));
        let mut is_judged = !snapshot.sound_keys(Table::Outcomes, &from, &to, Order::Ascending, 1)?.is_empty();
        for measure in Measure::ALL {
            is_judged |= !known_subjects(&snapshot, account, condition_of(measure))?.is_empty();
        }
        if is_judged {
            findings.extend(of_account(engine, account)?);
        }
    }
    Ok(findings)
}

/// Returns one finding for each measure of an account.
fn of_account(engine: &Engine, account: AccountId) -> Result<[Finding; 2], StoreError> {
    let reputation = engine.reputation(account)?;
    Ok(Measure::ALL.map(|measure| {
        let found = Stream::ALL.into_iter().filter_map(|stream| {
            let of = reputation.of(stream);
            let [(_, day), (_, week)] = &of.windows;
            let windows = Windows { day: day.figures(), week: week.figures() };
            sighting(stream, measure, of.levels.of(measure), windows)
        });
        let condition: Condition = condition_of(measure);
        Finding { account, condition, found: found.collect(), unknown: Vec::new() }
    }))
}
