//! Runs checks concurrently and returns their results in order.

use std::future::{Future, poll_fn};
use std::task::Poll;

/// Runs all futures concurrently on this task; the results are in the order of the futures.
pub(super) async fn join_in_order<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(move |context| {
        for (future, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        match running.iter().all(|(_, output)| output.is_some()) {
            true => Poll::Ready(running.drain(..).filter_map(|(_, output)| output).collect()),
            false => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::*;

    #[tokio::test]
    async fn results_are_in_the_order_of_the_futures() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let waits: Pin<Box<dyn Future<Output = u8>>> = Box::pin(async { receiver.await.unwrap() });
        let sends: Pin<Box<dyn Future<Output = u8>>> = Box::pin(async {
            sender.send(1).unwrap();
            2
        });
        assert_eq!(join_in_order([waits, sends]).await, [1, 2]);
    }
}
