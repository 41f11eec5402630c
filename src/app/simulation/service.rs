//! One process of the service: the real store on the simulated disk, with the real engine, dispatcher, API and
//! submission, wired as in the daemon, and simulated peers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::clock::SimulatedClock;
use super::names::SimulatedNames;
use super::process::Host;
use super::receivers::SimulatedPost;
use super::replica::Claim;
use super::transmit::SimulatedTransmit;
use super::world::World;
use crate::app::dispatcher::run_when_permitted;
use crate::base::entropy::{Entropy, SeededEntropy};
use crate::base::secret::Secret;
use crate::domain::sending_domain::DkimAlgorithm;
use crate::domain::stream::Stream;
use crate::engine::dispatcher::Dispatcher;
use crate::engine::executor::Executor;
use crate::engine::ports::Clock;
use crate::engine::receive::Receiver;
use crate::engine::relay::{Relay, RelayWay};
use crate::engine::replica::{Active, ReplicaError, Replication};
use crate::engine::settings::Settings;
use crate::engine::{EgressRoutes, Engine, Tables};
use crate::http::router::Router;
use crate::http::service::{HttpService, ServiceLimits};
use crate::http::state::Api;
use crate::http::{api, compat, pages};
use crate::mail::dkim_key::{self, GeneratedKey, GenerationFailed};
use crate::net::http_listener::{HttpLimits, HttpServer};
use crate::net::submission::{Submission, SubmissionLimits};
use crate::smtp::rules::Rules;
use crate::smtp::shaping::Shaping;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::open::{OpenError, ReplicaStart, StartOptions, StoreEnvironment};
use crate::store::single_threaded::{Machine, Rng, Turns, draw_limits};

/// RSA key of every domain: generating one takes longer than a run.
const RSA_KEY: &[u8] = include_bytes!("dkim.pk8");

/// A running service.
pub(super) struct Service {
    pub(super) engine: Arc<Engine>,
    pub(super) http: HttpServer<HttpService<Api>>,
    pub(super) submission: Arc<Submission>,
    pub(super) bounces: Arc<Receiver>,
}

/// The dispatcher of a running service.
pub(super) struct DispatcherTask {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), StoreError>>,
    /// The tasks of replication, in runs with a replica.
    pub(super) replica: Option<Active>,
}

/// The store's workers, shared with the hook that checks whether they have work.
pub(super) type Workers = Arc<Mutex<Option<Turns>>>;

/// Opens the store on a machine's disk, and returns it with its clock. Moves its workers to `workers`.
///
/// # Errors
/// Errors of opening the store.
pub(super) fn open(
    world: &World,
    node: usize,
    workers: &Workers,
    replica: Option<ReplicaStart>,
) -> Result<(Store, Arc<SimulatedClock>), OpenError> {
    open_on(world, &world.machine(node), workers, replica)
}

/// Opens the store on any disk.
///
/// # Errors
/// Errors of opening the store.
pub(super) fn open_on(
    world: &World,
    machine: &Machine,
    workers: &Workers,
    replica: Option<ReplicaStart>,
) -> Result<(Store, Arc<SimulatedClock>), OpenError> {
    let clock = Arc::new(SimulatedClock::new(&world.clocks));
    let (time, monotonic) = (Arc::clone(&clock), Arc::clone(&clock));
    let life_seed = world.plan.seed.wrapping_mul(1_000) + u64::from(world.life());
    let entropy = Arc::new(SeededEntropy::new(life_seed));
    let surroundings = StoreEnvironment { now: Arc::new(move || time.time()), entropy };
    let options = StartOptions {
        monotonic: Arc::new(move || monotonic.monotonic()),
        limits: draw_limits(&mut Rng::new(life_seed)),
        replica,
        ..StartOptions::default()
    };
    let (store, turns) = machine.open(surroundings, options)?;
    *workers.lock().unwrap_or_else(PoisonError::into_inner) = Some(turns);
    clock.start(store.clock_past()?);
    Ok((store, clock))
}

/// Creates an engine over an open store.
pub(super) fn engine(world: &Arc<World>, store: Arc<Store>, clock: Arc<SimulatedClock>) -> Engine {
    let (entropy, names) = (Arc::clone(store.entropy()), Arc::new(SimulatedNames(Arc::clone(world))));
    Engine::new(store, clock, entropy, names, settings(world))
}

impl Service {
    /// Starts the service over an open store, whose log was claimed in runs with a replica.
    ///
    /// # Errors
    /// Replication can't be started.
    pub(super) async fn start(
        world: &Arc<World>,
        (store, clock): (Store, Arc<SimulatedClock>),
        claim: Option<Claim>,
    ) -> Result<(Arc<Self>, DispatcherTask), ReplicaError> {
        let (entropy, store) = (Arc::clone(store.entropy()), Arc::new(store));
        let replica = match claim {
            Some(claim) => claim.ship(world, &store).await?,
            None => None,
        };
        let engine = Arc::new(engine(world, store, Arc::clone(&clock)));
        let (names, clock) = (Arc::new(SimulatedNames(Arc::clone(world))), clock as Arc<dyn Clock>);
        let shared = replica.as_ref().map(|replica| Arc::clone(replica.shared()));
        if let Some(shared) = &shared {
            engine.replication.get_or_init(|| Arc::new(Replication::new(Arc::clone(shared), None)));
        }
        let transmit = Arc::new(SimulatedTransmit { world: Arc::clone(world), life: world.life() });
        let post = Arc::new(SimulatedPost { world: Arc::clone(world), life: world.life() });
        let rules = Arc::new(Rules::built_in().clone());
        let bounces = Arc::new(Receiver::new(Arc::clone(&engine), Arc::clone(&rules)));
        let tables = Tables { rules, shaping: Arc::new(Shaping::built_in().clone()) };
        let routes = EgressRoutes { relays: vec![direct()], port: 25, capture: None };
        let dispatcher = Dispatcher::new(Arc::clone(&engine), transmit, names, post, routes, tables);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run_when_permitted(shared, dispatcher, stopped));
        let http = serve(&engine, &clock, &entropy);
        let submission = Submission::new(Arc::clone(&engine), "mail.example.com", SubmissionLimits::default());
        Ok((Arc::new(Self { engine, http, submission, bounces }), DispatcherTask { stop, task, replica }))
    }
}

impl DispatcherTask {
    /// Stops the dispatcher, and returns whether all work in flight ended within `grace`.
    pub(super) async fn stop(&mut self, grace: Duration) -> bool {
        self.stop.send_replace(true);
        self.replica.iter().for_each(Active::begin_stop);
        tokio::time::timeout(grace, &mut self.task).await.is_ok()
    }
}

fn serve(engine: &Arc<Engine>, clock: &Arc<dyn Clock>, entropy: &Arc<dyn Entropy>) -> HttpServer<HttpService<Api>> {
    let limits = ServiceLimits::default();
    let budgets = Arc::clone(&limits.budgets);
    let api = Arc::new(Api::new(Arc::clone(engine), Arc::default(), 26_214_400, budgets, None));
    let mut table = api::routes();
    table.extend(pages::routes());
    table.extend(compat::routes(true));
    let router = Router::new(table).expect("the table of routes has no conflict");
    let service = HttpService::new(api, router, Arc::clone(clock), Arc::clone(entropy), limits);
    HttpServer::new(Arc::new(service), HttpLimits::default())
}

fn settings(world: &World) -> Settings {
    Settings {
        executor: Executor::Inline,
        generate_dkim_key: dkim_key_of_seed,
        max_connections: world.plan.connections,
        queue_lifetime: world.plan.queue_lifetime,
        ..Settings::for_tests()
    }
}

fn direct() -> Relay {
    Relay {
        name: "direct".into(),
        ehlo: "mail.example.com".into(),
        way: RelayWay::Mx,
        sources: Vec::new(),
        streams: Stream::ALL.to_vec(),
        warm_up: None,
    }
}

fn dkim_key_of_seed(algorithm: DkimAlgorithm, entropy: &dyn Entropy) -> Result<GeneratedKey, GenerationFailed> {
    match algorithm {
        DkimAlgorithm::RsaSha256 => {
            Ok(GeneratedKey { pkcs8: Secret::new(RSA_KEY), record: "v=DKIM1; k=rsa; p=MIIB".to_owned() })
        }
        DkimAlgorithm::Ed25519Sha256 => dkim_key::generate(algorithm, entropy),
    }
}

/// Runs the workers of a machine's store in turns, as long as it is polled.
pub(super) async fn serve_workers(world: &World, host: &Host) {
    let with = |turn: &mut dyn FnMut(&mut Turns)| {
        if let Some(turns) = &mut *host.workers.lock().unwrap_or_else(PoisonError::into_inner) {
            turn(turns);
        }
    };
    loop {
        let mut due_in = None;
        with(&mut |turns| due_in = turns.due_in());
        tokio::select! {
            biased;
            () = host.has_work.notified() => {}
            () = async { tokio::time::sleep(due_in.unwrap_or_default()).await }, if due_in.is_some() => {
                with(&mut |turns| turns.write(0));
                continue;
            }
        }
        // Disks and thread scheduling take time.
        let pause = world.millis(0, 12);
        if pause > Duration::from_millis(2) {
            tokio::time::sleep(pause - Duration::from_millis(2)).await;
        }
        let most = if world.below(4) == 0 { 1 } else { usize::MAX };
        with(&mut |turns| turns.append());
        with(&mut |turns| turns.write(most));
    }
}
