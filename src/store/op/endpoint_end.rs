//! Deleting a webhook endpoint (contract 5). Its row is removed immediately, so that it gets no new deliveries. A timer
//! ends its outstanding ones as failed, one slice at a time.

use serde::{Deserialize, Serialize};

use super::endpoint::EndpointRefusal;
use super::{Infallible, Op, alert};
use crate::base::id::{AccountId, DeliveryId, EndpointId, Ulid};
use crate::base::time::Timestamp;
use crate::domain::alert::Condition;
use crate::machine::delivery::Input;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::delivery::DeliveryRow;
use crate::store::row::endpoint::EndpointRow;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Number of deliveries that one operation ends.
const SLICE: usize = 256;

/// Deletes an endpoint.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeleteEndpoint {
    /// The account.
    pub account: AccountId,
    /// The endpoint.
    pub endpoint: EndpointId,
}

impl Op for DeleteEndpoint {
    /// The deleted endpoint.
    type Reply = EndpointRow;
    type Refusal = EndpointRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<EndpointRow, OpError<EndpointRefusal>> {
        let key = schema::endpoint(self.account, self.endpoint);
        let row = tables.row::<EndpointRow>(&key)?.ok_or(OpError::Refused(EndpointRefusal::NotFound))?;
        tables.remove(Table::Endpoints, &key);
        tables.remove(Table::Outstanding, &key);
        alert::gone(tables, self.account, Condition::WebhookDisabled, &self.endpoint.to_string())?;
        tables.arm(Timer::new(tables.now(), TimerKind::EndpointEnd, self.account, self.endpoint.0));
        Ok(row)
    }
}

/// Ends a slice of the deliveries of a deleted endpoint.
#[derive(Debug, Serialize, Deserialize)]
pub struct EndDeliveries {
    /// The account.
    pub account: AccountId,
    /// The deleted endpoint.
    pub endpoint: EndpointId,
    /// The timer that was served.
    pub due: Timestamp,
}

impl Op for EndDeliveries {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(Timer::new(self.due, TimerKind::EndpointEnd, self.account, self.endpoint.0));
        let prefix = schema::endpoint(self.account, self.endpoint);
        let end = after_prefix(&prefix);
        let keys = tables.sound_keys(Table::DeliveriesByEndpoint, &prefix, &end, Order::Ascending, SLICE)?;
        for key in &keys {
            // The endpoint's deliveries can't be listed any more, and the next slice begins at the end of this one.
            tables.remove(Table::DeliveriesByEndpoint, key);
            if let Some(id) = key.last_chunk::<16>() {
                self.end(tables, DeliveryId(Ulid(*id)))?;
            }
        }
        if keys.len() == SLICE {
            tables.arm(Timer::new(tables.now(), TimerKind::EndpointEnd, self.account, self.endpoint.0));
        }
        Ok(())
    }
}

impl EndDeliveries {
    fn end(&self, tables: &mut Tables<'_>, id: DeliveryId) -> Result<(), StoreError> {
        let key = schema::delivery(self.account, id);
        let Some(mut row) = tables.sound_row::<DeliveryRow>(&key)? else { return Ok(()) };
        tables.remove(Table::Redelivered, &schema::redelivered(self.account, self.endpoint, row.event));
        let Some(due) = row.state.due(Timestamp::ZERO) else { return Ok(()) };
        tables.disarm(Timer::new(due, TimerKind::Delivery, self.account, id.0));
        tables.remove(Table::Parked, &schema::parked(self.account, self.endpoint, due, id));
        row.state = row.state.step(Input::EndpointDeleted, tables.now()).state;
        tables.put(&key, &row);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::delivery::Stage;
    use crate::store::op::endpoint::UpdateEndpoint;
    use crate::store::testing::TestStore;

    #[test]
    fn a_deleted_endpoint_gets_no_new_deliveries_and_its_outstanding_ones_fail_in_slices() {
        let test = TestStore::new();
        let sender = test.sender();
        let account = sender.account;
        let endpoint = test.endpoint(account, None);
        for _ in 0..SLICE {
            sender.accept("b@example.net");
        }
        let held =
            UpdateEndpoint { account, endpoint, url: None, events: None, description: None, enabled: Some(false) };
        test.done(held);
        sender.accept("b@example.net");
        assert_eq!(test.count(Table::Parked, &[]), 1);

        test.done(DeleteEndpoint { account, endpoint });
        sender.accept("b@example.net");
        assert_eq!(test.count(Table::Deliveries, &[]), SLICE + 1);
        for left in [1, 0] {
            let [timer] = test.timers(TimerKind::EndpointEnd)[..] else { panic!("one timer for the rest") };
            test.done(EndDeliveries { account, endpoint, due: timer.due });
            assert_eq!((test.timers(TimerKind::Delivery).len(), test.count(Table::Parked, &[])), (0, left));
            assert_eq!(test.count(Table::DeliveriesByEndpoint, &[]), left);
        }
        assert!(test.timers(TimerKind::EndpointEnd).is_empty());
        for key in test.keys(Table::Deliveries, &[]) {
            assert_eq!(test.row::<DeliveryRow>(&key).state.stage, Stage::Failed);
        }
        assert!(matches!(
            test.commit(DeleteEndpoint { account, endpoint }),
            Err(OpError::Refused(EndpointRefusal::NotFound))
        ));
    }
}
