//! The running service: everything below wired together, from the data directory's lock to the last answer.
//!
//! It starts from the inside out (store, engine, listeners), so that nothing is accepted that can't be served. It stops
//! from the outside in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::addresses::{self, Addresses};
use super::admin_client::SOCKET_NAME;
use super::alerts;
use super::bounces::Bounces;
use super::certificate::{Certificate, RenewalTask};
use super::cli_error::CliError;
use super::config::Config;
use super::dispatcher;
use super::doctor::in_service::InService;
use super::egress_routes;
use super::exit::Exit;
use super::lock::DirectoryLock;
use super::locked_store::LockedStore;
use super::metrics::Metrics;
use super::oidc;
use super::recent_warnings;
use super::reload;
use super::replication::{self, Claim};
use super::resolver::resolver;
use super::run_marker::RunMarker;
use super::settings::{self, Mode};
use super::signals::{SignalRequest, Signals};
use super::store_open_report;
use super::submission::Submission;
use super::supervisor;
use super::web;
use super::webhooks::Webhooks;
use crate::base::time::Timestamp;
use crate::engine::ports::Resolve;
use crate::engine::receive::Receiver;
use crate::engine::replica::{Active, Replication};
use crate::engine::{CaptureRoute, Engine};
use crate::http::dev::Dev;
use crate::http::meters::RequestMeters;
use crate::http::metrics::Process;
use crate::http::service::HttpService;
use crate::http::state::Api;
use crate::http::status::StatusSources;
use crate::net::dev::reporter::Reporter;
use crate::net::dns::HostAddresses;
use crate::net::http_listener::HttpServer;
use crate::net::network_guard::Guard;
use crate::net::passed_sockets::PassedSockets;
use crate::net::tls_settings::PresentedCertificate;
use crate::store::Store;
use crate::store::error::StoreError;

/// Maximum wait for work in flight at a stop (contract 8).
const GRACE: Duration = Duration::from_secs(30);
/// Time to answer waiting callers after the store has failed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Parts that `dev` adds to the service.
pub struct DevParts {
    /// State of the routes under `/dev`.
    pub routes: Arc<Dev>,
    /// Selects the mail that is captured.
    pub capture: Arc<CaptureRoute>,
    /// Delayed reports of the simulator.
    pub reporter: Arc<Reporter>,
}

/// A running service.
pub struct Daemon {
    /// The engine that the interfaces call.
    pub engine: Arc<Engine>,
    api: Arc<Api>,
    /// Bound addresses of HTTP.
    pub http_addresses: Vec<SocketAddr>,
    http: HttpServer<HttpService<Api>>,
    metrics: Metrics,
    bounces: Bounces,
    /// The listeners of SMTP submission.
    pub(super) submission: Submission,
    dispatcher: JoinHandle<Result<(), StoreError>>,
    stop: watch::Sender<bool>,
    certificate: Option<RenewalTask>,
    replica: Option<Active>,
    config: Config,
    signals: Signals,
    run_marker: RunMarker,
    _lock: DirectoryLock,
}

impl Daemon {
    /// Starts the service of `config` over `ground`, with the inherited `sockets`, if any. `signals` are those that the
    /// process has listened to so far. `None` if one of them stopped the start.
    ///
    /// # Errors
    /// The error for the operator.
    pub async fn start(
        config: &Config,
        ground: LockedStore,
        sockets: PassedSockets,
        dev: Option<DevParts>,
        claim: Option<Claim>,
        mut signals: Option<Signals>,
    ) -> Result<Option<Self>, CliError> {
        let LockedStore { store, clock, entropy, .. } = &ground;
        let Some((replica, replication)) = replicate(claim, store, &mut signals).await? else { return Ok(None) };
        let signals = signals.map_or_else(Signals::listen, Ok).map_err(|error| broken("signals", &error))?;
        let guard = Arc::new(Guard::new(config.network.allow.clone()));
        let resolver = resolver(config, &guard, clock, entropy, dev.is_some())?;
        let engine = engine(config, &ground, Arc::clone(&resolver) as _, dev.is_some(), replication)?;
        let run_marker = alerts::begin_run(&engine).await.map_err(|error| broken("alerts", &error))?;
        let (capture, dev) = dev.map(|parts| (parts.capture, (parts.routes, parts.reporter))).unzip();
        let (dev_routes, reporter) = dev.unzip();
        let (stop, stopped) = watch::channel(false);
        let tables = egress_routes::tables(config)?;
        let receiver = Arc::new(Receiver::new(Arc::clone(&engine), Arc::clone(&tables.rules)));
        let names: Arc<dyn HostAddresses> = Arc::clone(&resolver) as _;
        let webhooks = Webhooks::of(config, &guard, Arc::clone(&names), dev_routes.is_some());
        if let Some(dev) = &dev_routes {
            dev.attach(&engine);
        }
        let hooks_guard = Arc::clone(&webhooks.guard);
        oidc::attach(config, &engine, &webhooks)?;
        let dispatcher = dispatcher::dispatcher(config, &engine, resolver, &guard, webhooks, capture, tables)?;
        let (api, service) = web::service(config, &engine, hooks_guard, dev_routes)?;
        let requests = Arc::clone(service.meters());
        let mut http = HttpServer::new(Arc::new(service), settings::http_limits(config));
        let certificate = Certificate::of(config, names)?;
        let tls = certificate.as_ref().map(|certificate| certificate.http_tls(config));
        let http_addresses = web::listen(&mut http, config, tls, &sockets, store.directory()).await?;
        // Links are only needed after this point: serving begins with the next await.
        engine.settings.public_url.get_or_init(|| addresses::public_url(config, &http_addresses));
        let mail = certificate.as_ref().map(|certificate| Arc::clone(&certificate.presented.mail));
        let bounces = Bounces::start(config, &receiver, mail.clone(), &sockets, reporter.as_deref()).await?;
        let submission = Submission::start(config, &engine, mail, &sockets).await?;
        let process = Process { started_at: clock.now(), version: env!("CARGO_PKG_VERSION") };
        let presented = certificate.as_ref().map(|certificate| Arc::clone(&certificate.presented));
        let status = status(config, &ground, process.started_at, presented.clone(), &requests);
        api.status.get_or_init(|| status);
        engine.alerts.sources.get_or_init(|| alerts::sources(config, &guard, presented.clone()));
        let metrics = Metrics::start(config, &engine, requests, process, presented).await?;
        write_addresses(store, &http_addresses, &metrics, &bounces, &submission)?;
        store_open_report::report_restore_hold(store)?;
        // Start the renewal last, so that no request is in flight if an earlier step fails.
        let certificate = certificate.map(Certificate::keep);
        let shared = replica.as_ref().map(|replica| Arc::clone(replica.shared()));
        let dispatcher = tokio::spawn(dispatcher::run_when_permitted(shared, dispatcher, stopped));
        tokio::spawn(super::store_size::note(Arc::downgrade(&engine)));
        Ok(Some(Self {
            engine,
            api,
            http_addresses,
            http,
            metrics,
            bounces,
            submission,
            dispatcher,
            stop,
            certificate,
            replica,
            config: config.clone(),
            signals,
            run_marker,
            _lock: ground.lock,
        }))
    }

    /// Returns whether HTTP is served over TLS.
    pub const fn serves_tls(&self) -> bool {
        self.certificate.is_some()
    }

    /// Serves until a stop signal or a failure of the store, then stops in order.
    pub async fn run(mut self) -> Exit {
        let reason = self.reason_to_stop().await;
        let store = Arc::clone(&self.engine.store);
        if matches!(reason, Reason::StoreFailed) {
            // Waiting callers get a 503 before the process ends.
            tokio::time::sleep(LAST_WORDS).await;
        }
        supervisor::stopping();
        let run_marker = std::mem::take(&mut self.run_marker);
        let announced = announce(&reason, Arc::clone(&self.engine), self.replica.as_ref());
        tokio::join!(announced, self.stop());
        match reason {
            // The last commits of an orderly stop may fail too.
            Reason::Signal if store.health().failure().is_none() => alerts::end_run(run_marker, Exit::Done),
            Reason::Deposed => alerts::end_run(run_marker, Exit::Conflict),
            Reason::Signal | Reason::PumpEnded | Reason::StoreFailed => Exit::Failed,
        }
    }

    async fn reason_to_stop(&mut self) -> Reason {
        let shared = self.replica.as_ref().map(|replica| Arc::clone(replica.shared()));
        let deposed = async {
            match &shared {
                Some(shared) => shared.deposed().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(deposed);
        loop {
            tokio::select! {
                asked = self.signals.next() => match asked {
                    SignalRequest::Stop => return Reason::Signal,
                    SignalRequest::Reload => self.reload(),
                },
                _ = self.engine.store.health().failed() => return Reason::StoreFailed,
                () = &mut deposed => return Reason::Deposed,
                ended = &mut self.dispatcher => {
                    tracing::error!(?ended, "dispatcher ended; stopping because nothing would be sent");
                    return Reason::PumpEnded;
                }
            }
        }
    }

    fn reload(&mut self) {
        supervisor::reloading();
        reload::reload(&mut self.config);
        if let Some(certificate) = &self.certificate {
            certificate.look();
        }
        self.submission.reload();
        supervisor::ready();
    }

    /// Stops in order: no new requests, no new attempts, then the last commit.
    pub async fn stop(self) {
        let Self { engine, api, http, metrics, bounces, submission, dispatcher, stop, certificate, replica, .. } = self;
        let began = tokio::time::Instant::now();
        // A failed store can't record outcomes. Abort the work in flight, so that less of it is sent twice.
        let grace = if engine.store.health().failure().is_some() { LAST_WORDS } else { GRACE };
        if let Some(certificate) = certificate {
            certificate.stop();
        }
        api.shut_down();
        stop.send_replace(true);
        if let Some(replica) = &replica {
            replica.begin_stop();
        }
        let wire = async {
            // A dispatcher that has ended must not be polled again.
            let pumped = async { if dispatcher.is_finished() { None } else { Some(dispatcher.await) } };
            let mail = async { tokio::join!(bounces.shut_down(grace), submission.shut_down(grace)) };
            let (finished, pumped, _) = tokio::join!(http.shutdown(grace), pumped, mail);
            // Stop the metrics last, so that the shutdown can be monitored.
            metrics.shut_down().await;
            if !finished {
                tracing::warn!("HTTP connections aborted after the grace period; their clients may repeat requests");
            }
            if let Some(Ok(Err(error))) = pumped {
                tracing::error!(%error, "dispatcher ended early; due work continues after the restart");
            }
        };
        if tokio::time::timeout(grace, wire).await.is_err() {
            tracing::warn!("in-flight work aborted after the grace period; it is repeated after the restart");
        }
        // No process listens on the socket any more, and the lock excludes a new one.
        if let Err(error) = std::fs::remove_file(engine.store.directory().join(SOCKET_NAME)) {
            tracing::warn!(%error, "could not remove {SOCKET_NAME}; the next start replaces it");
        }
        let left = || grace.saturating_sub(began.elapsed()).max(LAST_WORDS);
        replication::close(&engine, left()).await;
        if let Some(replica) = replica {
            // Use the rest of the same grace time: a supervisor would kill a process that takes longer.
            replica.stop(left()).await;
        }
    }
}

enum Reason {
    Deposed,
    Signal,
    StoreFailed,
    PumpEnded,
}

/// Sends the alert of a deposed machine, while the service stops.
fn announce(reason: &Reason, engine: Arc<Engine>, replica: Option<&Active>) -> impl Future<Output = ()> + use<> {
    let deposed_by = match reason {
        Reason::Deposed => replica.and_then(|replica| replica.shared().deposed_by()),
        Reason::Signal | Reason::StoreFailed | Reason::PumpEnded => None,
    };
    async move {
        let Some(holder) = deposed_by else { return };
        if tokio::time::timeout(GRACE, engine.announce_deposition(&holder)).await.is_err() {
            tracing::warn!(
                "notices of the deposition were aborted after the grace period; the operator is not notified"
            );
        }
    }
}

/// Resolves when a signal that the process already listens to stops the start. Until then signals end the process.
async fn stopped(signals: &mut Option<Signals>) {
    match signals {
        Some(signals) => signals.stop().await,
        None => std::future::pending().await,
    }
}

/// The shipping of a replicated store's log, and its part in the engine.
type Shipping = (Option<Active>, Option<Replication>);

/// Starts shipping the log of a replicated store. `None` if a signal stopped the start: the base of a migrated store
/// may take long.
async fn replicate(
    claim: Option<Claim>,
    store: &Arc<Store>,
    signals: &mut Option<Signals>,
) -> Result<Option<Shipping>, CliError> {
    let Some(claim) = claim else { return Ok(Some((None, None))) };
    let meters = claim.meters();
    let active = tokio::select! {
        active = claim.ship(store) => active?,
        () = stopped(signals) => return Ok(None),
    };
    let replication = Replication::new(Arc::clone(active.shared()), Some(meters));
    Ok(Some((Some(active), Some(replication))))
}

/// Writes the service's addresses to a file next to the store.
fn write_addresses(
    store: &Store,
    http: &[SocketAddr],
    metrics: &Metrics,
    bounces: &Bounces,
    submission: &Submission,
) -> Result<(), CliError> {
    let bound = Addresses {
        http,
        metrics: metrics.address,
        bounces: &bounces.addresses,
        submission: &submission.addresses,
        submissions: &submission.tls_addresses,
    };
    addresses::write(store.directory(), &bound).map_err(|error| broken(addresses::FILE, &error))
}

/// Creates the engine over `ground`, with its replication if configured.
fn engine(
    config: &Config,
    ground: &LockedStore,
    resolver: Arc<dyn Resolve>,
    is_dev: bool,
    replication: Option<Replication>,
) -> Result<Arc<Engine>, CliError> {
    let LockedStore { store, clock, entropy, .. } = ground;
    let settings = settings::engine(config, store, if is_dev { Mode::Dev } else { Mode::Serve })?;
    let engine = Engine::new(Arc::clone(store), Arc::clone(clock), Arc::clone(entropy), resolver, settings);
    if let Some(replication) = replication {
        engine.replication.get_or_init(|| Arc::new(replication));
    }
    Ok(Arc::new(engine))
}

/// Returns the sources of the service's status.
fn status(
    config: &Config,
    ground: &LockedStore,
    started_at: Timestamp,
    certificate: Option<Arc<PresentedCertificate>>,
    requests: &Arc<RequestMeters>,
) -> StatusSources {
    let doctor = InService::new(config, ground.store.directory(), Arc::clone(&ground.clock));
    StatusSources {
        started_at,
        certificate,
        last_errors: recent_warnings::latest,
        requests: Arc::clone(requests),
        doctor: Arc::new(doctor),
    }
}

pub(super) fn broken(what: &str, why: &dyn std::fmt::Display) -> CliError {
    CliError::new(Exit::Failed, format!("cannot set up {what}"), why.to_string(), "")
}
