//! Tests of a suspended account: its mail is held, still expires, and delays no other mail.

use super::*;
use crate::engine::audit::Behalf;
use crate::engine::wait_reason::WaitReason;

const HOUR: u64 = 3600;

impl World {
    async fn suspend(&self) {
        let done = self.engine.suspend_account(Behalf::operator(self.account), "unpaid".parse().unwrap()).await;
        assert!(done.is_ok());
    }

    async fn resume_account(&self) {
        assert!(self.engine.resume_account(Behalf::operator(self.account)).await.is_ok());
    }
}

#[tokio::test]
async fn mail_of_a_suspended_account_is_held_without_an_attempt_until_it_is_resumed() {
    let world = World::new().await;
    world.suspend().await;
    let ids = [world.send("u@a.test").await, world.send("u@nowhere.test").await];
    world.pass(HOUR).await;
    for id in ids {
        let message = world.message(id);
        let wait = message.waiting.unwrap();
        assert_eq!((world.progress(id), wait.reason), (("queued", 0), WaitReason::Held));
        assert_eq!((wait.until, wait.detail.as_str()), (None, "The account is suspended: unpaid"));
    }
    assert_eq!(world.net.seen().len(), 0);
    let world = world.restarted(vec![mx("direct", &[])]).await;
    world.pass(HOUR).await;
    assert_eq!(ids.map(|id| world.progress(id)), [("queued", 0); 2], "a suspension outlives a restart");
    world.resume_account().await;
    world.pass(0).await;
    assert_eq!(world.progress(ids[0]), ("delivered", 1));
    assert_ne!(world.progress(ids[1]), ("queued", 0));
}

#[tokio::test]
async fn a_retry_due_during_a_suspension_waits_for_its_end() {
    let world = World::new().await;
    world.net.behave("mx.a.test", Behaviour::Says("451 4.7.1 Greylisted, try again later"));
    let id = world.send("u@a.test").await;
    world.pass(0).await;
    assert_eq!(world.progress(id), ("deferred", 1));
    world.suspend().await;
    world.pass(10 * HOUR).await;
    assert_eq!(world.progress(id), ("deferred", 1));
    world.resume_account().await;
    world.pass(0).await;
    assert_eq!(world.progress(id), ("deferred", 2));
}

#[tokio::test]
async fn held_mail_expires_on_time() {
    let world = World::new().await;
    world.suspend().await;
    let id = world.send("u@a.test").await;
    world.pass(48 * HOUR).await;
    assert_eq!(world.progress(id), ("failed", 0));
}
