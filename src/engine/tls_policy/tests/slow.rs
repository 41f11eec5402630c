//! Tests of slow policy hosts: they don't block messages, and their policies apply once fetched.

use super::*;

/// Creates a world in which messages wait only briefly.
fn impatient() -> World {
    let mut world = World::new();
    let (engine, hosts) = (world.engine(), world.outside.clone());
    world.policies.cache = Arc::new(StsCache::new(engine, hosts, Duration::from_millis(5)));
    world
}

/// Waits for running fetches.
async fn lands(world: &World) {
    while world.policies.cache.is_fetching(&domain()) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_slow_policy_host_blocks_no_message_and_its_policy_applies_once_fetched() {
    let world = impatient();
    world.announces("1");
    world.publishes("enforce", MX);
    world.outside.is_silent.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let policy = world.policy().await;
        assert_eq!(world.policies.requirement(&policy, &host(&[]), Requester::SERVICE).await, Err(NoPolicy::Unasked));
    }
    world.outside.is_silent.store(false, Ordering::SeqCst);
    lands(&world).await;
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::MtaSts));
    assert_eq!(world.fetches(), 1, "the fetch continued");
}

#[tokio::test]
async fn a_stored_policy_applies_while_its_successor_is_fetched() {
    let world = impatient();
    world.announces("1");
    world.publishes("enforce", MX);
    world.policy().await;
    lands(&world).await;
    world.announces("2");
    world.publishes("none", MX);
    world.outside.is_silent.store(true, Ordering::SeqCst);
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::MtaSts));
    world.outside.is_silent.store(false, Ordering::SeqCst);
    lands(&world).await;
    assert_eq!(world.requires(&host(&[])).await, Ok(TlsPolicy::Opportunistic));
}
