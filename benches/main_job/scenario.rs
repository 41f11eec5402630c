//! One row: a fresh server, a warm-up, the measured messages, and the wait until all of them are settled.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::body::MessageBodies;
use crate::bucket::Bucket;
use crate::calibration::{Calibration, Floor};
use crate::client::{Beside, Load, Protocol, Recipients};
use crate::dns::{self, NameServer};
use crate::fill::{Fate, fill};
use crate::measure::{Gauge, load_average};
use crate::row::Row;
use crate::server::Server;
use crate::sink::Sink;
use crate::{Door, Options, Outcome, Replica, Unreachable};

/// Interval between reads of the sink's counter in memory.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Interval between checks for waiting messages, once the sink has everything.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Time without a new message at the sink after which the run has failed.
const STALL_DEADLINE: Duration = Duration::from_secs(180);
/// The counter of checkpoints in the server's metrics.
const CHECKPOINTS: &str = "postrider_store_checkpoint_duration_seconds_count";
/// Gauge of the time by which the bucket is behind the log, in the server's metrics.
const LAG: &str = "postrider_replica_lag_seconds";
/// Interval between reads of the gauge.
const LAG_EVERY: Duration = Duration::from_secs(1);
/// The discard port, where nothing listens: an accept row delivers nothing.
const NO_RECEIVER: u16 = 9;

/// Work that a row measures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Acceptance alone: the recipients' domains can't be resolved.
    Accept,
    /// Acceptance and delivery, until no message waits.
    Deliver,
}

/// One row's parameters.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    pub(crate) work: Work,
    pub(crate) kilobytes: usize,
    pub(crate) clients: usize,
    pub(crate) door: Door,
    /// Recipients per SMTP transaction.
    pub(crate) recipients: usize,
    /// Delivered messages in the store before the row begins.
    pub(crate) stored: usize,
    pub(crate) replica: Replica,
}

impl Point {
    fn tags(&self) -> Vec<String> {
        let work = match self.work {
            Work::Accept => "accept",
            Work::Deliver => "deliver",
        };
        let mut tags = vec![work.to_owned(), format!("{}k", self.kilobytes), self.clients.to_string()];
        tags.push(self.door.as_str().to_owned());
        if self.recipients > 1 {
            tags.push(format!("x{}", self.recipients));
        }
        if self.replica != Replica::Off {
            tags.push(self.replica.as_str().to_owned());
        }
        tags
    }

    pub(crate) fn label(&self) -> String {
        let tags = self.tags().join("/");
        if self.stored == 0 { tags } else { format!("{tags} +{}", self.stored) }
    }

    /// Whether every one of `wanted` (`10k/64/deliver`) is a tag of this row.
    pub(crate) fn has(&self, wanted: &str) -> bool {
        let tags = self.tags();
        wanted.split('/').filter(|tag| !tag.is_empty()).all(|tag| tags.iter().any(|own| own == tag))
    }
}

/// Shared parts of all rows: options, name server, receiver, messages.
pub(crate) struct Bench {
    options: Options,
    names: NameServer,
    sink: Option<Sink>,
    bodies: HashMap<usize, Arc<MessageBodies>>,
}

impl Bench {
    pub(crate) fn prepare(options: &Options, plan: &[Point]) -> Outcome<Self> {
        let delivers = plan.iter().any(|point| point.work == Work::Deliver);
        let sink = if delivers { Some(Sink::start(options.smtp_sink.as_deref())?) } else { None };
        let mut bodies = HashMap::new();
        for point in plan {
            bodies.insert(point.kilobytes, Arc::new(MessageBodies::new(point.kilobytes)?));
        }
        Ok(Self { options: options.clone(), names: NameServer::start()?, sink, bodies })
    }

    /// Returns messages by size in KB.
    pub(crate) fn bodies(&self) -> Vec<(usize, &MessageBodies)> {
        let mut bodies: Vec<_> = self.bodies.iter().map(|(size, bodies)| (*size, bodies.as_ref())).collect();
        bodies.sort_by_key(|(size, _)| *size);
        bodies
    }

    /// Measures one row on a new server.
    pub(crate) async fn run(&self, point: Point) -> Outcome<Row> {
        let port = self.sink.as_ref().map_or(NO_RECEIVER, Sink::port);
        let bucket = match point.replica {
            Replica::Off => None,
            Replica::Async | Replica::Sync => Some(Bucket::start(Duration::from_millis(self.options.bucket_ms))?),
        };
        let section = bucket.as_ref().map(|bucket| bucket.section(point.replica.as_str())).unwrap_or_default();
        let is_secure = point.door != Door::Http;
        let mut server = Server::start(&self.options, &self.names, port, is_secure, &section).await?;
        if point.stored > 0 {
            self.stock(point, &mut server).await?;
        }
        match self.measure(point, &server, bucket.as_ref()).await {
            Ok(row) => Ok(row),
            Err(fault) => Err(format!("{}: {fault}\n{}", point.label(), server.log()).into()),
        }
    }

    /// Fills the store with copies of one small message.
    async fn stock(&self, point: Point, server: &mut Server) -> Outcome<()> {
        let taken = self.taken();
        let id = server.post("customer@r0.test", "The parcel with your order left us this morning.\n").await?;
        self.settled(point, server, taken + 1).await?;
        server.stop()?;
        let recipient = |n: usize| format!("customer{n}@r{}.test", n % 1000);
        fill(&server.data_dir(), &id, point.stored, Fate::Delivered, recipient).await?;
        server.resume().await
    }

    async fn measure(&self, point: Point, server: &Server, bucket: Option<&Bucket>) -> Outcome<Row> {
        let gauge = Gauge::new(server.pid(), &server.data_dir())?;
        let idle_kb = gauge.resident_kb()?;
        let warm_up = self.options.warm_up();
        let count = self.options.messages_at(point.clients);
        let mut taken = self.taken();

        self.load(point, server, 0..warm_up)?.send(None).await?;
        self.settled(point, server, taken + warm_up as u64).await?;
        taken = self.taken();
        let calibrated = Calibration::take(&self.options.data_root)?;

        let syncs = server.counter(&self.options.sync_metric).await;
        let checkpoints = server.counter(CHECKPOINTS).await;
        let requests = bucket.map(Bucket::requests);
        let before = gauge.read()?;
        let load = self.load(point, server, warm_up..warm_up + count)?.send(self.beside()?);
        let (sent, lag) = with_lag(bucket.map(|_| server), load).await;
        let sent = sent?;
        let delivered_at = self.settled(point, server, taken + count as u64).await?;
        let usage = before.until(&gauge.read()?);
        let syncs_after = server.counter(&self.options.sync_metric).await;

        let checkpoints_after = server.counter(CHECKPOINTS).await;

        let after = Calibration::take(&self.options.data_root)?;
        Ok(Row {
            point,
            messages: count,
            accepted_in: sent.took,
            delivered_in: delivered_at.map(|at| at - sent.start),
            // A duplicate message does not fail the measurement, but is reported.
            extra_at_sink: delivered_at.map(|_| self.taken() - taken - count as u64),
            answers: sent.latencies,
            beside: sent.beside,
            usage,
            syncs: syncs.zip(syncs_after).map(|(from, to)| to - from),
            bucket_requests: requests.zip(bucket).map(|(before, bucket)| bucket.requests() - before),
            lag,
            checkpoints: checkpoints.zip(checkpoints_after).map(|(from, to)| to - from),
            signatures: server.signatures,
            idle_kb,
            peak_kb: gauge.peak_kb()?,
            load_average: load_average(),
            unit: calibrated.between(after),
            drift: calibrated.drift(after),
        })
    }

    /// Returns the measurement of the minimum cost of an answer, if it is made between the requests.
    fn beside(&self) -> Outcome<Option<Beside>> {
        if !self.options.beside {
            return Ok(None);
        }
        let mut floor = Floor::in_directory(&self.options.data_root)?;
        Ok(Some(Box::new(move || floor.take())))
    }

    fn load(&self, point: Point, server: &Server, numbers: std::ops::Range<usize>) -> Outcome<Load> {
        let domain = match (point.work, self.options.unreachable) {
            (Work::Deliver, _) => "test",
            (Work::Accept, Unreachable::Servfail) => dns::SERVFAIL,
            (Work::Accept, Unreachable::Silent) => dns::SILENT,
        };
        let tls = || server.tls.clone().ok_or("the server has no TLS");
        let (address, protocol) = match point.door {
            Door::Http => (server.http, Protocol::Http),
            Door::Https => (server.http, Protocol::Https(tls()?)),
            Door::Smtps => (server.smtps.ok_or("the server does not accept SMTP")?, Protocol::Smtps(tls()?)),
        };
        Ok(Load {
            address,
            protocol,
            each: point.recipients,
            key: server.key.clone(),
            bodies: Arc::clone(self.bodies.get(&point.kilobytes).ok_or("no bodies of this size")?),
            recipients: Recipients { domain: domain.to_owned(), sites: usize::from(self.options.sites) },
            clients: point.clients,
            numbers,
        })
    }

    fn taken(&self) -> u64 {
        self.sink.as_ref().map_or(0, Sink::taken)
    }

    /// Waits until the sink has accepted `wanted` messages and the server has recorded every outcome. Returns the time
    /// at which the sink had them; `None` if nothing is delivered.
    async fn settled(&self, point: Point, server: &Server, wanted: u64) -> Outcome<Option<Instant>> {
        match point.work {
            Work::Accept => return Ok(None),
            Work::Deliver => {}
        }
        let (mut last, mut moved) = (self.taken(), Instant::now());
        while last < wanted {
            if moved.elapsed() > STALL_DEADLINE {
                return Err(format!("{} messages did not arrive", wanted - last).into());
            }
            tokio::time::sleep(LOOK_EVERY).await;
            if self.taken() != last {
                (last, moved) = (self.taken(), Instant::now());
            }
        }
        let mut connection = server.connect().await?;
        while server.has_waiting(&mut connection).await? {
            if moved.elapsed() > STALL_DEADLINE {
                return Err("all messages arrived, but some still wait for their outcome".into());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(Some(moved))
    }
}

/// Returns the result of `load`, and the greatest lag of the bucket meanwhile, if the server replicates.
async fn with_lag<T>(server: Option<&Server>, load: impl Future<Output = T>) -> (T, Option<f64>) {
    let (mut load, mut lag) = (std::pin::pin!(load), None::<f64>);
    let Some(server) = server else { return (load.await, lag) };
    loop {
        tokio::select! {
            done = &mut load => return (done, lag),
            () = tokio::time::sleep(LAG_EVERY) => {
                let now = server.counter(LAG).await;
                lag = lag.into_iter().chain(now).reduce(f64::max);
            }
        }
    }
}
