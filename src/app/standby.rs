//! `postrider standby`: follows the log of the active machine, and serves in its place once it is promoted.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::addresses::{self, Addresses};
use super::admin_client::SOCKET_NAME;
use super::config::Config;
use super::exit::Exit;
use super::lock::DirectoryLock;
use super::metrics::Metrics;
use super::replication::{self, World, cannot_join, mailing_from, with_base};
use super::serve;
use super::settings;
use super::signals::{Asked, Signals};
use super::trouble::Trouble;
use super::{logging, runtime, supervisor};
use crate::engine::ports::Clock;
use crate::engine::replica::{ReplicaError, ReplicaStatus, Role, Standby, State};
use crate::http::metrics::{Process, StandbyMetricsService};
use crate::http::standby::{Promotion, PromotionRefusal, PromotionRequest, StandbyService};
use crate::net::clock::service_clock;
use crate::net::handed_over::HandedOver;
use crate::net::http_listener::HttpServer;
use crate::store::master_key::{self, Raw};
use crate::store::open::OnJournalDamage;
use crate::store::replica::Kind;
use crate::store::replica::claim::ClaimCause;

/// Interval between two looks at the end of the log.
const POLL: Duration = Duration::from_secs(1);
/// The longest wait after a failure.
const RETRY_MAX: Duration = Duration::from_secs(10);
const WHAT: &str = "cannot stand by";

/// The options of a standby.
#[derive(Debug, Clone, Default)]
pub struct StandbyOptions {
    /// The master key of the store; else that of the data directory.
    pub master_key: Option<PathBuf>,
    /// The descriptor to write to when ready.
    pub ready_fd: Option<i32>,
    /// Whether a directory with records that the log lacks is set aside.
    pub discard: bool,
}

/// Follows the log of `config` until it is told to stop, or promoted: then it serves.
///
/// # Errors
/// What is in the way, for the operator.
pub fn run(config: &Config, options: &StandbyOptions) -> Result<Exit, Trouble> {
    config.fit_to_mail()?;
    logging::start(&config.log);
    runtime::forbid_dumps();
    if config.replica.url.is_none() {
        let remedy = "Name the bucket of the active machine in replica.url.";
        return Err(Trouble::new(Exit::Usage, WHAT, "the configuration names no replica", remedy));
    }
    let lock = DirectoryLock::take(&config.data_dir)?;
    let key = master_key(&config.data_dir, options.master_key.as_deref())?;
    runtime::build()?.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(service_clock());
        let Some(world) = replication::world(config, &config.data_dir, Arc::clone(&clock))? else {
            return Ok(Exit::Usage);
        };
        let following = Following { config, options, key, world: &world, clock: &clock };
        match following.run().await? {
            Ended::Stopped => Ok(Exit::Done),
            Ended::Promoted { without_bucket } => {
                let mut config = config.clone();
                if without_bucket {
                    config.replica.url = None;
                }
                let sockets = HandedOver::default();
                serve::serve(&config, lock, sockets, None, OnJournalDamage::Refuse, ClaimCause::Promotion).await
            }
        }
    })
}

/// Why a standby ended to follow.
enum Ended {
    Stopped,
    Promoted { without_bucket: bool },
}

/// A standby's loop.
struct Following<'a> {
    config: &'a Config,
    options: &'a StandbyOptions,
    key: Raw,
    world: &'a World,
    clock: &'a Arc<dyn Clock>,
}

/// A standby's knowledge of the log.
struct Sight {
    /// When the last slot came that was not there when the end was first reached.
    moved_at: Option<Instant>,
    is_at_end: bool,
    looked_at: Option<crate::base::time::Timestamp>,
}

impl Following<'_> {
    async fn run(&self) -> Result<Ended, Trouble> {
        let mut signals = Signals::listen().map_err(|error| failed(&error.to_string()))?;
        let (status, shown) =
            watch::channel(ReplicaStatus { role: Role::Standby, state: State::Waiting, ..ReplicaStatus::off() });
        let (promotions, mut asked) = mpsc::channel(1);
        let mut http =
            HttpServer::new(Arc::new(StandbyService::new(shown, promotions)), settings::http_limits(self.config));
        let metrics = Metrics::listen(self.config, self.metrics(status.subscribe())).await?;
        self.listen(&mut http, metrics.address).await?;
        let mut sight = Sight { moved_at: None, is_at_end: false, looked_at: None };
        let mut standby = None;
        let mut retry = POLL;
        let ended = loop {
            let turn = self.turn(&mut standby, &mut sight, &status).await;
            let wait = match turn {
                Ok(Turn::Applied) => Duration::ZERO,
                Ok(Turn::End) => {
                    retry = POLL;
                    POLL
                }
                Ok(Turn::OwnLog) => break Ok(Ended::Promoted { without_bucket: false }),
                Err(error) => match self.survive(error, &status) {
                    Ok(()) => {
                        retry = (retry * 2).min(RETRY_MAX);
                        retry
                    }
                    Err(trouble) => break Err(trouble),
                },
            };
            tokio::select! {
                biased;
                asked = signals.next() => if matches!(asked, Asked::Stop) { break Ok(Ended::Stopped) },
                promotion = asked.recv() => if let Some(promotion) = promotion
                    && let Some(ended) = self.promote(promotion, &mut standby, &sight).await
                {
                    break Ok(ended);
                },
                () = sleep(wait) => {}
            }
        };
        supervisor_end(&ended);
        if let Some(mut standby) = standby.take() {
            standby.checkpoint().map_err(|error| cannot_join(&error))?;
        }
        http.shutdown(Duration::from_secs(1)).await;
        metrics.shut_down().await;
        drop(std::fs::remove_file(self.config.data_dir.join(SOCKET_NAME)));
        ended
    }

    /// Opens the standby, or applies the next slot.
    async fn turn(
        &self,
        standby: &mut Option<Standby>,
        sight: &mut Sight,
        status: &watch::Sender<ReplicaStatus>,
    ) -> Result<Turn, ReplicaError> {
        let directory = &self.config.data_dir;
        let mut open = match standby.take() {
            Some(open) => open,
            None => Standby::open(&self.world.replica, directory, self.key.clone(), with_base()).await?,
        };
        let applied = open.follow().await;
        if let Err(error) = &applied
            && error.needs_base()
        {
            tracing::error!(%error, "the log can't be followed; building the store from the newest base");
            status.send_modify(|status| status.state = State::Resync);
            open.prepare_resync().await?;
            return Ok(Turn::Applied);
        }
        if let Err(ReplicaError::Stranded { from, to }) = &applied
            && self.options.discard
        {
            let (from, to, aside) = (*from, *to, open.discard()?);
            tracing::warn!(from, to, directory = %aside.display(), "set aside a store with batches that the log lacks");
            return Ok(Turn::Applied);
        }
        let own = open.head().is_some_and(|head| head.holder == self.world.replica.holder);
        sight.looked_at = Some(self.clock.now());
        self.show(&open, status);
        *standby = Some(open);
        match applied? {
            true => {
                if sight.is_at_end {
                    sight.moved_at = Some(Instant::now());
                }
                Ok(Turn::Applied)
            }
            // Promoted before, by this process's predecessor.
            false if own => Ok(Turn::OwnLog),
            false => {
                if !std::mem::replace(&mut sight.is_at_end, true) {
                    tracing::info!("the standby has everything that the log has");
                    serve::tell_ready(self.options.ready_fd).map_err(|trouble| ReplicaError::Io {
                        what: "reporting readiness".to_owned(),
                        error: std::io::Error::other(trouble.to_string()),
                    })?;
                }
                Ok(Turn::End)
            }
        }
    }

    fn show(&self, standby: &Standby, status: &watch::Sender<ReplicaStatus>) {
        let position = standby.position();
        let holder = standby.head().map(|head| head.holder.to_string());
        let now = self.clock.now();
        status.send_modify(|status| {
            status.state = State::Ok;
            status.error = None;
            status.store = Some(position.store.to_string());
            status.epoch = position.epoch;
            status.slot = position.slot;
            (status.sequence, status.confirmed_sequence) = (position.sequence, position.sequence);
            status.last_confirmed_at = Some(now);
            if holder.is_some() {
                status.holder = holder;
            }
        });
    }

    /// Goes on after a failure that another try may not have.
    fn survive(&self, error: ReplicaError, status: &watch::Sender<ReplicaStatus>) -> Result<(), Trouble> {
        use crate::engine::ports::BucketErrorKind::{Forbidden, Refused};
        let state = match &error {
            ReplicaError::Bucket(error) if matches!(error.kind, Forbidden | Refused) => {
                return Err(cannot_join_of(error));
            }
            ReplicaError::Bucket(_) => State::Unreachable,
            ReplicaError::NoBase => State::Waiting,
            ReplicaError::Missing { .. } | ReplicaError::Object { .. } => State::Resync,
            ReplicaError::Store(crate::store::error::StoreError::Full) => State::DiskFull,
            _ => return Err(cannot_join(&error)),
        };
        if status.borrow().state != state {
            tracing::warn!(%error, "the standby can't go on; trying again");
        }
        status.send_modify(|status| {
            status.state = state;
            status.error = Some(error.to_string());
        });
        Ok(())
    }

    /// Claims the log, where nothing speaks against it. Returns how the standby ends then.
    async fn promote(
        &self,
        (wanted, answer): Promotion,
        standby: &mut Option<Standby>,
        sight: &Sight,
    ) -> Option<Ended> {
        match self.prepare(wanted, standby, sight) {
            Ok(promoted) => {
                drop(answer.send(Ok(promoted)));
                Some(Ended::Promoted { without_bucket: wanted.without_bucket })
            }
            Err(refusal) => {
                drop(answer.send(Err(refusal)));
                None
            }
        }
    }

    fn prepare(
        &self,
        wanted: PromotionRequest,
        standby: &mut Option<Standby>,
        sight: &Sight,
    ) -> Result<serde_json::Value, PromotionRefusal> {
        let refuse = |status, code, message: &str| PromotionRefusal { status, code, message: message.to_owned() };
        let Some(open) = standby.as_mut().filter(|_| sight.is_at_end || wanted.without_bucket) else {
            return Err(refuse(503, "not_ready", "The standby has not come to the end of the log yet."));
        };
        let was_released = open.head().is_some_and(|head| head.kind == Kind::Release);
        if !wanted.force && !wanted.without_bucket && !was_released {
            let lease = self.config.replica.lease;
            if sight.moved_at.is_some_and(|moved| moved.elapsed() <= lease) {
                let message = "The log moved within a lease: the active machine lives. Stop it first, or use --force.";
                return Err(refuse(409, "active_lives", message));
            }
            let message = "An active machine that is idle can't be seen. Stop it first, then use --force.";
            return Err(refuse(409, "active_unseen", message));
        }
        let failed = |error: ReplicaError| refuse(500, "internal", &error.to_string());
        if wanted.hold {
            open.hold_queue().map_err(failed)?;
        }
        open.checkpoint().map_err(failed)?;
        let (queued, due) = open.queued().map_err(failed)?;
        let position = open.position();
        let now = self.clock.now();
        let wait = match was_released || wanted.without_bucket {
            true => Duration::ZERO,
            false => self.config.replica.lease.mul_f64(1.05) + Duration::from_millis(500),
        };
        Ok(serde_json::json!({
            "epoch": position.epoch + 1,
            "slot": position.slot + 1,
            "accepting_at": now.to_string(),
            "mailing_from": mailing_from(now, wait).to_string(),
            "queued": queued,
            "due": due,
        }))
    }

    fn metrics(&self, status: watch::Receiver<ReplicaStatus>) -> StandbyMetricsService {
        let process = Process { started_at: self.clock.now(), version: env!("CARGO_PKG_VERSION") };
        StandbyMetricsService::new(status, Arc::clone(&self.world.meters), process)
    }

    async fn listen(&self, http: &mut HttpServer<StandbyService>, metrics: Option<SocketAddr>) -> Result<(), Trouble> {
        let mut bound = Vec::new();
        for address in &self.config.http.listen {
            bound.push(http.listen_tcp(*address, None).await.map_err(|error| {
                let what = format!("cannot listen on {address}");
                let remedy = "Free the port, or name another in http.listen.";
                Trouble::new(Exit::Failed, what, error.to_string(), remedy)
            })?);
        }
        let (none, directory) = (&[][..], &self.config.data_dir);
        let addresses = Addresses { http: &bound, metrics, bounces: none, submission: none, submissions: none };
        addresses::write(directory, &addresses).map_err(|error| failed(&error.to_string()))?;
        http.listen_unix(&self.config.data_dir.join(SOCKET_NAME)).map_err(|error| failed(&error.to_string()))
    }
}

/// Result of one turn.
enum Turn {
    Applied,
    End,
    /// The log is this directory's own.
    OwnLog,
}

fn cannot_join_of(error: &crate::engine::ports::BucketError) -> Trouble {
    cannot_join(&ReplicaError::Bucket(error.clone()))
}

fn supervisor_end(ended: &Result<Ended, Trouble>) {
    if matches!(ended, Ok(Ended::Stopped)) {
        supervisor::stopping();
    }
}

fn failed(why: &str) -> Trouble {
    Trouble::new(Exit::Failed, WHAT, why, "")
}

/// The master key of the store that is followed.
fn master_key(directory: &Path, named: Option<&Path>) -> Result<Raw, Trouble> {
    let path = named.map_or_else(|| master_key::place(directory), Path::to_owned);
    master_key::read_raw(&path).map_err(|error| {
        let remedy = "Name the master.key of the active machine with --master-key FILE: the bucket does not hold it.";
        Trouble::new(Exit::Usage, WHAT, error.to_string(), remedy)
    })
}
