//! The scenarios: a server is set up, its queue is filled while it is stopped, then it is started again and measured.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bucket::Bucket;
use crate::client::Connection;
use crate::dns::NameServer;
use crate::fill::{Fate, fill};
use crate::latency;
use crate::measure::{Gauge, load_average};
use crate::server::Server;
use crate::sink::Sink;
use crate::{Options, Outcome, timers};

/// Interval between reads of counters, all of them in memory or `/proc`.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Interval between checks for waiting messages, once the sink has everything.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Time without a new message at the sink after which the run has failed.
const STALL_DEADLINE: Duration = Duration::from_secs(180);
/// Delay before mail to the healthy site is timed, so that mail to the dead site is in flight and blocked.
const SETTLE: Duration = Duration::from_secs(5);
const HEALTHY: &str = "customer@healthy.test";
/// Address of the servers of `dead.test`.
const DEAD_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A server with one delivered message, and its receiver and name server.
struct World {
    server: Server,
    sink: Sink,
    /// Answers until it is dropped.
    _names: NameServer,
    /// The delivered message.
    pattern: String,
}

impl World {
    async fn new(options: &Options, text: &str) -> Outcome<Self> {
        Self::replicated(options, text, "").await
    }

    /// Creates a world with this section of the configuration.
    async fn replicated(options: &Options, text: &str, section: &str) -> Outcome<Self> {
        let (names, sink) = (NameServer::start()?, Sink::start(options.smtp_sink.as_deref())?);
        let server = Server::start(options, &names, sink.port(), false, section).await?;
        let pattern = server.post(HEALTHY, text).await?;
        latency::delivered(&server, &pattern).await?;
        Ok(Self { server, sink, _names: names, pattern })
    }

    /// Stops the server, queues `count` messages for `recipient(n)`, and starts it again.
    async fn restart_with(
        &mut self,
        count: usize,
        recipient: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> Outcome<()> {
        self.server.stop()?;
        fill(&self.server.data_dir(), &self.pattern, count, Fate::Queued, recipient).await?;
        self.server.resume().await
    }

    /// Starts the server on its directory. Returns the times until it is ready, until it has accepted a message, and
    /// until one was delivered.
    async fn started(&mut self) -> Outcome<Value> {
        let already = self.sink.taken();
        let begun = Instant::now();
        self.server.resume().await?;
        let ready = begun.elapsed();
        let at_ready = self.gauge()?.resident_kb()?;
        self.server.post(HEALTHY, "On its way.\n").await?;
        let first_202 = begun.elapsed();
        let first_delivery = self.taken(already + 1).await? - begun;
        let millis = |time: Duration| round(time.as_secs_f64() * 1e3);
        Ok(json!({
            "ready_ms": millis(ready),
            "first_202_ms": millis(first_202),
            "first_delivery_ms": millis(first_delivery),
            "ready_rss_mib": mib(at_ready),
        }))
    }

    fn gauge(&self) -> Outcome<Gauge> {
        Gauge::new(self.server.pid(), &self.server.data_dir())
    }

    /// Waits until the sink has `wanted` messages. Returns the time of the last one.
    async fn taken(&self, wanted: u64) -> Outcome<Instant> {
        let (mut last, mut moved) = (self.sink.taken(), Instant::now());
        while last < wanted {
            if moved.elapsed() > STALL_DEADLINE {
                return Err(format!("{} messages did not arrive\n{}", wanted - last, self.server.log()).into());
            }
            tokio::time::sleep(LOOK_EVERY).await;
            if self.sink.taken() != last {
                (last, moved) = (self.sink.taken(), Instant::now());
            }
        }
        Ok(moved)
    }

    /// Waits until every outcome is recorded.
    async fn settled(&self) -> Outcome<()> {
        let mut connection = Connection::open(self.server.http).await?;
        while self.server.has_waiting(&mut connection).await? {
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    }
}

/// Measures rate and CPU time of delivery alone.
pub(crate) async fn drain(options: &Options) -> Outcome<Value> {
    let text = "The parcel with your order left us this morning.\n".repeat(options.kilobytes * 1024 / 49);
    let mut world = World::new(options, &text).await?;
    let (already, sites) = (world.sink.taken(), options.sites);
    world.restart_with(options.messages, move |n| format!("customer{n}@r{}.test", n % sites)).await?;
    let gauge = world.gauge()?;
    // Deliveries before the first reading are not counted.
    let before = gauge.read()?;
    let (early, begun) = (world.sink.taken(), Instant::now());
    let end = world.taken(already + options.messages as u64).await?;
    world.settled().await?;
    let usage = before.until(&gauge.read()?);
    let messages = (options.messages as u64 + already).saturating_sub(early).max(1) as f64;
    Ok(json!({
        "row": "drain",
        "messages": options.messages,
        "sites": options.sites,
        "delivered_per_second": round(messages / (end - begun).as_secs_f64()),
        "cpu_ms_per_message": round(usage.server_seconds * 1e3 / messages),
        "bench_cpu_ms_per_message": round(usage.client_seconds * 1e3 / messages),
        "measured_messages": messages,
        "extra_at_sink": world.sink.taken() - already - options.messages as u64,
        "peak_rss_mib": mib(gauge.peak_kb()?),
        "load_average": load_average(),
    }))
}

/// Measures memory with a long queue, and the time until mail is accepted and delivered after a clean stop and after
/// kill -9.
pub(crate) async fn queued(options: &Options) -> Outcome<Value> {
    let text = incompressible(options.queued_kilobytes * 1024);
    let mut world = World::new(options, &text).await?;
    let sites = options.sites;
    let idle = world.gauge()?.resident_kb()?;
    world.server.stop()?;
    let recipient = move |n: usize| format!("customer{n}@r{}.test", n % sites);
    fill(&world.server.data_dir(), &world.pattern, options.queued, Fate::Queued, recipient).await?;
    let stored = stored_bytes(&world.server.data_dir())?;
    let clean = world.started().await?;
    tokio::time::sleep(Duration::from_secs(options.watch_seconds)).await;
    let gauge = world.gauge()?;
    let (rss, peak) = (gauge.resident_kb()?, gauge.peak_kb()?);
    world.server.kill()?;
    let killed = world.started().await?;
    Ok(json!({
        "row": "queued",
        "messages": options.queued,
        "sites": options.sites,
        "stored_mib": mib(stored / 1024),
        "clean": clean,
        "killed": killed,
        "idle_rss_mib": mib(idle),
        "rss_mib": mib(rss),
        "peak_rss_mib": mib(peak),
        "load_average": load_average(),
    }))
}

/// Measures the time until a standby, which follows a log with a long queue, accepts mail after the loss of the active
/// machine, and until it delivers: it sends after one lease.
pub(crate) async fn takeover(options: &Options) -> Outcome<Value> {
    let bucket = Bucket::start(Duration::ZERO)?;
    let section = bucket.section("async");
    let mut world = World::replicated(options, &incompressible(options.queued_kilobytes * 1024), &section).await?;
    let _silent = TcpListener::bind((DEAD_ADDRESS, world.sink.port()))?;
    let sites = options.sites;
    world.restart_with(options.queued, move |n| format!("customer{n}@r{}.dead.test", n % sites)).await?;
    let begun = Instant::now();
    let mut standby = world.server.standby().await?;
    let built = begun.elapsed();
    world.server.kill()?;
    let (already, begun) = (world.sink.taken(), Instant::now());
    standby.promote()?;
    let promoted = begun.elapsed();
    standby.post(HEALTHY, "On its way.\n").await?;
    let first_202 = begun.elapsed();
    world.server = standby;
    let first_delivery = world.taken(already + 1).await? - begun;
    Ok(json!({
        "row": "takeover",
        "messages": options.queued,
        "standby_built_seconds": round(built.as_secs_f64()),
        "promoted_seconds": round(promoted.as_secs_f64()),
        "first_202_seconds": round(first_202.as_secs_f64()),
        "first_delivery_seconds": round(first_delivery.as_secs_f64()),
        "rss_mib": mib(world.gauge()?.resident_kb()?),
        "load_average": load_average(),
    }))
}

/// Returns text that hardly compresses.
fn incompressible(bytes: usize) -> String {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut letters = "On its way.\n".to_owned();
    while letters.len() < bytes {
        // Knuth's MMIX generator: its high bits do not compress.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        letters.push(char::from(b'0' + (state >> 58) as u8));
        if letters.len().is_multiple_of(70) {
            letters.push('\n');
        }
    }
    letters
}

/// Returns the size of the files below a directory.
fn stored_bytes(directory: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        bytes += if facts.is_dir() { stored_bytes(&entry.path())? } else { facts.len() };
    }
    Ok(bytes)
}

/// Measures memory and time that timers cost before they are due.
pub(crate) async fn timers(options: &Options) -> Outcome<Value> {
    let mut world = World::new(options, "On its way.\n").await?;
    world.server.stop()?;
    let before = world.started().await?;
    world.server.stop()?;
    timers::arm(&world.server.data_dir(), options.timers).await?;
    let with = world.started().await?;
    tokio::time::sleep(Duration::from_secs(options.watch_seconds)).await;
    let gauge = world.gauge()?;
    let (rss, peak) = (gauge.resident_kb()?, gauge.peak_kb()?);
    world.server.kill()?;
    Ok(json!({
        "row": "timers",
        "timers": options.timers,
        "without": before,
        "with": with,
        "killed": world.started().await?,
        "rss_mib": mib(rss),
        "peak_rss_mib": mib(peak),
        "load_average": load_average(),
    }))
}

/// Measures how much a silent site slows mail to another.
pub(crate) async fn dead(options: &Options) -> Outcome<Value> {
    let mut world = World::new(options, "On its way.\n").await?;
    // The kernel accepts connections until its queue is full, and then none.
    let _silent = TcpListener::bind((DEAD_ADDRESS, world.sink.port()))?;
    let before = latency::sampled(&world.server, HEALTHY, options.samples).await?;
    let sites = options.dead_sites;
    world.restart_with(options.dead, move |n| format!("customer{n}@r{}.dead.test", n % sites)).await?;
    tokio::time::sleep(SETTLE).await;
    let gauge = world.gauge()?;
    let reading = gauge.read()?;
    let begun = Instant::now();
    let during = latency::sampled(&world.server, HEALTHY, options.samples).await?;
    let usage = reading.until(&gauge.read()?);
    Ok(json!({
        "row": "dead",
        "dead_messages": options.dead,
        "dead_sites": options.dead_sites,
        "before_p50_ms": round(latency::millis_at(&before, 0.50)),
        "before_p99_ms": round(latency::millis_at(&before, 0.99)),
        "during_p50_ms": round(latency::millis_at(&during, 0.50)),
        "during_p99_ms": round(latency::millis_at(&during, 0.99)),
        "server_cpu_share": round(usage.server_seconds / begun.elapsed().as_secs_f64()),
        "peak_rss_mib": mib(gauge.peak_kb()?),
        "load_average": load_average(),
    }))
}

fn mib(kilobytes: u64) -> f64 {
    round(kilobytes as f64 / 1024.0)
}

/// Rounds to three decimals, because more would be noise.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
