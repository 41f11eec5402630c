//! Tests of slow or postponed lookups: which mail waits for them, and which does not.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::world::START;
use super::*;
use crate::base::id::{AccountId, MessageId, Ulid};
use crate::domain::stream::Stream;
use crate::domain::webhook_url::WebhookUrl;
use crate::engine::endpoints::NewEndpoint;
use crate::engine::ports::Requester;
use crate::engine::transfer::routes::{Route, Routes, WAITING_MAX};
use crate::engine::transfer::site::Site;
use crate::engine::wait_reason::WaitReason;
use crate::smtp::shaping::Shaping;
use crate::store::timer::{Timer, TimerKind};

/// Routes of the test alone, over the world's names.
struct Names {
    world: World,
    routes: Arc<Routes>,
}

impl Names {
    async fn new() -> Self {
        let world = World::new().await;
        let routes = Routes::new(Arc::clone(&world.engine), Arc::new(Shaping::built_in().clone()));
        Self { world, routes: Arc::new(routes) }
    }

    fn ask(&self, domain: &str, stream: Stream) -> Route {
        self.ask_for(AccountId::default(), domain, stream)
    }

    fn ask_for(&self, account: AccountId, domain: &str, stream: Stream) -> Route {
        let timer = Timer { account, ..Timer::of_store(START, TimerKind::Transfer) };
        self.routes.get(&domain.parse().unwrap(), timer, stream)
    }

    /// Waits until the site of `domain` is cached.
    async fn know(&self, domain: &str) {
        while self.routes.last_seen(&domain.parse().unwrap()).is_none() {
            tokio::task::yield_now().await;
        }
    }

    fn never_answers(&self, domain: &str) {
        self.world.net.stuck.lock().unwrap().insert(domain.to_owned());
    }
}

fn site(domain: &str) -> Route {
    Route::To(Site::Servers(format!("mx.{domain}").into()))
}

#[tokio::test]
async fn names_of_transactional_mail_are_looked_up_before_those_of_marketing_mail() {
    let names = Names::new().await;
    for n in 0..1500 {
        let domain = format!("slow{n}.test");
        names.never_answers(&domain);
        assert_eq!(names.ask(&domain, Stream::Marketing), Route::Asked);
    }
    assert_eq!(names.ask("both.test", Stream::Marketing), Route::Asked);
    assert_eq!(names.ask("both.test", Stream::Transactional), Route::Asked, "it moves up");
    assert_eq!(names.ask("own.test", Stream::Transactional), Route::Asked);
    names.know("both.test").await;
    names.know("own.test").await;
    let asked = names.world.net.asked.lock().unwrap().clone();
    assert!(asked.iter().filter(|domain| domain.starts_with("slow")).count() < 1500);
    assert_eq!(asked.iter().filter(|domain| *domain == "both.test").count(), 2, "its servers, and their addresses");
}

#[tokio::test]
async fn a_cached_site_is_used_while_it_is_looked_up_again() {
    let names = Names::new().await;
    assert_eq!(names.ask("a.test", Stream::Transactional), Route::Asked);
    names.know("a.test").await;
    names.never_answers("a.test");
    names.world.pass(60).await;
    for stream in [Stream::Marketing, Stream::Transactional, Stream::Marketing] {
        assert_eq!(names.ask("a.test", stream), site("a.test"));
    }
    tokio::task::yield_now().await;
    assert_eq!(names.world.net.asked.lock().unwrap().len(), 3, "twice at first, and then once more");
    names.world.pass(600).await;
    assert_eq!(names.ask("a.test", Stream::Marketing), Route::Asked, "not for ever");
}

#[tokio::test]
async fn a_quarter_of_the_places_for_lookups_is_reserved_for_transactional_mail() {
    let names = Names::new().await;
    let wait =
        |stream| std::iter::repeat_with(|| names.ask("a.test", stream)).take_while(|r| *r == Route::Asked).count();
    let most = WAITING_MAX as usize;
    assert_eq!(wait(Stream::Marketing), most / 4 * 3);
    assert_eq!(wait(Stream::Transactional), most / 4);
    assert_eq!(names.ask("b.test", Stream::Transactional), Route::Full);
    let other = AccountId(Ulid([7; 16]));
    assert_eq!(names.ask_for(other, "c.test", Stream::Transactional), Route::Asked, "another account still can");
    names.know("a.test").await;
    assert_eq!(names.ask("b.test", Stream::Marketing), Route::Asked, "there is room again");
}

#[tokio::test]
async fn an_impossible_lookup_is_repeated_soon_and_charged_to_no_message() {
    let world = World::new().await;
    world.net.busy.lock().unwrap().insert("a.test".to_owned());
    let id = world.send("u@a.test").await;
    world.pass(9).await;
    assert_eq!(world.progress(id), ("queued", 0));
    world.pass(3600).await;
    assert_eq!(world.progress(id), ("queued", 0));
    world.net.busy.lock().unwrap().clear();
    world.pass(10).await;
    assert_eq!(world.progress(id), ("delivered", 1));
}

#[tokio::test]
async fn accounts_take_turns_at_lookups() {
    let names = Names::new().await;
    for n in 0..1500 {
        let domain = format!("slow{n}.test");
        names.never_answers(&domain);
        assert_eq!(names.ask(&domain, Stream::Transactional), Route::Asked);
    }
    // The other account's lookup gets the next free permit, although it came last.
    let other = AccountId(Ulid([7; 16]));
    assert_eq!(names.ask_for(other, "own.test", Stream::Transactional), Route::Asked);
    names.know("own.test").await;
    let asked = names.world.net.asked.lock().unwrap().clone();
    let before = asked.iter().position(|domain| domain == "own.test").unwrap();
    assert!(before <= 2 * 128, "{before}");
}

#[tokio::test]
async fn an_account_never_waits_for_the_turn_of_another_account_s_lookup() {
    let names = Names::new().await;
    for n in 0..1500 {
        let domain = format!("slow{n}.test");
        names.never_answers(&domain);
        assert_eq!(names.ask(&domain, Stream::Transactional), Route::Asked);
    }
    assert_eq!(names.ask("both.test", Stream::Transactional), Route::Asked, "the last of many");
    let other = AccountId(Ulid([7; 16]));
    assert_eq!(names.ask_for(other, "both.test", Stream::Transactional), Route::Asked);
    names.know("both.test").await;
    let asked = names.world.net.asked.lock().unwrap().clone();
    let before = asked.iter().position(|domain| domain == "both.test").unwrap();
    assert!(before <= 2 * 128, "{before}");
}

#[tokio::test]
async fn the_lookup_of_a_webhook_host_never_waits_for_lookups_of_the_account_s_mail() {
    let world = World::new().await;
    let url = WebhookUrl::parse("https://hooks.example/", |_| true).unwrap();
    let endpoint = NewEndpoint { url, events: None, description: None };
    let (id, ..) = world.engine.create_endpoint(world.account, endpoint).await.unwrap();
    world.send("u@a.test").await;
    world.pass(0).await;
    let own_share = Requester { account: AccountId(id.0), stream: Stream::Transactional };
    assert_eq!(*world.net.requesters.lock().unwrap(), HashSet::from([own_share]));
}

#[tokio::test]
async fn messages_over_the_lookup_limit_stay_in_the_store_and_are_sent_later() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    world.net.name_gates.lock().unwrap().insert("slow.test".to_owned(), Arc::clone(&gate));
    let mut ids = Vec::new();
    for n in 0..WAITING_MAX + 200 {
        ids.push(world.send(&format!("u{n}@slow.test")).await);
    }
    // Waits until the dispatcher has processed all messages.
    while world.engine.store.timers().fired() < ids.len() as u64 {
        tokio::task::yield_now().await;
    }
    let last = world.message(*ids.last().unwrap());
    assert_eq!(
        (last.waiting.unwrap().reason, last.transfer.due),
        (WaitReason::Dns, Some(START)),
        "no write put it off"
    );
    gate.add_permits(1000);
    world.pass(0).await;
    let is_sent_at_once = |id: &MessageId| world.progress(*id) == ("delivered", 1);
    assert!(ids.iter().all(is_sent_at_once));
}
