//! `postrider standby`: follows the log of the active machine, and serves in its place after a promotion.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use self::promotion::AcceptedPromotion;
use self::report::on_retry;
use self::sight::LogView;
use super::admin_client::SOCKET_NAME;
use super::cli_error::CliError;
use super::config::Config;
use super::exit::Exit;
use super::lock::DirectoryLock;
use super::locked_store::LockedStore;
use super::metrics::Metrics;
use super::replication::{self, Claim, OpenedStore, World, cannot_join, with_base};
use super::serve;
use super::settings;
use super::signals::{SignalRequest, Signals};
use super::store_open_report::Start;
use super::supervisor::SlowStart;
use super::{logging, runtime, supervisor};
use crate::engine::ports::Clock;
use crate::engine::replica::{ReplicaError, ReplicaStatus, ReplicaWorld, Role, Standby, State, set_aside};
use crate::http::standby::{Promotion, StandbyService};
use crate::net::clock::service_clock;
use crate::net::entropy::OsEntropy;
use crate::net::http_listener::HttpServer;
use crate::net::passed_sockets::PassedSockets;
use crate::store::master_key::{self, Raw};
use crate::store::open::OnJournalDamage;
use crate::store::replica::claim::ClaimCause;
use crate::store::replica::continues_without_bucket;

mod listeners;
mod promotion;
mod report;
mod sight;

/// Interval between two checks for new slots.
const POLL: Duration = Duration::from_secs(1);
/// Maximum delay after a failure.
const RETRY_MAX: Duration = Duration::from_secs(10);
const WHAT: &str = "cannot stand by";

/// The options of a standby.
#[derive(Debug, Clone, Default)]
pub struct StandbyOptions {
    /// The master key of the store; by default that of the data directory.
    pub master_key: Option<PathBuf>,
    /// The descriptor to write to when ready.
    pub ready_fd: Option<i32>,
    /// Whether a directory with records that the log lacks is set aside.
    pub discard: bool,
}

/// Follows the log of `config` until it is stopped or promoted. After a promotion it serves.
///
/// # Errors
/// The error for the operator.
pub fn run(config: &Config, options: &StandbyOptions) -> Result<Exit, CliError> {
    config.fit_to_mail()?;
    logging::start(&config.log);
    runtime::forbid_dumps();
    if config.replica.url.is_none() {
        let remedy = "Set replica.url to the bucket of the active machine.";
        return Err(CliError::new(Exit::Usage, WHAT, "the configuration has no [replica] url", remedy));
    }
    let lock = DirectoryLock::take(&config.data_dir)?;
    let key = master_key(&config.data_dir, options.master_key.as_deref())?;
    runtime::run(async {
        let clock: Arc<dyn Clock> = Arc::new(service_clock());
        let Some(world) = replication::world(config, &config.data_dir, Arc::clone(&clock))? else {
            return Ok(Exit::Usage);
        };
        let (directory, start) = (&config.data_dir, Start::Service(OnJournalDamage::Refuse));
        let slow_start = SlowStart::begin("following the log of the replica; not yet at its end");
        let following = Following {
            config,
            options,
            key,
            world: &world,
            clock: &clock,
            is_ready: Cell::new(false),
            slow_start: Cell::new(Some(slow_start)),
            next_promotion: Cell::default(),
        };
        let mut config = config.clone();
        let serves_without_bucket = following.serves_without_bucket()?;
        let mut signals = Signals::listen().map_err(|error| failed(&error.to_string()))?;
        let ended = if serves_without_bucket { FollowEnd::WithoutBucket } else { following.run(&mut signals).await? };
        let claim = match ended {
            FollowEnd::Stopped | FollowEnd::Unclaimed => return Ok(Exit::Done),
            FollowEnd::Claimed(claim) => Some(*claim),
            FollowEnd::WithoutBucket => {
                config.replica.url = None;
                None
            }
        };
        // Readiness is reported only once, so a standby that was ready does not report it again.
        let ready_fd = options.ready_fd.filter(|_| !following.is_ready.get());
        drop(following.slow_start.take());
        let ground = LockedStore::open_claimed(directory, lock, Arc::clone(&clock), start, claim.as_ref())?;
        let opened = OpenedStore { ground, claim, signals: Some(signals) };
        serve::serve_opened(&config, opened, PassedSockets::default(), ready_fd).await
    })
}

/// Reason why following ended.
enum FollowEnd {
    /// A signal stopped the process.
    Stopped,
    /// The log was not claimed.
    Unclaimed,
    /// The log belongs to this process.
    Claimed(Box<Claim>),
    /// The operator promoted the standby without the bucket.
    WithoutBucket,
}

/// Reason why the log is not followed any more.
enum LoopEnd {
    Stopped,
    /// The log is claimed, because the operator asked for it if there is a promotion.
    Claim(ClaimCause, Option<AcceptedPromotion>),
    WithoutBucket(AcceptedPromotion),
}

/// A standby's loop.
struct Following<'a> {
    config: &'a Config,
    options: &'a StandbyOptions,
    key: Raw,
    world: &'a World,
    clock: &'a Arc<dyn Clock>,
    /// Whether readiness was reported.
    is_ready: Cell<bool>,
    /// Slow start in progress, until readiness is reported.
    slow_start: Cell<Option<SlowStart>>,
    /// The promotion that ended an automatic claim.
    next_promotion: Cell<Option<Promotion>>,
}

/// The log that a standby follows.
struct FollowedLog {
    standby: Option<Standby>,
    sight: LogView,
    status: watch::Sender<ReplicaStatus>,
    promotions: mpsc::Receiver<Promotion>,
}

impl Following<'_> {
    /// Returns whether an earlier process was promoted without the bucket. `--discard` sets its store aside instead.
    fn serves_without_bucket(&self) -> Result<bool, CliError> {
        let directory = &self.config.data_dir;
        if !continues_without_bucket(&self.world.replica.disk, directory) {
            return Ok(false);
        }
        if self.options.discard {
            let aside = set_aside(&self.world.replica, directory).map_err(|error| cannot_join(&error))?;
            tracing::warn!(
                directory = %aside.display(),
                "moved a store that continued without the bucket; beginning with the newest base"
            );
            return Ok(false);
        }
        tracing::warn!(
            "this directory was promoted without the bucket; serving without replication until `postrider serve` \
             claims the log again"
        );
        Ok(true)
    }

    async fn run(&self, signals: &mut Signals) -> Result<FollowEnd, CliError> {
        let (status, shown) = watch::channel(replication::waiting_status(self.config, Role::Standby));
        let (sender, promotions) = mpsc::channel(1);
        let service = StandbyService::new(shown, sender, (Arc::clone(self.clock), Arc::new(OsEntropy)));
        let mut http = HttpServer::new(Arc::new(service), settings::http_limits(self.config));
        let metrics = Metrics::listen(self.config, self.metrics(status.subscribe())).await?;
        let renewal = self.listen(&mut http, metrics.address).await?;
        let mut log = FollowedLog { standby: None, sight: LogView::new(), status, promotions };
        let ended = loop {
            match self.follow_and_claim(&mut log, signals).await {
                Ok(FollowEnd::Unclaimed) => {
                    log.sight.begin_again();
                    sleep(POLL).await;
                }
                ended => break ended,
            }
        };
        if matches!(ended, Ok(FollowEnd::Stopped)) {
            supervisor::stopping();
        }
        http.shutdown(Duration::from_secs(1)).await;
        metrics.shut_down().await;
        if let Some(renewal) = renewal {
            renewal.stop();
        }
        drop(std::fs::remove_file(self.config.data_dir.join(SOCKET_NAME)));
        ended
    }

    /// Follows the log until it is claimed or left, or the process stops.
    async fn follow_and_claim(&self, log: &mut FollowedLog, signals: &mut Signals) -> Result<FollowEnd, CliError> {
        let ended = self.follow(log, signals).await;
        if let Some(mut standby) = log.standby.take() {
            standby.checkpoint().map_err(|error| cannot_join(&error))?;
        }
        self.claim(ended?, signals, &mut log.promotions, &log.status).await
    }

    /// Follows the log until there is a reason to end.
    async fn follow(&self, log: &mut FollowedLog, signals: &mut Signals) -> Result<LoopEnd, CliError> {
        let FollowedLog { standby, sight, status, promotions } = log;
        let mut retry = POLL;
        loop {
            let asked_at = self.world.replica.real.monotonic();
            let turn = tokio::select! {
                biased;
                () = signals.stop() => return Ok(LoopEnd::Stopped),
                turn = self.turn(standby, sight, status) => turn,
            };
            if self.is_abandoned(&turn, asked_at, sight, standby.as_ref()) {
                return Ok(LoopEnd::Claim(ClaimCause::Failover, None));
            }
            if let Some(promotion) = self.next_promotion.take()
                && let Some(ended) = self.promote(promotion, standby, sight)
            {
                return Ok(ended);
            }
            let wait = match turn {
                Ok(RoundResult::Applied) => Duration::ZERO,
                // A pause follows each rebuild from a base, in case the store can't follow the log from that base
                // either.
                Ok(RoundResult::Resynced) => {
                    retry = (retry * 2).min(RETRY_MAX);
                    retry
                }
                Ok(RoundResult::End) => {
                    retry = POLL;
                    POLL
                }
                Ok(RoundResult::OwnLog) => return Ok(LoopEnd::Claim(ClaimCause::Promotion, None)),
                Err(error) => {
                    self.survive(error, sight, status)?;
                    retry = (retry * 2).min(RETRY_MAX);
                    retry
                }
            };
            tokio::select! {
                biased;
                asked = signals.next() => if matches!(asked, SignalRequest::Stop) { return Ok(LoopEnd::Stopped) },
                promotion = promotions.recv() => if let Some(promotion) = promotion
                    && let Some(ended) = self.promote(promotion, standby, sight)
                {
                    return Ok(ended);
                },
                () = sleep(wait) => {}
            }
        }
    }

    /// Opens the standby, or applies the next slot.
    async fn turn(
        &self,
        standby: &mut Option<Standby>,
        sight: &mut LogView,
        status: &watch::Sender<ReplicaStatus>,
    ) -> Result<RoundResult, ReplicaError> {
        let directory = &self.config.data_dir;
        let mut open = match standby.take() {
            Some(open) => open,
            None => {
                let world = ReplicaWorld { on_retry: on_retry(status), ..self.world.replica.clone() };
                Standby::open(&world, directory, self.key.clone(), with_base()).await?
            }
        };
        let applied = open.follow().await;
        if let Err(error) = &applied
            && error.needs_base()
        {
            tracing::error!(%error, "the log can't be followed; building the store from the newest base");
            status.send_modify(|status| status.state = State::Resync);
            open.prepare_resync().await?;
            return Ok(RoundResult::Resynced);
        }
        if let Err(ReplicaError::Stranded { from, to }) = &applied
            && self.options.discard
        {
            let (from, to, aside) = (*from, *to, open.discard()?);
            tracing::warn!(
                from, to, directory = %aside.display(),
                "moved a store with batches that the log lacks; beginning with the newest base"
            );
            return Ok(RoundResult::Applied);
        }
        let own = open.owns_log();
        if let Ok(moved) = &applied {
            sight.looked_at = Some(self.clock.now());
            self.show(&open, *moved, status);
            if !moved {
                self.show_bases(&open, sight, status).await?;
            }
        }
        // A store whose disk was full is opened again: its last transaction may be incomplete in memory.
        if !applied.as_ref().is_err_and(ReplicaError::is_disk_full) {
            *standby = Some(open);
        }
        match applied? {
            true => {
                if sight.is_at_end {
                    sight.moved_at = Some(Instant::now());
                }
                Ok(RoundResult::Applied)
            }
            // The directory was promoted by an earlier process.
            false if own => Ok(RoundResult::OwnLog),
            false => {
                if !std::mem::replace(&mut sight.is_at_end, true) {
                    tracing::info!("the standby has caught up with the log");
                }
                if !self.is_ready.replace(true) {
                    drop(self.slow_start.take());
                    serve::notify_ready(self.options.ready_fd).map_err(|cli_error| ReplicaError::Io {
                        what: "reporting readiness".to_owned(),
                        error: std::io::Error::other(cli_error.to_string()),
                    })?;
                }
                Ok(RoundResult::End)
            }
        }
    }
}

/// Result of one turn.
enum RoundResult {
    Applied,
    /// A store was built from the newest base.
    Resynced,
    End,
    /// The log belongs to this directory.
    OwnLog,
}

fn failed(why: &str) -> CliError {
    CliError::new(Exit::Failed, WHAT, why, "")
}

/// Returns the master key of the followed store.
fn master_key(directory: &Path, named: Option<&Path>) -> Result<Raw, CliError> {
    let path = named.map_or_else(|| master_key::place(directory), Path::to_owned);
    master_key::read_raw(&path).map_err(|error| {
        let remedy = "Set --master-key to the master.key of the active machine; the bucket does not contain it.";
        CliError::new(Exit::Usage, WHAT, error.to_string(), remedy)
    })
}
