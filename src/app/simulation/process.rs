//! The serving processes of a run's machines. After a takeover there are two: until the old process sees its
//! successor's claim, it still serves the clients that reach it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::replica;
use super::service::{self, DispatcherTask, Service, Workers};
use super::world::World;
use crate::engine::replica::Shared;

/// Grace period for work in flight when the service stops.
pub(super) const GRACE: Duration = Duration::from_secs(30);

/// The workers of a machine's store.
#[derive(Default)]
pub(super) struct Host {
    pub(super) workers: Workers,
    /// Is notified when the workers have work.
    pub(super) has_work: Notify,
}

/// The workers of both machines.
pub(super) type Hosts = Arc<[Host; 2]>;

impl Host {
    /// Ends the store's process.
    pub(super) fn clear(&self) {
        *self.workers.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A process that serves.
pub(super) struct Process {
    /// Number of the machine.
    pub(super) node: usize,
    /// Number in the run.
    pub(super) life: u32,
    pub(super) service: Arc<Service>,
    /// Replication, in runs with a replica.
    pub(super) shared: Option<Arc<Shared>>,
    dispatcher: Mutex<Option<DispatcherTask>>,
}

impl Process {
    pub(super) fn new(world: &World, node: usize, (service, dispatcher): (Arc<Service>, DispatcherTask)) -> Self {
        let shared = dispatcher.replica.as_ref().map(|replica| Arc::clone(replica.shared()));
        Self { node, life: world.life(), service, shared, dispatcher: Mutex::new(Some(dispatcher)) }
    }

    /// Stops the process normally. Returns whether all work in flight ended.
    pub(super) async fn stop(&self, world: &World, hosts: &Hosts) -> bool {
        let taken = self.dispatcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut dispatcher) = taken else { return false };
        let host = &hosts[self.node];
        let has_finished = tokio::select! {
            biased;
            has_finished = dispatcher.stop(GRACE) => has_finished,
            () = service::serve_workers(world, host) => unreachable!("workers never end"),
        };
        replica::close(world, &self.service.engine.store, host, GRACE).await;
        if let Some(replica) = dispatcher.replica {
            let is_released = replica.stop(GRACE).await;
            world.note(format!("the log was released: {is_released}"));
        }
        has_finished
    }

    /// Resolves once another machine has claimed the log.
    pub(super) async fn deposed(&self) {
        match &self.shared {
            Some(shared) => shared.deposed().await,
            None => std::future::pending().await,
        }
    }
}

/// The processes that clients reach, oldest first.
#[derive(Clone)]
pub(super) struct Front(Arc<(Mutex<Vec<Arc<Process>>>, Notify)>);

impl Front {
    /// Creates the list with one process.
    pub(super) fn of(process: Process) -> Self {
        Self(Arc::new((Mutex::new(vec![Arc::new(process)]), Notify::new())))
    }

    fn processes(&self) -> MutexGuard<'_, Vec<Arc<Process>>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the newest process.
    pub(super) fn main(&self) -> Arc<Process> {
        Arc::clone(self.processes().last().expect("a process serves"))
    }

    /// Returns the process that a client reaches.
    pub(super) fn reached(&self, world: &World) -> Arc<Process> {
        let processes = self.processes();
        match &processes[..] {
            [only] => Arc::clone(only),
            several => Arc::clone(&several[usize::try_from(world.below(several.len() as u64)).unwrap()]),
        }
    }

    /// Adds a successor.
    pub(super) fn push(&self, process: Process) {
        self.processes().push(Arc::new(process));
        self.0.1.notify_waiters();
    }

    /// Removes the oldest process, which was deposed.
    pub(super) fn retire(&self) {
        self.processes().remove(0);
    }

    /// Resolves once the store of the newest process has failed.
    pub(super) async fn failed(&self) {
        loop {
            let process = self.main();
            tokio::select! {
                biased;
                _ = process.service.engine.store.health().failed() => return,
                () = self.0.1.notified() => {}
            }
        }
    }
}
