//! The object store of a run: a bucket in memory with drawn latency, failures and outages.

use std::sync::Arc;

use crate::app::simulation::plan::FaultClass;
use crate::app::simulation::world::World;
use crate::engine::memory_bucket::{BucketCall, BucketFault, MemoryBucket};
use crate::engine::ports::BucketOperation;

/// Returns the bucket of a process on the machine `node`, or on none of the machines.
pub(super) fn connect(world: &Arc<World>, node: Option<usize>) -> MemoryBucket {
    let bucket = world.objects.bucket();
    let (of_faults, of_latency) = (Arc::clone(world), Arc::clone(world));
    bucket.draw(move |call| {
        if node.is_some_and(|node| of_faults.state().nodes[node].cut_at.is_some()) {
            return Some(BucketFault::Unreachable);
        }
        let fault = draw(&of_faults, call);
        if let Some(fault) = fault {
            of_faults.note(format!("the bucket fails at {} of {}: {fault:?}", call.operation, call.name));
            let now = of_faults.clocks.elapsed();
            of_faults.state().bucket_failed_at = Some(now);
        }
        fault
    });
    bucket.delay(move || {
        let plan = of_latency.plan.replica.as_ref().map_or_else(Default::default, |replica| replica.latency);
        let most = u64::try_from(plan.as_millis()).unwrap();
        (of_latency.millis(0, most), of_latency.millis(0, most))
    });
    bucket
}

/// Returns the fault of a call, if it has one.
fn draw(world: &World, call: &BucketCall<'_>) -> Option<BucketFault> {
    let objects = &world.objects;
    // Changes whose callers have given up are done at any later time.
    if world.strikes(FaultClass::Bucket, 100) || !world.state().is_hostile {
        objects.land();
    }
    let (now, outages) = (world.clocks.elapsed(), world.plan.replica.as_ref().map(|replica| &replica.outages));
    let is_out = outages.is_some_and(|outages| outages.iter().any(|(from, to)| (*from..*to).contains(&now)));
    if is_out && world.plan.faults.contains(&FaultClass::Outage) && world.state().is_hostile {
        return Some(BucketFault::Unreachable);
    }
    let refusal = world.plan.replica.as_ref().and_then(|replica| replica.refusal);
    let is_refused =
        call.operation == BucketOperation::Remove && refusal.is_some_and(|(from, to)| (from..to).contains(&now));
    if is_refused && world.plan.faults.contains(&FaultClass::Bucket) && world.state().is_hostile {
        return Some(BucketFault::Forbidden);
    }
    if call.operation == BucketOperation::List && world.strikes(FaultClass::StaleLists, 100) {
        return Some(BucketFault::Stale);
    }
    if world.strikes(FaultClass::StaleLists, 50) {
        objects.remember();
    }
    if !world.strikes(FaultClass::Bucket, 120) {
        return None;
    }
    let faults =
        [BucketFault::AnswerLost, BucketFault::NotDone, BucketFault::DoneLater, BucketFault::Throttled, CONFLICT];
    let fault = world.pick(&faults);
    // Only create requests conflict.
    Some(if fault == CONFLICT && call.operation != BucketOperation::Create { BucketFault::Throttled } else { fault })
}

const CONFLICT: BucketFault = BucketFault::Conflict;
