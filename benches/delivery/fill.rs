//! A queue made in bulk: copies of one message that the server itself has accepted, each to a recipient of its own,
//! through the store's public door and while no server runs on it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use postrider::base::id::{AccountId, MessageId, Ulid};
use postrider::base::time::Timestamp;
use postrider::domain::account::Account;
use postrider::domain::address::Address;
use postrider::engine::ports::Clock as _;
use postrider::net::clock::SystemClock;
use postrider::net::entropy::OsEntropy;
use postrider::store::Store;
use postrider::store::content::Place;
use postrider::store::op::accept::Accept;
use postrider::store::open::Surroundings;
use postrider::store::read::Read as _;
use postrider::store::row::message::MessageRow;
use postrider::store::schema;
use tokio::task::JoinSet;

use crate::{Outcome, note};

/// As many as share a commit well.
const AT_ONCE: usize = 2048;

/// The message that is copied.
struct Pattern {
    store: Store,
    account: AccountId,
    row: MessageRow,
    signed: Vec<u8>,
}

/// Queues `count` copies of the message `id`, which was delivered from this directory; copy `n` goes to `recipient(n)`.
pub(crate) async fn fill(
    directory: &Path,
    id: &str,
    count: usize,
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
                pattern.queue(&recipient(number)).await?;
            }
        });
    }
    while let Some(finished) = tasks.join_next().await {
        let done: Outcome<()> = finished?;
        done?;
    }
    // Blocks until all of it is written; nothing else is going on.
    pattern.store.close();
    // What the file system still holds must not be written, nor waited for, on the server's account.
    rustix::fs::syncfs(std::fs::File::open(directory)?)?;
    note(&format!("{count} messages queued in {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

impl Pattern {
    fn read(directory: &Path, id: &str) -> Outcome<Self> {
        let store = Store::open(directory, Surroundings { now: Arc::new(now), entropy: Arc::new(OsEntropy) })?;
        let message: MessageId = id.parse().map_err(|_| format!("{id} is no identifier of a message"))?;
        let snapshot = store.snapshot()?;
        let (key, _) = snapshot.rows::<Account>(&[], 1)?.pop().ok_or("there is no account")?;
        let account = AccountId(Ulid(key.try_into().map_err(|_| "the key of an account is its identifier")?));
        let row: MessageRow = snapshot.row(&schema::message(account, message))?.ok_or("the message is gone")?;
        let signed = store.content().read(row.place, message).map_err(|fault| format!("its body: {fault:?}"))?;
        drop(snapshot);
        Ok(Self { store, account, row, signed })
    }

    async fn queue(&self, recipient: &str) -> Outcome<()> {
        let id = self.store.reserve_message_id(now());
        let to: Address = recipient.parse().map_err(|_| format!("{recipient} is no address"))?;
        let message = MessageRow { to, ..self.row.clone() };
        let body = self.store.content().seal(message.place.bucket, id, &self.signed);
        let account = self.account;
        let accept = move |place: Place| Accept {
            account,
            key_stream: None,
            id,
            message: MessageRow { place, ..message },
            answer: Vec::new(),
            idempotency: None,
        };
        let accepted = self.store.commit_with_body(self.store.announce(), body, accept).await;
        accepted.map(drop).map_err(|stop| format!("{recipient}: {stop:?}").into())
    }
}

fn now() -> Timestamp {
    SystemClock::new().now()
}
