//! Tests of sign-in: sessions, throttle, second factor, and cross-site forms.

use super::*;
use crate::base::secret::Secret;
use crate::base::totp;
use crate::net::clock::SystemClock;

#[tokio::test]
async fn an_anonymous_visitor_is_sent_to_the_login_and_back() {
    let world = World::new().await;
    let mut browser = world.browser();
    let reply = browser.get("/messages?q=order").await;
    assert_eq!((reply.status, reply.location()), (303, "/login?next=%2Fmessages%3Fq%3Dorder"));
    let form = [("email", EMAIL), ("password", world.password.as_str()), ("next", "/messages?q=order")];
    let reply = browser.post("/login", &form).await;
    assert_eq!((reply.status, reply.location()), (303, "/messages?q=order"));
    assert_eq!(browser.get("/messages?q=order").await.status, 200);
    let form = [("email", EMAIL), ("password", world.password.as_str()), ("next", "//evil.example")];
    assert_eq!(browser.post("/login", &form).await.location(), "/");
}

#[tokio::test]
async fn public_pages_do_not_repeat_long_text() {
    let world = World::new().await;
    let mut browser = world.browser();
    assert!(browser.get("/login?email=a%40b.example&next=/keys").await.body.contains("a@b.example"));
    let long = "%22".repeat(4000);
    for path in [format!("/login?email={long}"), format!("/login?next=/{long}")] {
        let reply = browser.get(&path).await;
        assert_eq!(reply.status, 200);
        assert!(reply.body.len() < 4096, "{}", reply.body.len());
    }
    let long = "&".repeat(4000);
    let form = [("email", long.as_str()), ("password", "wrong"), ("next", long.as_str())];
    let reply = browser.post("/login", &form).await;
    assert!(reply.status == 401 && reply.body.len() < 4096);
    assert_eq!(browser.get(&format!("/messages?q={long}")).await.location(), "/login");
}

#[tokio::test]
async fn every_failure_has_the_same_answer() {
    let world = World::new().await;
    let mut browser = world.browser();
    let mut bodies = Vec::new();
    for (email, password) in [(EMAIL, "wrong"), ("nobody@example.test", "wrong"), (EMAIL, "")] {
        let reply = browser.sign_in(email, password).await;
        assert_eq!(reply.status, 401);
        bodies.push(reply.body.replace(email, ""));
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1);
    assert!(bodies[0].contains("Wrong email or password.") && browser.cookies.is_empty());
    let not_an_address = browser.sign_in("no address", "wrong").await;
    assert_eq!(not_an_address.status, 401);
}

#[tokio::test]
async fn ten_failures_for_one_address_throttle_it() {
    let world = World::new().await;
    let mut browser = world.browser();
    for _ in 0..10 {
        assert_eq!(browser.sign_in(EMAIL, "wrong").await.status, 401);
    }
    let reply = browser.sign_in(EMAIL, &world.password).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, "900"));
    assert!(reply.shows("Wait 15 min"));
    // Other addresses are unaffected.
    assert_eq!(browser.sign_in("val.viewer@example.test", "wrong").await.status, 401);
    world.advance(Duration::from_secs(900));
    assert_eq!(browser.sign_in(EMAIL, &world.password).await.status, 303);
}

#[tokio::test]
async fn fifty_failures_from_one_client_throttle_it() {
    let world = World::new().await;
    let mut browser = world.browser();
    for attempt in 0..50 {
        assert_eq!(browser.sign_in(&format!("no{attempt} address"), "").await.status, 401);
    }
    assert_eq!(browser.sign_in(EMAIL, &world.password).await.status, 429);
}

#[tokio::test]
async fn the_session_cookie_is_http_only_and_replaced_at_sign_in() {
    let plain = World::new().await;
    let mut browser = plain.browser();
    let reply = browser.sign_in(EMAIL, &plain.password).await;
    let cookie = reply.header("set-cookie");
    assert!(cookie.starts_with("postrider=") && cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
    assert!(!cookie.contains("Secure"));
    let first = browser.cookies["postrider"].clone();
    browser.sign_in(EMAIL, &plain.password).await;
    assert_ne!(browser.cookies["postrider"], first, "rotated");
    browser.cookies.insert("postrider".to_owned(), first);
    assert_eq!(browser.get("/").await.status, 303, "the one before is over");

    let secure = World::at("https://panel.test/").await;
    let reply = secure.browser().sign_in(EMAIL, &secure.password).await;
    let cookie = reply.header("set-cookie");
    assert!(cookie.starts_with("__Host-postrider=") && cookie.ends_with("; Secure"), "{cookie}");
    assert!(cookie.contains("; Path=/;") && !cookie.contains("Domain"));
}

#[tokio::test]
async fn a_session_ends_by_sign_out_idleness_or_after_a_week() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let token = browser.cookies["postrider"].clone();
    assert_eq!(browser.post("/logout", &[]).await.location(), "/login");
    assert_eq!(browser.cookies["postrider"], "");
    browser.cookies.insert("postrider".to_owned(), token);
    assert_eq!(browser.get("/").await.status, 303);

    let mut idle = world.owner().await;
    world.advance(DAY / 2);
    assert_eq!(idle.get("/").await.status, 303);

    let mut busy = world.owner().await;
    for _ in 0..28 {
        world.advance(DAY / 4);
        busy.get("/").await;
        // The last-seen time is written in the background. A later commit includes it.
        world.engine.create_account("Other".parse().unwrap(), None, QuotaLimits::default()).await.unwrap();
    }
    assert_eq!(busy.get("/").await.status, 303);
    world.owner().await;
}

#[tokio::test]
async fn sessions_are_listed_and_ended_from_another_browser() {
    let world = World::new().await;
    let (mut here, mut there) = (world.owner().await, world.owner().await);
    let page = here.get("/settings").await;
    assert_eq!(page.body.matches("name=\"session\"").count(), 2);
    assert!(page.shows("127.0.0.1") && page.shows("Firefox on Linux"));
    let reply = here.post("/settings/sessions", &[]).await;
    assert_eq!(reply.location(), "/settings?done=sessions");
    assert_eq!((here.get("/").await.status, there.get("/").await.status), (200, 303));

    // A session key of another user ends nothing.
    let mut viewer = world.viewer().await;
    let page = here.get("/settings").await;
    let key = page.body.split("name=\"session\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    viewer.post("/settings/sessions", &[("session", &key)]).await;
    assert_eq!(here.get("/").await.status, 200);
    assert_eq!(here.post("/settings/sessions", &[("session", &key)]).await.location(), "/login");
    assert_eq!(here.get("/").await.status, 303);
}

#[tokio::test]
async fn a_cross_site_form_changes_nothing() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for lines in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\nOrigin: http://panel.test\r\n",
        "Origin: http://evil.test\r\n",
        "Origin: null\r\n",
        "Origin: http://panel.test.evil.test\r\n",
        "",
    ] {
        browser.origin = Origin::Lines(lines);
        let reply = browser.post("/settings", &[("content_retention_days", "7")]).await;
        assert_eq!(reply.status, 403, "{lines}");
        assert!(reply.shows("Form blocked"));
        assert_eq!(browser.post("/login", &[]).await.status, 403, "{lines}");
    }
    assert_eq!(world.engine.account(world.account).unwrap().unwrap().content_retention_days.get(), 30);
    for lines in ["Sec-Fetch-Site: none\r\n", "Origin: http://panel.test\r\n"] {
        browser.origin = Origin::Lines(lines);
        assert_eq!(browser.post("/settings", &[("content_retention_days", "7")]).await.status, 303, "{lines}");
    }
}

#[tokio::test]
async fn the_second_factor_follows_the_password_and_each_code_works_once() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let page = browser.get("/settings/totp").await;
    let between = |text: &str, before: &str| text.split(before).nth(1).unwrap().split('"').next().unwrap().to_owned();
    let hidden = between(&page.body, "name=\"secret\" value=\"");
    let secret = Secret::new(hex::decode(&hidden).unwrap());
    assert!(page.shows(&totp::base32(secret.expose())) && page.shows("otpauth://totp/"));
    let wrong = browser.post("/settings/totp", &[("secret", &hidden), ("code", "000000")]).await;
    assert_eq!(wrong.status, 422);
    let step = totp::step_of(SystemClock::new().now());
    let code = totp::code(&secret, step);
    let done = browser.post("/settings/totp", &[("secret", &hidden), ("code", &code)]).await;
    assert_eq!(done.location(), "/settings?done=totp");

    let mut other = world.browser();
    let reply = other.sign_in(EMAIL, &world.password).await;
    assert_eq!(reply.location(), "/login/code?next=%2F");
    assert_eq!(other.get("/messages").await.status, 303, "a half-finished sign-in opens nothing");
    assert_eq!(other.get("/login/code").await.status, 200);
    assert_eq!(other.post("/login/code", &[("code", &code)]).await.status, 401, "it was shown already");
    let before = other.cookies["postrider"].clone();
    let next = totp::code(&secret, step + 1);
    let reply = other.post("/login/code", &[("code", &next), ("next", "/users")]).await;
    assert_eq!((reply.status, reply.location()), (303, "/users"));
    assert_ne!(other.cookies["postrider"], before);
    assert_eq!(other.get("/users").await.status, 200);

    let mut third = world.browser();
    third.sign_in(EMAIL, &world.password).await;
    for _ in 0..10 {
        third.post("/login/code", &[("code", "000000")]).await;
    }
    assert_eq!(third.post("/login/code", &[("code", "000000")]).await.status, 429);
    world.advance(Duration::from_secs(300));
    assert_eq!(third.get("/login/code").await.status, 303, "a half-finished sign-in expires after five minutes");
}
