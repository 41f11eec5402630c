//! Tests of the effects of an accepted step of the clock: events, webhook deliveries, idempotency keys and lists.

use super::*;
use crate::domain::webhook_url::WebhookUrl;
use crate::engine::endpoints::NewEndpoint;
use crate::engine::events::EventFilter;
use crate::engine::listing::PageRequest;
use crate::engine::messages::MessageFilter;
use crate::store::row::delivery::DeliveryRow;

const PAGE: PageRequest = PageRequest { before: None, limit: 99 };

#[tokio::test]
async fn an_accepted_step_forward_keeps_the_events_and_webhook_deliveries_of_the_doubt() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    let url = WebhookUrl::parse("https://hooks.test/", |_| true).unwrap();
    let endpoint = NewEndpoint { url, events: None, description: None };
    world.engine.create_endpoint(world.account, endpoint).await.unwrap();
    clocks.set_ahead(40 * DAY);
    world.settles().await;
    world.deferred().await;
    let events = || world.engine.events(world.account, EventFilter::default(), PAGE).unwrap().rows.len();
    let deliveries = || {
        let rows = world.engine.store.snapshot().unwrap();
        let rows = rows.sound_rows::<DeliveryRow>(world.account.as_bytes(), 99).unwrap();
        rows.into_iter().map(|(_, row)| row.state).collect::<Vec<_>>()
    };
    assert_eq!((events(), deliveries().len()), (2, 2));
    world.engine.accept_clock().await.unwrap();
    world.settles().await;
    assert!(events() >= 2 && deliveries().len() >= 2);
    let now = clocks.wall();
    assert!(deliveries().iter().all(|state| state.created_at <= now && now.since(state.created_at) < HOUR));
    // The message fails after two days.
    world.pass_on(&clocks, 34 * DAY, DAY).await;
    assert_eq!(events(), 0, "they end with their lifetime");
}

#[tokio::test]
async fn a_key_that_a_clock_ahead_has_bound_is_free_a_day_later() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    assert!(!world.submit_with_key().await);
    world.set_right(&clocks, 5 * DAY).await;
    world.pass_on(&clocks, 23 * HOUR, HOUR).await;
    assert!(world.submit_with_key().await);
    world.pass_on(&clocks, 2 * HOUR, HOUR).await;
    assert!(!world.submit_with_key().await, "it stays bound until the clock has caught up");
}

#[tokio::test]
async fn a_list_up_to_now_has_messages_from_before_and_after_a_clock_ahead_was_corrected() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    world.deferred().await;
    world.set_right(&clocks, 5 * DAY).await;
    world.deferred().await;
    let before = Some(clocks.wall() + MINUTE);
    let messages = MessageFilter { before, ..MessageFilter::default() };
    assert_eq!(world.engine.messages(world.account, messages, PAGE).await.unwrap().rows.len(), 2);
    let events = EventFilter { before, ..EventFilter::default() };
    assert!(world.engine.events(world.account, events, PAGE).unwrap().rows.len() >= 4);
}

#[tokio::test]
async fn an_accepted_clock_stays_accepted_after_a_restart() {
    let clocks = Clocks::new();
    let world = clocks.world().await;
    world.deferred().await;
    clocks.set_ahead(30 * DAY);
    let world = world.restarted_with(&clocks).await;
    assert!(world.engine.clock.doubt().is_some(), "it is 30 days after the last identifier");
    world.engine.accept_clock().await.unwrap();
    world.settles().await;
    let world = world.restarted_with(&clocks).await;
    assert_eq!((world.engine.clock.doubt(), world.engine.clock.now()), (None, clocks.wall()));
}
