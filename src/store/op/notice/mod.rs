//! Notices of alerts: creating them for their recipients, and recording the result of each attempt.
//!
//! Changes for one address within 10 seconds share one mail, and an address gets at most 30 mails an hour; further
//! changes are collected for the next one. Mails that were not accepted are merged ([`retry`]). A webhook request
//! reports one change. A failed notice raises no alert.

mod retry;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Infallible, Op};
use crate::base::id::{AccountId, AlertId, NoticeId};
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::machine::{delivery, notice};
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::row::alert::{AlertNotice, AlertRow, Channel, NOTICES_MAX, NoticeStatus, PendingNotice};
use crate::store::row::notice::{ITEMS_MAX, NoticeAddressRow, NoticeContent, NoticeItem, NoticeRow};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Maximum distance of the next mail to an address, by the limit of an hour.
const DUES_AHEAD_MAX: Duration = Duration::from_secs(3600);

/// One change of an alert, with its recipients.
#[derive(Debug, Serialize, Deserialize)]
pub struct AlertChangeNotice {
    /// The change, as in the alert's row.
    pub announcement: PendingNotice,
    /// The addresses that get a mail.
    pub addresses: Vec<Address>,
    /// Body of the webhook request, if there is a webhook.
    pub webhook: Option<Vec<u8>>,
}

/// Creates the notices of an alert's changes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Announce {
    /// The timer that was served; it names the account and the alert.
    pub timer: Timer,
    /// The changes.
    pub tellings: Vec<AlertChangeNotice>,
}

impl Op for Announce {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(self.timer);
        let (account, alert) = (self.timer.account, AlertId(self.timer.id));
        let key = schema::alert(account, alert);
        let Some(mut row) = tables.sound_row::<AlertRow>(&key)? else { return Ok(()) };
        for telling in &self.tellings {
            let PendingNotice { kind, at } = telling.announcement;
            // An earlier timer may have announced the change.
            let Some(place) = row.announcements.iter().position(|known| *known == telling.announcement) else {
                continue;
            };
            row.announcements.remove(place);
            let item = NoticeItem { account, alert, kind, at };
            for address in &telling.addresses {
                let notice = add_to_mail(tables, address, item)?;
                note(&mut row, notice, item, Channel::Email);
            }
            if let Some(body) = &telling.webhook {
                let notice = add_webhook(tables, item, body);
                note(&mut row, notice, item, Channel::Webhook);
            }
        }
        tables.put(&key, &row);
        Ok(())
    }
}

/// Adds a notice to the record of its alert.
fn note(row: &mut AlertRow, notice: NoticeId, item: NoticeItem, channel: Channel) {
    if row.notices.len() >= NOTICES_MAX {
        row.notices.remove(0);
    }
    let NoticeItem { at, kind, .. } = item;
    row.notices.push(AlertNotice { notice, at, kind, channel, status: NoticeStatus::Pending, relay: None });
}

fn timer(due: Timestamp, id: NoticeId) -> Timer {
    Timer::new(due, TimerKind::Notice, AccountId::default(), id.0)
}

/// Adds a change to the open mail for the address, or starts a new mail.
fn add_to_mail(tables: &mut Tables<'_>, to: &Address, item: NoticeItem) -> Result<NoticeId, StoreError> {
    let key = to.match_key().into_bytes();
    let mut address: NoticeAddressRow = tables.sound_row(&key)?.unwrap_or_default();
    if let Some(id) = address.gathering
        && let Some(mut row) = tables.sound_row::<NoticeRow>(id.as_bytes())?
        && row.attempts == 0
        && let NoticeContent::Alerts { items, .. } = &mut row.content
        && items.len() < ITEMS_MAX
    {
        items.push(item);
        tables.put(id.as_bytes(), &row);
        return Ok(id);
    }
    // Times recorded by a clock that was ahead must not delay a mail until the clock catches up.
    let now = tables.now();
    address.dues.retain(|due| *due <= now + DUES_AHEAD_MAX);
    let due = notice::first_attempt(item.at.min(now), &address.dues).max(now);
    let content = NoticeContent::Alerts { to: to.clone(), items: vec![item] };
    let id = add(tables, content, due);
    address.gathering = Some(id);
    add_due(&mut address, due);
    tables.put(&key, &address);
    Ok(id)
}

/// Adds the time of a mail to the latest ones of its address.
fn add_due(address: &mut NoticeAddressRow, due: Timestamp) {
    address.dues.push(due);
    address.dues.sort_unstable();
    let surplus = address.dues.len().saturating_sub(notice::HOURLY_MAX);
    address.dues.drain(..surplus);
}

fn add_webhook(tables: &mut Tables<'_>, item: NoticeItem, body: &[u8]) -> NoticeId {
    let now = tables.now();
    add(tables, NoticeContent::Webhook { item, body: body.to_vec(), delivery: delivery::State::new(now) }, now)
}

/// Adds a notice with its first attempt at `due`.
pub(super) fn add(tables: &mut Tables<'_>, content: NoticeContent, due: Timestamp) -> NoticeId {
    let id: NoticeId = tables.next_id();
    tables.put(id.as_bytes(), &NoticeRow { content, created_at: tables.now(), attempts: 0, due });
    tables.arm(timer(due, id));
    id
}

/// Result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoticeEnd {
    /// The notice was accepted; a mail by this relay.
    Sent(Option<String>),
    /// The notice was not accepted.
    NotTaken {
        /// End of the attempt, from which the next delay counts.
        at: Timestamp,
    },
    /// The notice must not be sent any more, for example an invitation of a removed user.
    Dropped,
}

/// Records the result of an attempt at a notice.
#[derive(Debug, Serialize, Deserialize)]
pub struct SettleNotice {
    /// The notice.
    pub notice: NoticeId,
    /// The timer that was served.
    pub due: Timestamp,
    /// Result of the attempt.
    pub end: NoticeEnd,
    /// Number of changes that the attempt reported. Later changes go into another notice.
    pub items: usize,
}

impl Op for SettleNotice {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(timer(self.due, self.notice));
        let key = *self.notice.as_bytes();
        let Some(mut row) = tables.sound_row::<NoticeRow>(&key)?.filter(|row| row.due == self.due) else {
            return Ok(());
        };
        let relay = match &self.end {
            NoticeEnd::NotTaken { at } => match next_attempt(&mut row, *at, tables.now()) {
                Some(due) => {
                    row.due = due;
                    retry::merge(tables, self.notice, &mut row)?;
                    tables.put(&key, &row);
                    tables.arm(timer(due, self.notice));
                    return Ok(());
                }
                None => None,
            },
            NoticeEnd::Sent(relay) => relay.clone(),
            NoticeEnd::Dropped => None,
        };
        let status = match self.end {
            NoticeEnd::Sent(_) => NoticeStatus::Sent,
            NoticeEnd::NotTaken { .. } | NoticeEnd::Dropped => NoticeStatus::Failed,
        };
        tables.remove(Table::Notices, &key);
        let ended = self.items.min(row.content.items().len());
        for item in &row.content.items()[..ended] {
            mark(tables, *item, self.notice, |notice| {
                notice.status = status;
                notice.relay.clone_from(&relay);
            })?;
        }
        if let NoticeContent::Alerts { to, items } = &row.content {
            self.close(tables, to, row.attempts > 0, &items[ended..])?;
        }
        Ok(())
    }
}

impl SettleNotice {
    /// Closes the open mail. Changes that came too late for it go into the next one.
    fn close(
        &self,
        tables: &mut Tables<'_>,
        to: &Address,
        is_retried: bool,
        late: &[NoticeItem],
    ) -> Result<(), StoreError> {
        let key = to.match_key().into_bytes();
        let mut row: NoticeAddressRow = tables.sound_row(&key)?.unwrap_or_default();
        row.gathering = row.gathering.filter(|open| *open != self.notice);
        row.retried = row.retried.filter(|retried| *retried != self.notice);
        if is_retried && matches!(self.end, NoticeEnd::Sent(_)) {
            add_due(&mut row, tables.now());
        }
        tables.put(&key, &row);
        for item in late {
            let next = add_to_mail(tables, to, *item)?;
            mark(tables, *item, self.notice, |notice| notice.notice = next)?;
        }
        Ok(())
    }
}

/// Returns the time of the next attempt after a failed one; `None` if the notice has failed.
fn next_attempt(row: &mut NoticeRow, ended_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    row.attempts = row.attempts.saturating_add(1);
    match &mut row.content {
        NoticeContent::Webhook { delivery, .. } => {
            let next = delivery.step(delivery::Input::AttemptFailed { ended_at }, now);
            *delivery = next.state;
            delivery.due(Timestamp::ZERO)
        }
        // An expired link is not sent.
        NoticeContent::Invitation(invitation) => {
            notice::next_attempt(row.attempts, ended_at).filter(|due| *due < invitation.expires_at)
        }
        NoticeContent::Alerts { .. } => notice::next_attempt(row.attempts, ended_at),
    }
}

/// Changes the entry of a notice in the record of an alert, if both still exist.
fn mark(
    tables: &mut Tables<'_>,
    item: NoticeItem,
    notice: NoticeId,
    change: impl FnOnce(&mut AlertNotice),
) -> Result<(), StoreError> {
    let key = schema::alert(item.account, item.alert);
    let Some(mut row) = tables.sound_row::<AlertRow>(&key)? else { return Ok(()) };
    let is_it = |known: &&mut AlertNotice| known.notice == notice && known.kind == item.kind && known.at == item.at;
    if let Some(entry) = row.notices.iter_mut().find(is_it) {
        change(entry);
        tables.put(&key, &row);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
