//! Timers written in bulk, due in the coming month, to measure the cost of timers that are not due.

use std::path::Path;
use std::time::{Duration, Instant};

use postrider::base::id::{AccountId, Ulid};
use postrider::base::time::Timestamp;
use postrider::store::error::OpError;
use postrider::store::op::{Infallible, Op};
use postrider::store::tables::Tables;
use postrider::store::timer::{Timer, TimerKind};
use serde::{Deserialize, Serialize};

use crate::{Outcome, bulk, note};

/// Timers per operation.
const AT_ONCE: u64 = 10_000;
/// Later than the timers that a server keeps in memory.
const NOT_BEFORE: Duration = Duration::from_secs(3600);
const MONTH_MS: u64 = 30 * 24 * 3600 * 1000;
/// Coprime to the milliseconds of a month, so that timers are armed in no particular order.
const STRIDE: u64 = 1_000_000_007;

/// Arms `count` timers in the store of a directory.
pub(crate) async fn arm(directory: &Path, count: u64) -> Outcome<()> {
    let begun = Instant::now();
    let store = bulk::open(directory)?;
    let begin = bulk::now() + NOT_BEFORE;
    for from in (0..count).step_by(usize::try_from(AT_ONCE)?) {
        let part = Arm { begin, numbers: (from, count.min(from + AT_ONCE)) };
        store.commit(part).await.map_err(|stop| format!("{from}: {stop:?}"))?;
    }
    bulk::close(&store, directory)?;
    note(&format!("{count} timers armed in {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Operation that arms the timers of these numbers.
#[derive(Serialize, Deserialize)]
struct Arm {
    begin: Timestamp,
    numbers: (u64, u64),
}

impl Op for Arm {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        for number in self.numbers.0..self.numbers.1 {
            let due = self.begin + Duration::from_millis(number.wrapping_mul(STRIDE) % MONTH_MS);
            let mut random = [0; 10];
            random[..8].copy_from_slice(&number.to_be_bytes());
            tables.arm(Timer::new(due, TimerKind::Transfer, AccountId::default(), Ulid::new(self.begin, random)));
        }
        Ok(())
    }
}
