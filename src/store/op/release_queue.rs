//! Releasing the queues of a restored store (contract 8 `queue release`): from then on they are sent as if there had
//! been no hold.

use serde::{Deserialize, Serialize};

use super::{Infallible, Op};
use crate::store::error::OpError;
use crate::store::read::Read;
use crate::store::row::restored::RestoreOrigin;
use crate::store::schema::meta;
use crate::store::tables::Tables;

/// Releases the hold. May be repeated.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReleaseQueue;

impl Op for ReleaseQueue {
    /// The hold that was released.
    type Reply = Option<RestoreOrigin>;
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Option<RestoreOrigin>, OpError<Infallible>> {
        let restored = tables.row::<RestoreOrigin>(meta::RESTORED)?.filter(|row| row.is_on_hold);
        if let Some(restored) = restored {
            tables.put(meta::RESTORED, &RestoreOrigin { is_on_hold: false, ..restored });
        }
        Ok(restored)
    }
}
