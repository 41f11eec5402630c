//! Releasing the queues of a restored store (contract 8 `queue release`): from then on they are sent as if there had
//! been no hold.

use serde::{Deserialize, Serialize};

use super::{Never, Op};
use crate::store::error::OpError;
use crate::store::read::Read;
use crate::store::row::restored::Restored;
use crate::store::schema::meta;
use crate::store::tables::Tables;

/// Releases the hold. May be repeated.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReleaseQueue;

impl Op for ReleaseQueue {
    /// The hold that was released.
    type Reply = Option<Restored>;
    type Refusal = Never;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Option<Restored>, OpError<Never>> {
        let standing = tables.row::<Restored>(meta::RESTORED)?.filter(|restored| restored.stands_still);
        if let Some(restored) = standing {
            tables.put(meta::RESTORED, &Restored { stands_still: false, ..restored });
        }
        Ok(standing)
    }
}
