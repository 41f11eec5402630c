//! Tests of forms that come after their session has ended, and of leaving a confirmation.

use super::*;
use crate::base::secret::Secret;
use crate::base::totp;
use crate::net::clock::SystemClock;

const SEARCH: [(&str, &str); 2] = [("q", "order \"one\""), ("name", "Orders")];

/// Returns the fields of a sign-in form, or of its code, that carry the form on the page `asked`.
fn carrying(asked: &Reply, fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let carried = ["to", "form", "next"].map(|name| (name.to_owned(), asked.hidden(name)));
    fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).chain(carried).collect()
}

impl Browser {
    async fn send(&mut self, path: &str, fields: &[(String, String)]) -> Reply {
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.post(path, &fields).await
    }
}

#[tokio::test]
async fn a_form_is_carried_through_the_sign_in_after_its_session_has_ended() {
    let world = World::new().await;
    let mut browser = world.browser();
    let asked = browser.post("/messages", &SEARCH).await;
    assert_eq!(asked.status, 403);
    assert!(asked.shows("Sign in to continue with your entries."), "{}", asked.body);
    let sign_in = |password| carrying(&asked, &[("email", EMAIL), ("password", password)]);
    let wrong = browser.send("/login", &sign_in("wrong")).await;
    assert_eq!((wrong.status, wrong.hidden("form")), (401, asked.hidden("form")));
    let right = browser.send("/login", &sign_in(&world.password)).await;
    assert_eq!((right.status, right.hidden("q")), (200, SEARCH[0].1.to_owned()), "{}", right.body);
    assert!(right.shows("action=\"/messages\"") && right.shows("href=\"/messages\">Cancel"));
    let saved = browser.post("/messages", &SEARCH).await;
    assert!(saved.location().ends_with("done=saved"), "signed in: {}", saved.location());
}

#[tokio::test]
async fn a_carried_form_also_waits_for_the_second_factor() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let hidden = browser.get("/settings/totp").await.hidden("secret");
    let secret = Secret::new(hex::decode(&hidden).unwrap());
    let step = totp::step_of(SystemClock::new().now());
    let code = totp::code(&secret, step);
    browser.post("/settings/totp", &[("secret", &hidden), ("code", &code)]).await;
    let mut other = world.browser();
    let asked = other.post("/messages", &SEARCH).await;
    let fields = [("email", EMAIL), ("password", world.password.as_str())];
    let asked = other.send("/login", &carrying(&asked, &fields)).await;
    assert_eq!((asked.status, asked.hidden("to")), (200, "/messages".to_owned()), "{}", asked.body);
    let wrong = other.send("/login/code", &carrying(&asked, &[("code", "000000")])).await;
    assert_eq!((wrong.status, wrong.hidden("form")), (401, asked.hidden("form")));
    let code = totp::code(&secret, step + 1);
    let signed_in = other.send("/login/code", &carrying(&asked, &[("code", &code)])).await;
    assert_eq!((signed_in.status, signed_in.hidden("name")), (200, "Orders".to_owned()), "{}", signed_in.body);
}

#[tokio::test]
async fn a_large_form_and_one_with_a_secret_are_not_carried_and_the_page_says_so() {
    let world = World::new().await;
    let mut browser = world.browser();
    let large = "x".repeat(9_000);
    for (path, next, form) in [
        ("/settings/password", "%2Fsettings", &[("new_password", "correct horse battery")][..]),
        ("/settings/totp", "%2Fsettings", &[("code", "123456")]),
        ("/keys", "%2Fkeys", &[("name", &large)]),
        ("/system/doctor", "%2Fsystem", &[]),
    ] {
        let reply = browser.post(path, form).await;
        assert_eq!((reply.status, reply.location()), (303, &*format!("/login?ended=1&next={next}")), "{path}");
        assert!(browser.get(reply.location()).await.shows("nothing was changed"));
    }
    assert!(!browser.get("/login?next=%2Fkeys").await.shows("nothing was changed"));
    for path in ["/logout", "/view/end", "/test-message"] {
        assert_eq!(browser.post(path, &[]).await.location(), "/login?ended=1", "{path} has no page");
    }
}

#[tokio::test]
async fn those_who_cancel_a_confirmation_leave_to_a_page_that_needs_none() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    world.advance(Duration::from_secs(15 * 60));
    for (next, left) in [
        ("/settings/totp", "/settings"),
        ("/users", "/users"),
        ("/login/confirm/form?name=x&next=%2Fkeys", "/keys"),
        ("/login/confirm/form?name=x&next=%2Fsettings%2Ftotp", "/settings"),
        ("/login/confirm?next=%2Fusers", "/"),
        ("/login/confirm/form", "/"),
    ] {
        let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
        let page = browser.get(&format!("/login/confirm?next={next}")).await;
        assert!(page.shows(&format!("<a href=\"{left}\">Cancel</a>")), "{next}: {}", page.body);
        assert_eq!(browser.get(left).await.status, 200, "{left}");
    }
}
