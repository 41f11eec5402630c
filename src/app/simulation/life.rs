//! One process from opening its store to its end: a normal stop, a kill, a power cut or a failure.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use super::plan::{Action, FaultClass};
use super::process::{Front, Host, Hosts, Process};
use super::reports::Report;
use super::service::{self, Service};
use super::world::{End, Progress, Tenant, World};
use super::{bounces, clients, invariants, isolation, receivers, replica, reports};
use crate::domain::api_key::Scopes;
use crate::domain::stream::Stream;
use crate::domain::webhook_url::WebhookUrl;
use crate::engine::Caller;
use crate::engine::accounts::NewKey;
use crate::engine::endpoints::{EndpointChange, NewEndpoint};
use crate::engine::replica::ReplicaError;
use crate::store::single_threaded::Turns;

/// Time for answering callers after the store has failed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Elapsed time after the last fault within which all work must end: the longest delay between two attempts of a
/// webhook, the longest lifetime of a message, and a doubt about the clock.
const LIVENESS: Duration = Duration::from_secs(60 * 3600);
/// Time within which a machine accepts changes after the bucket's last fault.
const RECOVERY: Duration = Duration::from_secs(600);
/// Maximum number of starts that a faulty disk may prevent.
const STARTS_MAX: u32 = 20;

/// Runs one process, and returns its end; `None` if it could not start. In runs with a standby, it may be two.
pub(super) fn live(world: &Arc<World>) -> Option<End> {
    let (hosts, is_off) = (Hosts::default(), Arc::new(Notify::new()));
    let runtime = runtime(world, &hosts, &is_off);
    let end = runtime.block_on(async {
        world.clocks.start();
        replica::connect_all(world);
        let starting = tokio::select! {
            biased;
            () = is_off.notified() => Err(None),
            started = start(world, &hosts) => started.map_err(Some),
        };
        let front = match starting {
            Ok(process) => Front::of(process),
            Err(error) => {
                not_started(world, error.as_ref());
                world.clocks.stop();
                return None;
            }
        };
        let ending = async {
            tokio::select! {
                biased;
                () = is_off.notified() => End::Off,
                () = world.clocks.is_stuck() => {
                    world.find("liveness: the service repeats work without a pause".to_owned());
                    End::Failed
                }
                () = front.failed() => failed(world).await,
                () = deposed(world, &front) => {
                    world.find("one holder: a machine without a standby was deposed".to_owned());
                    End::Failed
                }
                end = run(world, &front, &hosts) => end,
            }
        };
        let end = tokio::select! {
            biased;
            end = ending => end,
            () = service::serve_workers(world, &hosts[0]) => unreachable!("workers never end"),
            () = service::serve_workers(world, &hosts[1]) => unreachable!("workers never end"),
        };
        isolation::ends_serving(world);
        let end = finish(world, &front.main(), &hosts, end).await;
        world.clocks.stop();
        Some(end)
    });
    // The running tasks end with their runtime. After a kill their further writes reach no disk.
    drop(runtime);
    hosts.iter().for_each(Host::clear);
    if !matches!(end, Some(End::Stopped)) {
        world.main_machine().restart();
    }
    end
}

/// Creates a runtime of one thread, which looks for work of the stores before it sleeps.
fn runtime(world: &Arc<World>, hosts: &Hosts, is_off: &Arc<Notify>) -> Runtime {
    let (world, hosts, is_off) = (Arc::clone(world), Arc::clone(hosts), Arc::clone(is_off));
    let look = move || {
        for host in &*hosts {
            let mut workers = host.workers.lock().unwrap_or_else(PoisonError::into_inner);
            if workers.as_mut().is_some_and(Turns::has_work) {
                host.has_work.notify_one();
            }
        }
        if world.main_machine().is_off() {
            is_off.notify_one();
        }
    };
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).on_thread_park(look).build();
    runtime.expect("a runtime of one thread")
}

/// Claims the log if there is a replica, opens the store, and starts the service.
async fn start(world: &Arc<World>, hosts: &Hosts) -> Result<Process, ReplicaError> {
    let node = world.state().main;
    let workers = &hosts[node].workers;
    let claim = replica::claim_at_start(world, node, workers).await?;
    let opened = service::open(world, node, workers, claim.as_ref().and_then(|claim| claim.start(world)))?;
    let process = Process::new(world, node, Service::start(world, opened, claim).await?);
    replica::promoted(world, &process.service.engine);
    Ok(process)
}

/// Resolves once another machine has claimed the log although there is no standby.
async fn deposed(world: &World, front: &Front) {
    match replica::fence::has_standby(world) {
        true => std::future::pending().await,
        false => front.main().deposed().await,
    }
}

/// Handles a failed start, which is allowed only while the disk or the bucket has faults. Without an error the machine
/// was turned off.
fn not_started(world: &World, error: Option<&ReplicaError>) {
    let Some(error) = error else { return world.note("turned off at the start") };
    world.note(format!("could not start: {error}"));
    if replica::has_successor(world, error) {
        return;
    }
    if !replica::is_of_faults(error) {
        world.find(format!("liveness: the service does not start: {error}"));
    }
    let state = world.state();
    let is_hostile = state.is_hostile || state.lives.is_empty();
    let failed_before = state.lives.iter().rev().take_while(|end| **end == End::Failed).count();
    drop(state);
    if !is_hostile || u32::try_from(failed_before).unwrap() > STARTS_MAX {
        world.find(format!("liveness: the service does not start: {error}"));
    }
}

/// Ends the process as `end` says.
async fn finish(world: &Arc<World>, process: &Process, hosts: &Hosts, end: End) -> End {
    // Only the newest process is stopped normally.
    world.machine(1 - process.node).restart();
    match end {
        End::Stopped => {
            let has_finished = process.stop(world, hosts).await;
            // Aborted work may have been sent, and is sent again.
            if has_finished { End::Stopped } else { End::Killed }
        }
        // The process has ended and writes nothing more.
        End::Killed | End::Off | End::Failed | End::Finished | End::Lost | End::Deposed => {
            world.machine(process.node).restart();
            end
        }
    }
}

/// The store has failed: callers get an error, then the process ends.
async fn failed(world: &World) -> End {
    if world.main_machine().is_off() {
        return End::Off;
    }
    let may_fail = [FaultClass::Disk, FaultClass::Full, FaultClass::Kill, FaultClass::Power];
    if !may_fail.iter().any(|fault| world.plan.faults.contains(fault)) {
        world.find("liveness: the store failed on a disk without faults".to_owned());
    }
    tokio::time::sleep(LAST_WORDS).await;
    End::Failed
}

/// Runs the planned actions of this process, until one ends it or the run is over.
async fn run(world: &Arc<World>, front: &Front, hosts: &Hosts) -> End {
    let process = front.main();
    if world.state().tenants.is_empty() {
        set_up(world, &process.service).await;
        replica::wait_for_base(&process.service).await;
        world.state().is_hostile = true;
    }
    if replica::shred::has_expired(world) {
        replica::shred::destroyed(world, &process.service).await;
        return End::Finished;
    }
    let now = world.clocks.elapsed();
    world.state().served_at = now;
    world.state().served.push((now, Duration::MAX));
    invariants::after_start(world, &process.service.engine);
    drop(process);
    clients::start(world, front);
    tokio::spawn(bounces::send(Arc::clone(world), front.clone()));
    tokio::spawn(reports::send(Arc::clone(world), front.clone()));
    if replica::fence::has_standby(world) {
        tokio::spawn(replica::stand_by(Arc::clone(world), front.clone(), Arc::clone(hosts)));
    }
    loop {
        let next = world.state().actions_done;
        let Some((at, action)) = world.plan.actions.get(next).copied() else { break };
        tokio::time::sleep(at.saturating_sub(world.clocks.elapsed())).await;
        world.state().actions_done += 1;
        world.note(format!("{action:?}"));
        match action {
            Action::Suppress(number) => {
                tokio::spawn(clients::suppress(Arc::clone(world), front.clone(), number));
            }
            Action::Cancel(number) => {
                tokio::spawn(clients::cancel(Arc::clone(world), front.clone(), number));
            }
            Action::SetClock(by) => world.clocks.set_by(by),
            Action::Disk(fault, after) => world.main_machine().plan(after, fault),
            Action::Stop => return End::Stopped,
            Action::Kill => return End::Killed,
            Action::Failover(failover) => {
                if let Some(end) = replica::fail_over(world, failover) {
                    return end;
                }
            }
            Action::EndFaults => {
                world.main_machine().forgive();
                replica::connect_all(world);
                world.state().is_hostile = false;
            }
        }
    }
    enable_endpoints(world, front).await;
    settle(world, front).await;
    let service = &front.main().service;
    invariants::at_the_end(world, &service.engine);
    isolation::judge(world);
    reports::judge(world, &service.engine).await;
    replica::at_the_end(world, service).await;
    End::Finished
}

/// Creates the tenants.
async fn set_up(world: &Arc<World>, service: &Arc<Service>) {
    let engine = &service.engine;
    for number in 0..world.plan.tenants {
        let name = format!("Tenant {number}").parse().unwrap();
        let account = engine.create_account(name, None, engine.settings.quota).await.unwrap().id;
        let new = NewKey { name: "key".to_owned(), stream: None, scopes: Scopes::ALL, expires_at: None };
        let (_, secret) = engine.create_key(&Caller { account, key: None }, new).await.unwrap();
        let domain = format!("t{number}.example").parse().unwrap();
        engine.create_verified_domain(account, domain, Stream::Transactional).await.unwrap();
        let url = WebhookUrl::parse(&receivers::url(number), |_| true).unwrap();
        let new = NewEndpoint { url, events: None, description: None };
        let (endpoint, _, _) = engine.create_endpoint(account, new).await.unwrap();
        let tenant = Tenant { account, key: secret.expose().to_owned(), endpoint };
        world.state().tenants.push(tenant);
    }
}

/// Enables the endpoints that failures disabled. A takeover may still be in progress, and the lease unconfirmed.
async fn enable_endpoints(world: &Arc<World>, front: &Front) {
    let patience = if world.plan.replica.is_some() { RECOVERY } else { Duration::ZERO };
    let deadline = world.clocks.elapsed() + patience;
    for tenant in world.tenants() {
        loop {
            let change = EndpointChange { enabled: Some(true), ..EndpointChange::default() };
            match front.main().service.engine.update_endpoint(tenant.account, tenant.endpoint, change).await {
                Err(_) if world.clocks.elapsed() < deadline => tokio::time::sleep(Duration::from_secs(1)).await,
                Err(error) => break world.find(format!("liveness: an endpoint can't be enabled: {error:?}")),
                Ok(_) => break,
            }
        }
    }
}

/// Waits until no work is left.
async fn settle(world: &Arc<World>, front: &Front) {
    let deadline = world.clocks.elapsed() + LIVENESS;
    let mut pause = Duration::from_secs(10);
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 3).min(Duration::from_secs(3 * 3600));
        let is_done = |progress: &Progress| !matches!(progress, Progress::Waiting(_) | Progress::InFlight);
        let are_done = world.state().submissions.iter().all(|submission| is_done(&submission.progress))
            && world.state().bounces.iter().all(|bounce| bounce.answer.is_some())
            && world.state().reports.iter().all(Report::is_done);
        let unsettled = invariants::unsettled(world, &front.main().service.engine);
        if are_done && unsettled.is_none() {
            world.note("all work is settled");
            return;
        }
        if world.clocks.elapsed() >= deadline {
            let why = unsettled.unwrap_or_else(|| "a submission, a bounce or a report has no answer".to_owned());
            world
                .find(format!("liveness: not settled {} hours after the last fault: {why}", LIVENESS.as_secs() / 3600));
            return;
        }
    }
}
