//! A month of mail written in bulk: the rows of acceptance and delivery, copied from one message that the server has
//! accepted. They are written through the store's public interface while no server runs. Then all messages are indexed
//! by the server's own operation.

use std::path::Path;
use std::time::Duration;

use postrider::base::id::{AccountId, AttemptId, DeliveryId, EndpointId, EventId, MessageId, Ulid};
use postrider::base::time::Timestamp;
use postrider::domain::event::{AttemptFacts, Bounce, BounceKind, BounceSource, EventRecord, EventType};
use postrider::machine::transfer::Effect;
use postrider::machine::{delivery, transfer};
use postrider::store::error::OpError;
use postrider::store::op::message_index::IndexMessages;
use postrider::store::op::{Infallible, Op};
use postrider::store::read::Read as _;
use postrider::store::row::delivery::{AttemptRow, DeliveryPayload, DeliveryRow};
use postrider::store::row::event::{EventLogRow, EventOfTypeRow};
use postrider::store::row::message::{MessageRow, TransferRow};
use postrider::store::row::outcomes::OutcomeCounts;
use postrider::store::schema::{self, Table};
use postrider::store::tables::Tables;
use postrider::store::timer::{Timer, TimerKind};
use serde::{Deserialize, Serialize};

use crate::{Outcome, bulk, letters, note};

/// Messages per operation.
const AT_ONCE: u64 = 2000;
const MONTH: Duration = Duration::from_secs(29 * 24 * 3600);
/// One of this many delivered messages is sent to the webhook.
const DELIVERY_EVERY: u64 = 10;

/// Template of the copies.
pub(crate) struct Pattern {
    pub(crate) account: AccountId,
    pub(crate) message: MessageId,
    pub(crate) endpoint: EndpointId,
}

/// Writes `count` messages into the store of a directory.
pub(crate) async fn fill(directory: &Path, pattern: &Pattern, count: u64) -> Outcome<()> {
    let store = bulk::open(directory)?;
    let key = schema::message(pattern.account, pattern.message);
    let row: MessageRow = store.snapshot()?.row(&key)?.ok_or("the pattern is gone")?;
    let (account, endpoint, begin) = (pattern.account, pattern.endpoint, bulk::now() - MONTH);
    for from in (0..count).step_by(usize::try_from(AT_ONCE)?) {
        let part = Fill { account, endpoint, row: row.clone(), begin, from, count };
        store.commit(part).await.map_err(|stop| format!("{from}: {stop:?}"))?;
        if from % (count / 10) == 0 {
            note(&format!("  {from} of {count}"));
        }
    }
    let timer = Timer::new(bulk::now(), TimerKind::MessageIndex, account, Ulid::default());
    for _ in 0..=count / 1024 {
        store.commit(IndexMessages { timer }).await.map_err(|stop| format!("the index: {stop:?}"))?;
    }
    bulk::close(&store, directory)
}

/// Operation that writes the messages `from..from + AT_ONCE`.
#[derive(Serialize, Deserialize)]
struct Fill {
    account: AccountId,
    endpoint: EndpointId,
    row: MessageRow,
    begin: Timestamp,
    from: u64,
    count: u64,
}

/// A message that is being written.
struct Writing {
    number: u64,
    id: MessageId,
    row: MessageRow,
    /// Number of identifiers used in the same millisecond.
    used: u64,
}

impl Writing {
    /// Returns an identifier with the message's own time.
    fn next_id(&mut self) -> Ulid {
        self.used += 1;
        let mut random = [0; 10];
        random[..8].copy_from_slice(&(self.number * 16 + self.used).to_be_bytes());
        Ulid::new(self.row.created_at, random)
    }
}

impl Op for Fill {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        for number in self.from..(self.from + AT_ONCE).min(self.count) {
            let share = MONTH.as_millis() * u128::from(number) / u128::from(self.count);
            let created_at = self.begin + Duration::from_millis(u64::try_from(share).unwrap_or(u64::MAX));
            let to = letters::recipient(number).parse().unwrap_or_else(|_| self.row.to.clone());
            let subject = Some(letters::subject(number));
            // No body is written, so each message is past its content's deadline.
            let row = MessageRow { to, subject, created_at, content_expires_at: created_at, ..self.row.clone() };
            let mut writing = Writing { number, id: MessageId::default(), row, used: 0 };
            writing.id = MessageId(writing.next_id());
            self.write(tables, writing)?;
        }
        Ok(())
    }
}

impl Fill {
    fn write(&self, tables: &mut Tables<'_>, mut writing: Writing) -> Result<(), OpError<Infallible>> {
        let (number, id) = (writing.number, writing.id);
        let fate = letters::fate(number, self.count - number);
        let key = schema::message(self.account, id);
        let (mut state, mut facts) = (transfer::State::default(), AttemptFacts::default());
        self.event(tables, &mut writing, EventType::Queued, &facts)?;
        for (attempt, input) in (1..).zip(fate) {
            let next = state.step(*input);
            state = next.state;
            for effect in next.effects {
                if let Effect::Record(kind) = effect {
                    facts = said(attempt, kind);
                    self.event(tables, &mut writing, kind, &facts)?;
                }
            }
        }
        let waits = state.status().is_waiting();
        let due = tables.now() + Duration::from_secs(1800 + number % 1800);
        if waits {
            tables.arm(Timer::new(due, TimerKind::Transfer, self.account, id.0));
            let waiting = schema::waiting(self.account, &writing.row.to.match_key(), id);
            tables.put_bytes(Table::Waiting, &waiting, Vec::new());
        }
        let transfer = TransferRow {
            state,
            attempts: u32::try_from(fate.len()).unwrap_or_default(),
            due: waits.then_some(due),
            last: facts,
            provider: Some(letters::provider(number).to_owned()),
            ..TransferRow::queued(writing.row.created_at)
        };
        tables.put(&key, &transfer);
        tables.put(&key, &writing.row);
        Ok(())
    }

    fn event(
        &self,
        tables: &mut Tables<'_>,
        writing: &mut Writing,
        kind: EventType,
        facts: &AttemptFacts,
    ) -> Result<(), OpError<Infallible>> {
        let (account, message, id) = (self.account, writing.id, EventId(writing.next_id()));
        let bounce = (kind == EventType::Bounced).then(refused);
        let row = &writing.row;
        let record = EventRecord {
            id,
            kind,
            message_id: message,
            message_id_header: &row.message_id_header(message),
            stream: row.stream,
            from: row.from.as_given(),
            to: row.to.as_given(),
            subject: row.subject.as_deref(),
            metadata: &row.metadata,
            created_at: row.created_at,
            facts,
            next_attempt_at: None,
            bounce: bounce.as_ref(),
            complaint: None,
        };
        let bytes = serde_json::to_vec(&record).unwrap_or_default();
        tables.put_bytes(Table::Timeline, &schema::timeline(account, message, id), bytes);
        tables.put(&schema::event(account, id), &EventLogRow { message, kind });
        tables.put(&schema::event_of_type(account, kind, id), &EventOfTypeRow { message });
        let provider = if kind == EventType::Queued { "" } else { letters::provider(writing.number) };
        let hour = u32::try_from(row.created_at.as_secs() / 3600).unwrap_or_default();
        let key = schema::outcomes(account, hour, row.stream, row.domain, provider);
        let mut counts: OutcomeCounts = tables.row(&key)?.unwrap_or_default();
        counts.count(kind, bounce.as_ref());
        tables.put(&key, &counts);
        if kind == EventType::Delivered && writing.number.is_multiple_of(DELIVERY_EVERY) {
            self.write_delivery(tables, writing, id, kind);
        }
        Ok(())
    }

    /// Writes a webhook's delivery of an event, with its one attempt.
    fn write_delivery(&self, tables: &mut Tables<'_>, writing: &mut Writing, event: EventId, kind: EventType) {
        let (account, endpoint) = (self.account, self.endpoint);
        let (delivery, created_at) = (DeliveryId(writing.next_id()), writing.row.created_at);
        let state = delivery::State { created_at, attempts: 1, stage: delivery::Stage::Delivered };
        let owed = DeliveryPayload::Event { message: writing.id, kind };
        tables.put(&schema::delivery(account, delivery), &DeliveryRow { endpoint, event, owed, state });
        let of_endpoint = schema::delivery_of_endpoint(account, endpoint, delivery);
        tables.put_bytes(Table::DeliveriesByEndpoint, &of_endpoint, Vec::new());
        let attempt = AttemptRow {
            id: AttemptId(writing.next_id()),
            at: created_at,
            status: Some(204),
            error: None,
            duration_ms: 42,
            peer: Some("192.0.2.7:443".to_owned()),
            response_body: None,
        };
        tables.put(&schema::attempt(account, delivery, 1), &attempt);
    }
}

/// Returns the receiver's answer.
fn said(attempt: u32, kind: EventType) -> AttemptFacts {
    let (code, words) = match kind {
        EventType::Bounced => (550, "550 5.1.1 <customer>: no such user here"),
        EventType::Deferred => (451, "451 4.7.1 Greylisted, please try again in 300 seconds"),
        _ => (250, "250 2.0.0 OK 1763720400 a640c23a62f3a-ab7309f1si1 - taken"),
    };
    AttemptFacts {
        attempt: Some(attempt),
        smtp_code: Some(code),
        smtp_enhanced_code: Some(words[4..9].to_owned()),
        smtp_response: Some(words.to_owned()),
        mx_host: Some("mx1.mail.example.net".to_owned()),
        mx_ip: Some("192.0.2.25".to_owned()),
        relay: Some("direct".to_owned()),
        tls: None,
        duration_ms: Some(312),
    }
}

fn refused() -> Bounce {
    Bounce {
        kind: BounceKind::Hard,
        category: "invalid_recipient".to_owned(),
        status: Some("5.1.1".to_owned()),
        source: BounceSource::Smtp,
        rule: "status-5.1.1".to_owned(),
        advice: "The address does not exist; remove it from your list.".to_owned(),
        suppressed: true,
    }
}
