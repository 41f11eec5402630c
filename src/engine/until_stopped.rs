//! Ports that begin no work once the service stops. A call that has not begun by then never resolves. Its
//! caller records no outcome, so the work is due again after the restart.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ports::{
    BoxFuture, PolicyHosts, Post, PostOutcome, Requester, Session, Target, Transmit, Unfetched, WebhookRequest,
};
use super::stop_signal::StopSignal;
use crate::domain::hostname::DomainName;
use crate::smtp::outcome::Outcome;

/// A port for work that ends with the process: nothing waits for its calls.
pub(super) struct UntilStopped<P: ?Sized> {
    port: Arc<P>,
    stop: StopSignal,
}

impl<P: ?Sized> UntilStopped<P> {
    pub(super) const fn new(port: Arc<P>, stop: StopSignal) -> Self {
        Self { port, stop }
    }

    /// Resolves with the result of `call`, unless the service stops before.
    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            () = self.stop.wait() => pending().await,
            result = call => result,
        }
    }
}

impl Transmit for UntilStopped<dyn Transmit> {
    fn connect<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn Session>, Outcome>> {
        Box::pin(self.call(self.port.connect(target)))
    }
}

impl PolicyHosts for UntilStopped<dyn PolicyHosts> {
    fn sts_policy<'a>(
        &'a self,
        domain: &'a DomainName,
        requester: Requester,
    ) -> BoxFuture<'a, Result<String, Unfetched>> {
        Box::pin(self.call(self.port.sts_policy(domain, requester)))
    }
}

impl Post for UntilStopped<dyn Post> {
    fn post<'a>(&'a self, request: WebhookRequest, begun: &'a AtomicBool) -> BoxFuture<'a, PostOutcome> {
        let stopped = async move {
            self.stop.wait().await;
            // The receiver may have acted on a request that has begun, so its outcome is recorded.
            if begun.load(Ordering::Acquire) {
                pending().await
            }
        };
        Box::pin(async move {
            tokio::select! {
                biased;
                () = stopped => pending().await,
                outcome = self.port.post(request, begun) => outcome,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::sync::Semaphore;

    use super::*;

    /// A receiver whose connections and answers each need a permit.
    struct Receiver {
        connections: Semaphore,
        answers: Semaphore,
    }

    impl Post for Receiver {
        fn post<'a>(&'a self, _: WebhookRequest, begun: &'a AtomicBool) -> BoxFuture<'a, PostOutcome> {
            Box::pin(async move {
                self.connections.acquire().await.unwrap().forget();
                begun.store(true, Ordering::Release);
                self.answers.acquire().await.unwrap().forget();
                PostOutcome { status: Some(200), error: None, duration: Duration::ZERO, peer: None, body: None }
            })
        }
    }

    fn request() -> WebhookRequest {
        let url = url::Url::parse("https://example.com/hook").unwrap();
        WebhookRequest { url, headers: vec![], body: Bytes::new(), requester: Requester::SERVICE }
    }

    #[test]
    fn a_request_that_has_not_begun_at_the_stop_never_ends_and_a_begun_one_does() {
        let receiver = Arc::new(Receiver { connections: Semaphore::new(1), answers: Semaphore::new(0) });
        let stop = StopSignal::default();
        let port: UntilStopped<dyn Post> = UntilStopped::new(Arc::<Receiver>::clone(&receiver), stop.clone());
        let mut context = Context::from_waker(Waker::noop());
        let flags = [const { AtomicBool::new(false) }; 3];
        let mut begun = pin!(port.post(request(), &flags[0]));
        let mut connecting = pin!(port.post(request(), &flags[1]));
        assert!(begun.as_mut().poll(&mut context).is_pending());
        assert!(connecting.as_mut().poll(&mut context).is_pending());
        stop.set();
        receiver.connections.add_permits(2);
        receiver.answers.add_permits(2);
        let mut late = pin!(port.post(request(), &flags[2]));
        assert!(connecting.as_mut().poll(&mut context).is_pending() && late.as_mut().poll(&mut context).is_pending());
        assert!(begun.as_mut().poll(&mut context).is_ready());
        assert_eq!(flags.each_ref().map(|flag| flag.load(Ordering::Acquire)), [true, false, false]);
    }
}
