//! Cost of the API's request handling: each step before the engine does its work, and a page of a long event log.
//!
//! `cargo bench --bench door -- [filter]` measures CPU time instead of wall time, so that a busy machine changes
//! little. There are two goals. Authentication, rate limit, routing and validation of a 2 KB message take less than 60
//! microseconds together, and 50 events out of a million take less than 2 milliseconds. The goals are not asserted,
//! because a figure depends on its machine.

mod cpu;
mod log;
mod world;

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use hyper::Method;
use postrider::domain::event::EventType;
use postrider::domain::submission::{Submission, SubmissionLimits};
use postrider::engine::events::EventFilter;
use postrider::engine::listing::PageRequest;
use postrider::engine::rates::RequestLimits;
use postrider::http::api;
use postrider::http::json;
use postrider::http::router::Router;
use postrider::http::state::Api;

use cpu::CpuTime;
use world::World;

/// Number of events in the log.
const EVENTS: u64 = 1_000_000;
const PAGE: usize = 50;
/// Interval between requests of one key, so that 600 a minute are never exceeded.
const BETWEEN: Duration = Duration::from_millis(101);
/// Rate limit that never refuses requests at this interval.
const REQUESTS: RequestLimits = RequestLimits { key: 600, account: 600 };

/// Measures the work before the engine for `POST /v1/messages`.
fn door(criterion: &mut Criterion<CpuTime>) {
    let world = World::new();
    let router: Router<Api> = Router::new(api::routes()).expect("the route table is valid");
    let body = world::message();
    let limits = SubmissionLimits::at(world.engine.clock.now(), Duration::from_secs(48 * 3600));
    let (method, path) = (Method::POST, "/v1/messages");
    let route = |router: &Router<Api>| assert!(router.knows(black_box(&method), black_box(path)));
    let authenticate = || world.engine.authenticate(black_box(&world.key)).expect("the store works").expect("known");
    let mut at = Duration::ZERO;
    let mut admit = || {
        at += BETWEEN;
        world.engine.rates.admit(world.account, world.key_id, REQUESTS, at).expect("600 a minute are not exceeded")
    };
    let validate = || {
        let object = json::parse_object(black_box(body.as_bytes())).expect("JSON");
        let hash = json::canonical_hash(&object);
        (hash, Submission::lift(object, limits).expect("valid"))
    };

    let mut group = criterion.benchmark_group("door");
    group.bench_function("authentication", |bench| bench.iter(authenticate));
    group.bench_function("request rate", |bench| bench.iter(&mut admit));
    group.bench_function("routing", |bench| bench.iter(|| route(&router)));
    group.bench_function("validation of 2 KB", |bench| bench.iter(validate));
    group.bench_function("all of it", |bench| {
        bench.iter(|| {
            route(&router);
            let caller = authenticate();
            let view = admit();
            (caller, view, validate())
        });
    });
    group.finish();
}

/// Measures a page of 50 out of a million, with different positions and filters.
fn events(criterion: &mut Criterion<CpuTime>) {
    let world = World::new();
    let log = world.fill(EVENTS);
    let list = |filter: EventFilter, before| {
        let page = PageRequest { before, limit: PAGE };
        world.engine.events(world.account, filter, page).expect("the store works").rows.len()
    };
    let of = |kind| EventFilter { kind, ..EventFilter::default() };
    let message = EventFilter { message: Some(log.message), ..EventFilter::default() };
    let cases = [
        ("first page", of(None), None, PAGE),
        ("a page in the middle", of(None), Some(log.middle), PAGE),
        ("the last page", of(None), Some(log.early), PAGE),
        ("of one message", message, None, log::EVENTS_OF_MESSAGE),
        ("of one message and a type", EventFilter { kind: Some(EventType::Queued), ..message }, None, 1),
        ("of a common type", of(Some(EventType::Delivered)), None, PAGE),
        ("of a type of one in 100,000", of(Some(EventType::Complained)), None, 10),
        ("of a type without events", of(Some(EventType::Canceled)), None, 0),
    ];
    let mut group = criterion.benchmark_group("50 events of 1,000,000");
    for (name, filter, before, found) in cases {
        assert_eq!(list(filter, before), found, "{name}");
        group.bench_function(name, |bench| bench.iter(|| list(black_box(filter), black_box(before))));
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime).sample_size(30);
    targets = door, events
}
criterion_main!(benches);
