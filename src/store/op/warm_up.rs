//! Counting the messages that a relay in warm-up has delivered, so that its daily cap holds across restarts.
//!
//! Committed separately from the outcome of the message. A crash between the two loses at most the counts of messages
//! in flight, which are retried and counted then.

use serde::{Deserialize, Serialize};

use super::{Infallible, Op};
use crate::store::error::OpError;
use crate::store::read::Read;
use crate::store::row::warm_up::WarmUpRow;
use crate::store::schema;
use crate::store::tables::Tables;

/// Counts one message that a site accepted.
#[derive(Debug, Serialize, Deserialize)]
pub struct CountHandedOver {
    /// The relay's name.
    pub relay: String,
    /// The site's name.
    pub site: String,
    /// Days since 1970-01-01 UTC.
    pub day: u32,
}

impl Op for CountHandedOver {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        let key = schema::warm_up(&self.relay, &self.site);
        let before = tables.row::<WarmUpRow>(&key)?.filter(|row| row.day >= self.day);
        let row = before.map_or(WarmUpRow { day: self.day, messages: 1 }, |row| WarmUpRow {
            messages: row.messages.saturating_add(1),
            ..row
        });
        tables.put(&key, &row);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::TestStore;

    #[test]
    fn each_day_is_counted_separately_by_relay_and_site() {
        let test = TestStore::new();
        for (relay, site, day) in [("a", "s", 1), ("a", "s", 1), ("a", "t", 1), ("b", "s", 1), ("a", "s", 2)] {
            test.done(CountHandedOver { relay: relay.to_owned(), site: site.to_owned(), day });
        }
        let count = |relay, site| test.row::<WarmUpRow>(&schema::warm_up(relay, site));
        assert_eq!(count("a", "s"), WarmUpRow { day: 2, messages: 1 });
        assert_eq!(count("a", "t"), WarmUpRow { day: 1, messages: 1 });
        assert_eq!(count("b", "s"), WarmUpRow { day: 1, messages: 1 });
        test.done(CountHandedOver { relay: "b".to_owned(), site: "s".to_owned(), day: 1 });
        assert_eq!(count("b", "s").messages, 2);
    }
}
