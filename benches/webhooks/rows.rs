//! The rows: their setup, the measured work, and the figures.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::instance::Instance;
use crate::measure::load_average;
use crate::receiver::Receivers;
use crate::{Options, Outcome, note};

/// Maximum endpoints of one account (contract 5).
const ENDPOINTS: usize = 10;
/// Maximum concurrent requests to one endpoint (contract 5).
const AT_ONCE: usize = 8;
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time without a new arrival after which the rest counts as lost.
const STALL: Duration = Duration::from_secs(30);

/// One instance with its receivers, in a folder that is removed at the end.
struct Ground {
    instance: Instance,
    receivers: Receivers,
    _folder: TempDir,
}

impl Ground {
    fn prepare(options: &Options) -> Outcome<Self> {
        let folder = tempfile::Builder::new().prefix("postrider-webhooks-").tempdir_in(&options.data_root)?;
        let receivers = Receivers::start(folder.path())?;
        let instance = Instance::start(options, folder.path())?;
        Ok(Self { instance, receivers, _folder: folder })
    }

    /// Creates ten disabled endpoints at `path`, each with `each` deliveries of 500 events. Returns the endpoints and
    /// the total.
    async fn owe(&self, path: &str, each: usize) -> Outcome<(Vec<String>, usize)> {
        let events = each.min(500);
        for number in 0..events {
            self.instance.send(number).await?;
        }
        self.instance.settle().await?;
        let mut endpoints = Vec::new();
        for _ in 0..ENDPOINTS {
            let url = format!("{}{path}", self.receivers.url);
            let endpoint = self.instance.endpoint(&self.instance.own(), &url, &["delivered"]).await?;
            self.instance.enable(&endpoint, false).await?;
            endpoints.push(endpoint);
        }
        let mut total = 0;
        while total < each * ENDPOINTS {
            for endpoint in &endpoints {
                total += self.instance.replay(endpoint).await?;
            }
            note(&format!("  {total} deliveries outstanding"));
        }
        self.instance.settle().await?;
        Ok((endpoints, total))
    }

    async fn until_taken(&mut self, wanted: usize) -> Outcome<Instant> {
        let (mut last, mut moved) = (0, Instant::now());
        while last < wanted {
            if moved.elapsed() > STALL {
                return Err(format!("{} deliveries did not arrive", wanted - last).into());
            }
            tokio::time::sleep(LOOK_EVERY).await;
            let taken = self.receivers.seen()?.taken;
            if taken != last {
                (last, moved) = (taken, Instant::now());
            }
        }
        Ok(moved)
    }
}

/// Measures deliveries per second to ten endpoints, and the CPU time of each, without that of the receivers.
pub(crate) async fn throughput(options: &Options) -> Outcome<Value> {
    let mut ground = Ground::prepare(options)?;
    let (endpoints, total) = ground.owe("/take", options.share(5000)).await?;
    let gauge = ground.instance.gauge()?;
    let before = gauge.read()?;
    let start = Instant::now();
    for endpoint in &endpoints {
        ground.instance.enable(endpoint, true).await?;
    }
    let took = ground.until_taken(total).await? - start;
    ground.instance.settle().await?;
    let used = before.until(&gauge.read()?);
    let taken = ground.receivers.seen()?.taken;
    Ok(json!({
        "row": "throughput",
        "endpoints": ENDPOINTS,
        "deliveries": total,
        "extra": taken - total,
        "per_second": (total as f64 / took.as_secs_f64()).round(),
        "cpu_us": (used.server_seconds * 1e6 / total as f64).round(),
        "peak_mb": gauge.peak_kb()? / 1024,
        "load": load_average(),
    }))
}

/// Measures how soon a healthy endpoint receives its event while fifty others use all their permits.
pub(crate) async fn fairness(options: &Options) -> Outcome<Value> {
    const HUNG_ACCOUNTS: usize = 5;
    let mut ground = Ground::prepare(options)?;
    let instance = &ground.instance;
    let healthy = format!("{}/timed", ground.receivers.url);
    instance.endpoint(&instance.own(), &healthy, &["queued"]).await?;
    let mut hung = Vec::new();
    for _ in 0..HUNG_ACCOUNTS {
        let account = instance.account()?;
        for _ in 0..ENDPOINTS {
            let url = format!("{}/hang", ground.receivers.url);
            hung.push((account.key.clone(), instance.endpoint(&account, &url, &["queued"]).await?));
        }
    }
    // Failed tests do not disable an endpoint, so these hang as long as they have deliveries.
    for _ in 0..AT_ONCE * 4 {
        for (key, endpoint) in &hung {
            let account = crate::instance::Account { key: key.clone() };
            instance.ask(&account, Method::POST, &format!("/v1/webhooks/{endpoint}/test"), json!({})).await?;
        }
    }
    let count = options.share(1000);
    let (mut pace, began) = (tokio::time::interval(Duration::from_millis(20)), Instant::now());
    for number in 0..count {
        pace.tick().await;
        instance.send(number).await?;
    }
    let sent_in = began.elapsed();
    ground.until_taken(count).await?;
    let seen = ground.receivers.seen()?;
    let mut ages = seen.ages_ms;
    ages.sort_unstable();
    let at = |share: f64| ages[((ages.len() as f64 * share).ceil() as usize).saturating_sub(1)];
    Ok(json!({
        "row": "fairness",
        "hung_endpoints": hung.len(),
        "hung_requests": seen.hanging,
        "webhooks": ages.len(),
        "messages_per_second": (count as f64 / sent_in.as_secs_f64()).round(),
        "p50_ms": at(0.50),
        "p99_ms": at(0.99),
        "max_ms": at(1.0),
        "load": load_average(),
    }))
}

/// Measures the cost of a million outstanding deliveries, and how soon they resume.
pub(crate) async fn backlog(options: &Options) -> Outcome<Value> {
    let mut ground = Ground::prepare(options)?;
    let idle_kb = ground.instance.gauge()?.resident_kb()?;
    let (endpoints, total) = ground.owe("/hang", options.share(100_000)).await?;
    let filled = ground.instance.gauge()?;
    let (filled_kb, filling_kb) = (filled.resident_kb()?, filled.peak_kb()?);
    for endpoint in &endpoints {
        ground.instance.enable(endpoint, true).await?;
    }
    let before = ground.receivers.seen()?.hanging;
    let ready = ground.instance.crash()?;
    let start = Instant::now();
    while ground.receivers.seen()?.hanging == before {
        if start.elapsed() > STALL {
            return Err("no delivery was found after the restart".into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let found = start.elapsed();
    // All deliveries are still due within the ten seconds of the first attempts.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let gauge = ground.instance.gauge()?;
    Ok(json!({
        "row": "backlog",
        "owed": total,
        "idle_mb": idle_kb / 1024,
        "filled_mb": filled_kb / 1024,
        "filling_peak_mb": filling_kb / 1024,
        "restart_ms": ready.as_millis(),
        "found_after_ms": found.as_millis(),
        "restarted_mb": gauge.resident_kb()? / 1024,
        "restarted_peak_mb": gauge.peak_kb()? / 1024,
        "load": load_average(),
    }))
}
