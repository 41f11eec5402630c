//! A bucket in memory, for tests and simulated processes. Several processes share one [`MemoryStore`], each through its
//! own [`MemoryBucket`]. A fault can be injected into each call. Without a drawn latency, calls complete at once and
//! need no runtime.
//!
//! Without faults, reads are linearizable and conditions are honoured.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::ports::{
    BoxFuture, Bucket, BucketError, BucketErrorKind, BucketOperation, BucketResult, BucketSettings, Creation, Expiry,
    ObjectInfo, ObjectPage, Versioning,
};
use crate::base::time::Timestamp;

/// Maximum number of names in a page of a list.
const PAGE: usize = 1000;

/// Injected fault of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BucketFault {
    /// Done, but the answer is lost.
    AnswerLost,
    /// The call is not done and not answered.
    NotDone,
    /// No answer. A change is done when [`MemoryStore::land`] is called, under its own condition.
    DoneLater,
    /// 409 without an effect.
    Conflict,
    /// SlowDown without an effect.
    Throttled,
    /// 403 without an effect.
    Forbidden,
    /// The connection fails.
    Unreachable,
    /// A read or list that returns the state at the last [`MemoryStore::remember`], not the current one.
    Stale,
    /// A create whose condition is ignored.
    IgnoredCondition,
}

/// One call, as passed to a source of faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BucketCall<'a> {
    pub(crate) operation: BucketOperation,
    pub(crate) name: &'a str,
}

type FaultSource = Box<dyn FnMut(&BucketCall<'_>) -> Option<BucketFault> + Send>;
/// Source of the times that a request and its answer take.
type LatencySource = Box<dyn FnMut() -> (Duration, Duration) + Send>;

/// A change to the objects.
#[derive(Clone)]
enum Change {
    Create(String, Bytes),
    Overwrite(String, Bytes),
    Remove(String),
}

#[derive(Default)]
struct Shared {
    objects: BTreeMap<String, Bytes>,
    /// The objects that stale reads return.
    remembered: BTreeMap<String, Bytes>,
    /// Delayed changes whose callers gave up, in call order.
    late: VecDeque<Change>,
    date: Timestamp,
    versioning: Option<Versioning>,
    has_object_lock: bool,
    expiries: Vec<Expiry>,
}

impl Shared {
    fn apply(&mut self, change: Change, honours_condition: bool) -> Creation {
        match change {
            Change::Create(name, _) if honours_condition && self.objects.contains_key(&name) => {
                return Creation::Exists;
            }
            Change::Create(name, bytes) | Change::Overwrite(name, bytes) => drop(self.objects.insert(name, bytes)),
            Change::Remove(name) => drop(self.objects.remove(&name)),
        }
        Creation::Created
    }
}

/// The objects of a bucket, shared by its processes. Clones are the same bucket.
#[derive(Clone, Default)]
pub(crate) struct MemoryStore(Arc<Mutex<Shared>>);

impl MemoryStore {
    /// Returns a bucket client for one process.
    pub(crate) fn bucket(&self) -> MemoryBucket {
        MemoryBucket { store: self.clone(), plan: Arc::default() }
    }

    /// Applies the delayed changes in call order. Returns their number.
    pub(crate) fn land(&self) -> usize {
        let mut shared = self.shared();
        let late = std::mem::take(&mut shared.late);
        let count = late.len();
        for change in late {
            shared.apply(change, true);
        }
        count
    }

    /// Makes stale reads return the current objects from now on.
    pub(crate) fn remember(&self) {
        let mut shared = self.shared();
        shared.remembered = shared.objects.clone();
    }

    /// Returns another bucket with the current objects.
    pub(crate) fn copy(&self) -> Self {
        let objects = self.shared().objects.clone();
        Self(Arc::new(Mutex::new(Shared { objects, ..Shared::default() })))
    }

    /// Sets the bucket's clock.
    pub(crate) fn set_date(&self, date: Timestamp) {
        self.shared().date = date;
    }

    /// Sets the bucket's settings.
    pub(crate) fn set_settings(&self, versioning: Option<Versioning>, has_object_lock: bool, expiries: Vec<Expiry>) {
        let mut shared = self.shared();
        (shared.versioning, shared.has_object_lock, shared.expiries) = (versioning, has_object_lock, expiries);
    }

    /// Returns all names, ascending.
    pub(crate) fn names(&self) -> Vec<String> {
        self.shared().objects.keys().cloned().collect()
    }

    /// Returns an object's bytes.
    pub(crate) fn object(&self, name: &str) -> Option<Bytes> {
        self.shared().objects.get(name).cloned()
    }

    /// Sets or removes an object directly, without a call of a process.
    pub(crate) fn set_object(&self, name: &str, bytes: Option<Bytes>) {
        let change = match bytes {
            Some(bytes) => Change::Overwrite(name.to_owned(), bytes),
            None => Change::Remove(name.to_owned()),
        };
        self.shared().apply(change, false);
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Planned faults of one process.
#[derive(Default)]
struct Plan {
    is_cut_off: bool,
    next: BTreeMap<BucketOperation, VecDeque<BucketFault>>,
    source: Option<FaultSource>,
    latency: Option<LatencySource>,
    calls: BTreeMap<BucketOperation, u64>,
}

/// One process's client of a [`MemoryStore`]. Clones share their faults.
#[derive(Clone)]
pub(crate) struct MemoryBucket {
    store: MemoryStore,
    plan: Arc<Mutex<Plan>>,
}

impl MemoryBucket {
    /// Injects a fault into the next call of this operation. Several faults apply in injection order.
    pub(crate) fn inject(&self, operation: BucketOperation, fault: BucketFault) {
        self.plan().next.entry(operation).or_default().push_back(fault);
    }

    /// Sets a source of faults for calls without an injected fault.
    pub(crate) fn draw(&self, source: impl FnMut(&BucketCall<'_>) -> Option<BucketFault> + Send + 'static) {
        self.plan().source = Some(Box::new(source));
    }

    /// Sets a source of latencies: the times of a request and of its answer. A caller that is dropped in between does
    /// not learn whether the call was done.
    pub(crate) fn delay(&self, latency: impl FnMut() -> (Duration, Duration) + Send + 'static) {
        self.plan().latency = Some(Box::new(latency));
    }

    /// Disconnects this process from the bucket, or connects it again.
    pub(crate) fn set_cut_off(&self, is_cut_off: bool) {
        self.plan().is_cut_off = is_cut_off;
    }

    /// Returns the number of calls of an operation by this process.
    pub(crate) fn calls(&self, operation: BucketOperation) -> u64 {
        self.plan().calls.get(&operation).copied().unwrap_or_default()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, call: &BucketCall<'_>) -> Option<BucketFault> {
        let mut plan = self.plan();
        *plan.calls.entry(call.operation).or_default() += 1;
        if plan.is_cut_off {
            return Some(BucketFault::Unreachable);
        }
        let injected = plan.next.get_mut(&call.operation).and_then(VecDeque::pop_front);
        injected.or_else(|| plan.source.as_mut().and_then(|source| source(call)))
    }

    /// Performs a call between its request and its answer.
    fn call<'a, T: Send>(
        &'a self,
        act: impl FnOnce() -> BucketResult<T> + Send + 'a,
    ) -> BoxFuture<'a, BucketResult<T>> {
        Box::pin(async move {
            let latency = self.plan().latency.as_mut().map(|latency| latency());
            let Some((request, answer)) = latency else { return act() };
            sleep(request).await;
            let done = act();
            sleep(answer).await;
            done
        })
    }

    fn change(&self, call: BucketCall<'_>, change: Change) -> BucketResult<Creation> {
        let fault = self.fault(&call);
        let mut shared = self.store.shared();
        match fault {
            None | Some(BucketFault::Stale) => return Ok(shared.apply(change, true)),
            Some(BucketFault::IgnoredCondition) => return Ok(shared.apply(change, false)),
            Some(BucketFault::AnswerLost) => drop(shared.apply(change, true)),
            Some(BucketFault::DoneLater) => shared.late.push_back(change),
            Some(
                BucketFault::NotDone
                | BucketFault::Conflict
                | BucketFault::Throttled
                | BucketFault::Forbidden
                | BucketFault::Unreachable,
            ) => {}
        }
        Err(error(call, fault))
    }

    fn look<T>(&self, call: BucketCall<'_>, look: impl FnOnce(&BTreeMap<String, Bytes>) -> T) -> BucketResult<T> {
        let fault = self.fault(&call);
        let shared = self.store.shared();
        match fault {
            None | Some(BucketFault::IgnoredCondition) => Ok(look(&shared.objects)),
            Some(BucketFault::Stale) => Ok(look(&shared.remembered)),
            Some(_) => Err(error(call, fault)),
        }
    }

    fn setting<'a, T: Send + 'a>(
        &'a self,
        look: impl FnOnce(&Shared) -> T + Send + 'a,
    ) -> BoxFuture<'a, BucketResult<T>> {
        self.call(move || {
            let call = BucketCall { operation: BucketOperation::Settings, name: "" };
            match self.fault(&call) {
                None => Ok(look(&self.store.shared())),
                fault => Err(error(call, fault)),
            }
        })
    }
}

fn error(call: BucketCall<'_>, fault: Option<BucketFault>) -> BucketError {
    let kind = match fault {
        Some(BucketFault::Conflict) => BucketErrorKind::Conflict,
        Some(BucketFault::Throttled) => BucketErrorKind::Throttled,
        Some(BucketFault::Forbidden) => BucketErrorKind::Forbidden,
        Some(BucketFault::Unreachable) => BucketErrorKind::Unreachable,
        _ => BucketErrorKind::Unknown,
    };
    BucketError { kind, operation: call.operation, name: call.name.to_owned(), message: format!("injected: {fault:?}") }
}

impl Bucket for MemoryBucket {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<Creation>> {
        let call = BucketCall { operation: BucketOperation::Create, name };
        self.call(move || self.change(call, Change::Create(name.to_owned(), bytes)))
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<Option<Bytes>>> {
        let call = BucketCall { operation: BucketOperation::Read, name };
        self.call(move || self.look(call, |objects| objects.get(name).cloned()))
    }

    fn read_range<'a>(&'a self, name: &'a str, from: u64, length: u64) -> BoxFuture<'a, BucketResult<Option<Bytes>>> {
        let call = BucketCall { operation: BucketOperation::Read, name };
        let range = move |objects: &BTreeMap<String, Bytes>| {
            let bytes = objects.get(name)?;
            let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
            let to = from.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)).min(bytes.len());
            Some(bytes.slice(from..to))
        };
        self.call(move || self.look(call, range))
    }

    fn list<'a>(&'a self, prefix: &'a str, after: &'a str) -> BoxFuture<'a, BucketResult<ObjectPage>> {
        let call = BucketCall { operation: BucketOperation::List, name: prefix };
        let page = move |objects: &BTreeMap<String, Bytes>| {
            let matching = objects.iter().filter(|(name, _)| name.starts_with(prefix) && name.as_str() > after);
            let info = |(name, bytes): (&String, &Bytes)| ObjectInfo { name: name.clone(), size: bytes.len() as u64 };
            let mut found: Vec<_> = matching.take(PAGE + 1).map(info).collect();
            let is_last = found.len() <= PAGE;
            found.truncate(PAGE);
            ObjectPage { objects: found, is_last }
        };
        self.call(move || self.look(call, page))
    }

    fn overwrite<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<()>> {
        let call = BucketCall { operation: BucketOperation::Overwrite, name };
        self.call(move || self.change(call, Change::Overwrite(name.to_owned(), bytes)).map(drop))
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<()>> {
        let call = BucketCall { operation: BucketOperation::Remove, name };
        self.call(move || self.change(call, Change::Remove(name.to_owned())).map(drop))
    }

    fn date(&self) -> Option<Timestamp> {
        Some(self.store.shared().date).filter(|date| *date > Timestamp::ZERO)
    }
}

impl BucketSettings for MemoryBucket {
    fn versioning(&self) -> BoxFuture<'_, BucketResult<Versioning>> {
        self.setting(|shared| shared.versioning.unwrap_or(Versioning::Off))
    }

    fn has_object_lock(&self) -> BoxFuture<'_, BucketResult<bool>> {
        self.setting(|shared| shared.has_object_lock)
    }

    fn expiries(&self) -> BoxFuture<'_, BucketResult<Vec<Expiry>>> {
        self.setting(|shared| shared.expiries.clone())
    }
}

#[cfg(test)]
mod tests;
