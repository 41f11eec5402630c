//! The bucket of a replica, independent of the replicated data: its suitability for a log, metrics of its requests, and
//! verification of its objects.

pub mod meters;
pub mod probe;
pub mod verify;

use std::future::poll_fn;
use std::task::Poll;

/// Runs all futures concurrently, and returns their outputs in the order of the futures.
pub(super) async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in &mut running {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(found) => *output = Some(found),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}
