//! Mail written in bulk: copies of one message that the server has accepted, each to a different recipient. It is
//! written through the store's public interface while no server runs.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use postrider::base::id::{AccountId, MessageId, Ulid};
use postrider::domain::account::Account;
use postrider::domain::address::Address;
use postrider::domain::event::AttemptFacts;
use postrider::store::Store;
use postrider::store::content::Place;
use postrider::store::op::accept::Accept;
use postrider::store::op::message_index::IndexMessages;
use postrider::store::op::settle_transfer::{SettleTransfer, TransferEnd};
use postrider::store::read::{Order, Read as _};
use postrider::store::row::message::{MessageRow, TransferRow};
use postrider::store::schema::{self, Table};
use postrider::store::timer::{Timer, TimerKind};
use tokio::task::JoinSet;

use crate::{Outcome, bulk, note};

/// Messages per operation: as many as share a commit well.
const AT_ONCE: usize = 2048;

/// Interval, in messages, at which the index is maintained, as on a running server.
const INDEX_EVERY: usize = 1024;

/// Maximum number of timers searched for index timers.
const LOOK: usize = 4 * AT_ONCE;

/// State of the copies.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each benchmark that includes this wants one of them")]
pub(crate) enum Fate {
    /// The copies are due.
    Queued,
    /// The copies were accepted at the first attempt.
    Delivered,
}

/// The message to copy.
struct Pattern {
    store: Store,
    account: AccountId,
    row: MessageRow,
    signed: Vec<u8>,
    /// Key at which the next search for index timers starts.
    looked_until: Mutex<Vec<u8>>,
}

/// Writes `count` copies of the message `id`, which was delivered from this directory; copy `n` is to `recipient(n)`.
pub(crate) async fn fill(
    directory: &Path,
    id: &str,
    count: usize,
    fate: Fate,
    recipient: impl Fn(usize) -> String + Send + Sync + 'static,
) -> Outcome<()> {
    let begun = Instant::now();
    let pattern = Arc::new(Pattern::read(directory, id)?);
    let (next, recipient) = (Arc::new(AtomicUsize::new(0)), Arc::new(recipient));
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE.min(count) {
        let (pattern, next, recipient) = (Arc::clone(&pattern), Arc::clone(&next), Arc::clone(&recipient));
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                let id = pattern.queue(&recipient(number)).await?;
                if let Fate::Delivered = fate {
                    pattern.deliver(id).await?;
                }
                if number % INDEX_EVERY == 0 {
                    pattern.index().await?;
                }
            }
        });
    }
    while let Some(finished) = tasks.join_next().await {
        let done: Outcome<()> = finished?;
        done?;
    }
    bulk::close(&pattern.store, directory)?;
    note(&format!("{count} messages written in {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

impl Pattern {
    fn read(directory: &Path, id: &str) -> Outcome<Self> {
        let store = bulk::open(directory)?;
        let message: MessageId = id.parse().map_err(|_| format!("{id} is not a message identifier"))?;
        let snapshot = store.snapshot()?;
        let (key, _) = snapshot.rows::<Account>(&[], 1)?.pop().ok_or("there is no account")?;
        let account = AccountId(Ulid(key.try_into().map_err(|_| "the key of an account is its identifier")?));
        let row: MessageRow = snapshot.row(&schema::message(account, message))?.ok_or("the message is gone")?;
        let signed = store.content().read(row.place, message).map_err(|fault| format!("its body: {fault:?}"))?;
        drop(snapshot);
        Ok(Self { store, account, row, signed, looked_until: Mutex::default() })
    }

    async fn queue(&self, recipient: &str) -> Outcome<MessageId> {
        let id = self.store.reserve_message_id(bulk::now());
        let to: Address = recipient.parse().map_err(|_| format!("{recipient} is not an address"))?;
        let message = MessageRow { to, ..self.row.clone() };
        let body = self.store.content().seal(message.place.bucket, id, self.signed.clone());
        let account = self.account;
        let accept = move |place: Place| Accept {
            account,
            key_stream: None,
            id,
            message: MessageRow { place, ..message },
            answer: Vec::new(),
            idempotency: None,
            stored_bytes_max: 0,
        };
        let accepted = self.store.commit_with_body(self.store.announce(), body, accept).await;
        accepted.map(|_| id).map_err(|stop| format!("{recipient}: {stop:?}").into())
    }

    /// Serves the index timers after those that were searched before.
    async fn index(&self) -> Outcome<()> {
        let from = self.looked_until.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let keys = self.store.snapshot()?.keys(Table::Timers, &from, &[u8::MAX; 32], Order::Ascending, LOOK)?;
        if let Some(last) = keys.get(LOOK - AT_ONCE) {
            self.looked_until.lock().unwrap_or_else(PoisonError::into_inner).clone_from(last);
        }
        let timers = keys.iter().filter_map(|key| Timer::decode(key));
        for timer in timers.filter(|timer| timer.kind == TimerKind::MessageIndex) {
            self.store.commit(IndexMessages { timer }).await.map_err(|stop| format!("the index: {stop:?}"))?;
        }
        Ok(())
    }

    async fn deliver(&self, message: MessageId) -> Outcome<()> {
        let key = schema::message(self.account, message);
        let queued: TransferRow = self.store.snapshot()?.row(&key)?.ok_or("an accepted message is gone")?;
        let facts = AttemptFacts {
            smtp_code: Some(250),
            smtp_response: Some("250 2.0.0 Ok: queued as 4F2A91".to_owned()),
            mx_host: Some("mx1.recipient.test".to_owned()),
            mx_ip: Some("192.0.2.25".to_owned()),
            ..AttemptFacts::default()
        };
        let settle = SettleTransfer {
            account: self.account,
            message,
            due: queued.due.ok_or("an accepted message is not due")?,
            end: TransferEnd::Delivered,
            facts,
            provider: None,
            random: [0; 4],
            transcript: None,
            others: Vec::new(),
        };
        self.store.commit(settle).await.map(drop).map_err(|stop| format!("{message}: {stop:?}").into())
    }
}
