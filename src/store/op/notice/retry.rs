//! Retries of mails. While an address accepts none, the changes for it are collected in one mail: after an outage, the
//! recipient gets one mail and not one for each attempt.

use std::time::Duration;

use super::{mark, timer};
use crate::base::id::NoticeId;
use crate::store::error::StoreError;
use crate::store::read::Read as _;
use crate::store::row::Row as _;
use crate::store::row::alert::NoticeStatus;
use crate::store::row::notice::{ITEMS_MAX, NoticeAddressRow, NoticeContent, NoticeItem, NoticeRow};
use crate::store::tables::Tables;

/// Age of a change that is not sent any more: the time that its own mail would be retried for. Otherwise later changes
/// would keep an old one waiting.
const CHANGE_AGE_MAX: Duration = Duration::from_secs((24 * 60 + 1 + 5 + 15 + 60) * 60);

/// Adds the changes of the address's retried mail to `row`, which was not accepted either, and makes this the retried
/// mail. Changes that are too old have failed.
pub(super) fn merge(tables: &mut Tables<'_>, id: NoticeId, row: &mut NoticeRow) -> Result<(), StoreError> {
    let now = tables.now();
    let NoticeContent::Alerts { to, items } = &mut row.content else { return Ok(()) };
    let key = to.match_key().into_bytes();
    let mut address: NoticeAddressRow = tables.sound_row(&key)?.unwrap_or_default();
    let other = match address.retried.filter(|other| *other != id) {
        Some(other) => tables.sound_row::<NoticeRow>(other.as_bytes())?.map(|row| (other, row)),
        None => None,
    };
    // A mail that is due may be on its way.
    if let Some((other, NoticeRow { content: NoticeContent::Alerts { items: more, .. }, due, .. })) = other
        && due > now
        && items.len() + more.len() <= ITEMS_MAX
    {
        tables.disarm(timer(due, other));
        tables.remove(NoticeRow::TABLE, other.as_bytes());
        for item in more {
            mark(tables, item, other, |notice| notice.notice = id)?;
            items.push(item);
        }
        items.sort_by_key(|item| item.at);
    }
    // The mail's own changes end with its attempts. Older changes came from another mail, and fail once they are too
    // old.
    let is_over = |item: &NoticeItem| item.at < row.created_at && now.since(item.at) > CHANGE_AGE_MAX;
    for item in items.extract_if(.., |item| is_over(item)) {
        mark(tables, item, id, |notice| notice.status = NoticeStatus::Failed)?;
    }
    address.gathering = address.gathering.filter(|open| *open != id);
    address.retried = Some(id);
    tables.put(&key, &address);
    Ok(())
}
