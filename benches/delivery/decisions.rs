//! Decisions of one destination: how many messages it accepts, starts over kept connections, and ends per second. It
//! runs on one core, without store, network or threads.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use postrider::base::id::{AccountId, MessageId, Ulid};
use postrider::base::time::Timestamp;
use postrider::domain::stream::Stream;
use postrider::machine::destination::{
    Destination, Effect, Input, Limits, Moment, Place, QueuedMessage, RequestedLimit, Signal, Slot,
};
use serde_json::{Value, json};

/// Number of queued messages at any time.
const QUEUED: u64 = 100_000;
/// Number of sent messages.
const SENT: u64 = 1_000_000;
/// Number of accounts in rotation.
const ACCOUNTS: u64 = 64;
const LIMITS: Limits = Limits {
    connections: 20,
    messages_per_minute: None,
    connections_per_minute: None,
    is_shared: true,
    may_spill: true,
};
const NOW: Moment = Moment { wall: Timestamp::from_millis(1_700_000_000_000), machine: Duration::from_secs(1) };

fn message(n: u64) -> QueuedMessage {
    let number =
        |n: u64| Ulid::new(NOW.wall, [n.to_be_bytes().as_slice(), &[0; 2]].concat().try_into().unwrap_or_default());
    let place = Place { due: NOW.wall, account: AccountId(number(n % ACCOUNTS)), id: MessageId(number(n)) };
    let stream = if n.is_multiple_of(4) { Stream::Marketing } else { Stream::Transactional };
    QueuedMessage { place, stream, give_up_at: Timestamp::MAX }
}

/// A destination and the messages that it has started.
struct Run {
    destination: Destination,
    started: VecDeque<Slot>,
    inputs: u64,
}

impl Run {
    fn take(&mut self, input: Input) {
        self.inputs += 1;
        let mut effects = Vec::new();
        self.destination.handle(input, NOW, &mut effects);
        let started =
            effects.iter().filter_map(|effect| if let Effect::Start(slot, _) = effect { Some(*slot) } else { None });
        self.started.extend(started);
    }
}

/// Measures all decisions, and the cost of suspending a long queue.
pub(crate) fn measure() -> Value {
    let mut run = Run { destination: Destination::new(&LIMITS), started: VecDeque::new(), inputs: 0 };
    (0..QUEUED).for_each(|n| run.take(Input::Due(message(n))));
    let (begun, inputs) = (Instant::now(), run.inputs);
    for n in QUEUED..QUEUED + SENT {
        run.take(Input::Due(message(n)));
        let Some(slot) = run.started.pop_front() else { continue };
        run.take(Input::Connecting(slot));
        run.take(Input::Keep(slot));
        run.take(Input::Closed(1));
        run.take(Input::Ended(slot, Signal::Took));
    }
    let (time, inputs) = (begun.elapsed(), run.inputs - inputs);
    let begun = Instant::now();
    run.take(Input::Limit(RequestedLimit::Pause(NOW.wall + Duration::from_secs(60)), None));
    let suspended = begun.elapsed();
    json!({
        "row": "decisions",
        "messages_per_second": SENT as f64 / time.as_secs_f64(),
        "inputs_per_second": inputs as f64 / time.as_secs_f64(),
        "queued": run.destination.len(),
        "suspend_us": suspended.as_secs_f64() * 1e6,
    })
}
