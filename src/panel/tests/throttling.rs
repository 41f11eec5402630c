//! Tests of the sign-in throttle: strangers can't lock out known browsers.

use super::*;
use crate::base::secret::Secret;
use crate::base::totp;
use crate::domain::session::Client;
use crate::domain::user::NewPassword;
use crate::engine::users::UserChange;
use crate::net::clock::SystemClock;

const DEVICE: &str = "postrider-device";

impl World {
    /// Throttles the owner's address for unknown browsers.
    async fn strangers_fail(&self) {
        let mut stranger = self.browser();
        for _ in 0..10 {
            assert_eq!(stranger.sign_in(EMAIL, "wrong").await.status, 401);
        }
        assert_eq!(stranger.sign_in(EMAIL, &self.password).await.status, 429);
    }

    pub(super) async fn owner_id(&self) -> crate::base::id::UserId {
        let page = crate::engine::listing::PageRequest { before: None, limit: 9 };
        let users = self.engine.users(self.account, page).unwrap().rows;
        users.into_iter().find(|user| user.email.as_given() == EMAIL).unwrap().id
    }
}

#[tokio::test]
async fn strangers_cannot_lock_out_a_known_browser() {
    let world = World::new().await;
    let mut known = world.owner().await;
    known.post("/logout", &[]).await;
    let mut other = world.owner().await;
    world.strangers_fail().await;
    for from in 0..60 {
        world.browser().sign_in(&format!("no{from} address"), "").await;
    }
    assert_eq!(
        world.browser().sign_in("val.viewer@example.test", "x").await.status,
        429,
        "the client is throttled too"
    );
    assert_eq!(known.sign_in(EMAIL, &world.password).await.status, 303);

    // A known browser has an entry of its own, so it is throttled too.
    for _ in 0..10 {
        assert_eq!(known.sign_in(EMAIL, "wrong").await.status, 401);
    }
    assert_eq!(known.sign_in(EMAIL, &world.password).await.status, 429);
    assert_eq!(other.sign_in(EMAIL, &world.password).await.status, 303);
}

impl World {
    /// Starts this many attempts, drops each client before its answer, and waits until all have ended.
    async fn cut_off(&self, password: &str, attempts: usize) {
        let before = Arc::strong_count(&self.engine);
        for _ in 0..attempts {
            let password = Secret::new(password);
            let attempt = self.engine.sign_in(EMAIL, &password, Client::default());
            assert!(tokio::time::timeout(Duration::ZERO, attempt).await.is_err(), "it hashes for longer than that");
        }
        while Arc::strong_count(&self.engine) > before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn an_aborted_attempt_counts_by_its_result() {
    let world = World::new().await;
    for _ in 0..3 {
        world.cut_off(&world.password, 4).await;
    }
    assert_eq!(world.browser().sign_in(EMAIL, &world.password).await.status, 303, "none of twelve was wrong");
    world.cut_off("wrong", 10).await;
    assert_eq!(world.browser().sign_in(EMAIL, &world.password).await.status, 429, "all of ten were");
}

#[tokio::test]
async fn a_known_browser_has_a_cookie_of_its_user_for_400_days() {
    let world = World::new().await;
    let mut viewer = world.viewer().await;
    let mut owner = world.owner().await;
    let token = owner.cookies[DEVICE].clone();
    assert_eq!(token.len(), 64);
    owner.sign_in(EMAIL, &world.password).await;
    assert_eq!(owner.cookies[DEVICE], token, "it is kept");
    world.strangers_fail().await;
    assert_eq!(viewer.sign_in(EMAIL, &world.password).await.status, 429, "another user's browser");
    world.advance(400 * DAY);
    world.strangers_fail().await;
    assert_eq!(owner.sign_in(EMAIL, &world.password).await.status, 429);

    let secure = World::at("https://panel.test/").await;
    let reply = secure.browser().sign_in(EMAIL, &secure.password).await;
    let cookies: Vec<_> = reply.headers.iter().filter(|(name, _)| name == "set-cookie").map(|(_, it)| it).collect();
    let device = cookies.iter().find(|cookie| cookie.starts_with("__Host-postrider-device=")).unwrap();
    assert!(device.ends_with("; Path=/; Max-Age=34560000; HttpOnly; SameSite=Lax; Secure"), "{device}");
}

#[tokio::test]
async fn signing_out_everywhere_or_a_new_password_forgets_other_browsers() {
    let world = World::new().await;
    let (mut here, mut there) = (world.owner().await, world.owner().await);
    let before = here.cookies[DEVICE].clone();
    assert_eq!(here.post("/settings/sessions", &[]).await.status, 303);
    assert_ne!(here.cookies[DEVICE], before);
    world.strangers_fail().await;
    assert_eq!(there.sign_in(EMAIL, &world.password).await.status, 429);
    assert_eq!(here.sign_in(EMAIL, &world.password).await.status, 303);

    world.advance(Duration::from_secs(900));
    assert_eq!(there.sign_in(EMAIL, &world.password).await.status, 303);
    let new = "correct horse battery staple";
    let form = [("current_password", world.password.as_str()), ("new_password", new)];
    assert_eq!(here.post("/settings/password", &form).await.location(), "/settings?done=password");
    for _ in 0..10 {
        assert_eq!(world.browser().sign_in(EMAIL, "wrong").await.status, 401);
    }
    assert_eq!(there.sign_in(EMAIL, new).await.status, 429);
    assert_eq!(here.sign_in(EMAIL, new).await.status, 303);

    // A password set by the operator forgets this browser too.
    let password = NewPassword::chosen("another horse battery staple", &EMAIL.parse().unwrap()).unwrap();
    let change = UserChange { password: Some(password), ..UserChange::default() };
    world.engine.change_user(world.account, world.owner_id().await, change).await.unwrap();
    assert_eq!(here.sign_in(EMAIL, "another horse battery staple").await.status, 429);
}

#[tokio::test]
async fn strangers_cannot_block_the_password_confirmation() {
    let world = World::new().await;
    let mut owner = world.owner().await;
    owner.cookies.remove(DEVICE);
    world.strangers_fail().await;
    let shown = owner.post("/login/confirm", &[("password", &world.password), ("next", "/keys")]).await;
    assert_eq!((shown.status, shown.location()), (303, "/keys"));
    for _ in 0..10 {
        assert_eq!(owner.post("/login/confirm", &[("password", "wrong")]).await.status, 401);
    }
    assert_eq!(owner.post("/login/confirm", &[("password", &world.password)]).await.status, 429);
}

#[tokio::test]
async fn a_stolen_password_cannot_lock_known_browsers_out_of_the_second_factor() {
    let world = World::new().await;
    let mut owner = world.owner().await;
    let page = owner.get("/settings/totp").await;
    let hidden = page.between("name=\"secret\" value=\"", "\"").to_owned();
    let secret = Secret::new(hex::decode(&hidden).unwrap());
    let step = totp::step_of(SystemClock::new().now());
    let set = owner.post("/settings/totp", &[("secret", &hidden), ("code", &totp::code(&secret, step))]).await;
    assert_eq!(set.location(), "/settings?done=totp");
    let mut thief = world.browser();
    thief.sign_in(EMAIL, &world.password).await;
    assert!(!thief.cookies.contains_key(DEVICE), "a half-finished sign-in does not make the browser known");
    for _ in 0..10 {
        thief.post("/login/code", &[("code", "000000")]).await;
    }
    let code = totp::code(&secret, step + 1);
    assert_eq!(thief.post("/login/code", &[("code", &code)]).await.status, 429);
    owner.sign_in(EMAIL, &world.password).await;
    assert_eq!(owner.post("/login/code", &[("code", &code)]).await.status, 303);
}

#[tokio::test]
async fn an_attempt_during_overload_is_not_counted() {
    let world = World::new().await;
    let mut known = world.owner().await;
    let mut browser = world.browser();
    let occupied = world.engine.occupy_password_checks();
    for _ in 0..60 {
        let reply = browser.sign_in(EMAIL, "wrong").await;
        assert_eq!((reply.status, reply.header("retry-after")), (503, "1"));
    }
    assert_eq!(known.sign_in(EMAIL, &world.password).await.status, 303, "strangers cannot block a known browser");
    drop(occupied);
    assert_eq!(browser.sign_in(EMAIL, &world.password).await.status, 303);
}

#[tokio::test]
async fn requests_per_user_are_limited_independently() {
    let world = World::new().await;
    let mut owner = world.owner().await;
    let id = world.owner_id().await;
    while world.engine.rates.admit_user(id, world.engine.clock.monotonic()).is_ok() {}
    let page = owner.get("/messages").await;
    assert_eq!((page.status, page.header("retry-after")), (429, "60"));
    let changed = owner.post("/settings", &[("account_name", "Other")]).await;
    assert_eq!(changed.status, 429, "nothing is changed or logged");
    let other = crate::base::id::UserId(crate::base::id::Ulid([9; 16]));
    assert!(world.engine.rates.admit_user(other, world.engine.clock.monotonic()).is_ok());
    world.advance(Duration::from_secs(60));
    assert_eq!(owner.get("/messages").await.status, 200);
}
