//! Tests of servers that answer no RSET.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn a_server_that_ignores_resets_delays_one_message_and_gets_a_new_connection_for_each_later_one() {
    let world = World::new().await;
    let (id, _gate) = world.waits_for_reset().await;
    // The deadline of RSET passes.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(20)).await;
    tokio::time::resume();
    world.is_delivered(id).await;
    for n in 0..3 {
        let id = world.send(&format!("next{n}@slow.test")).await;
        world.is_delivered(id).await;
    }
    assert_eq!(*world.net.resets.borrow(), 1, "no connection is kept");
    assert_eq!(world.net.opened.lock().unwrap().len(), 5, "each message has its own");
}
