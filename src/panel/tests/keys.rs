//! Tests of API keys: creating, renaming and revoking them, and the password confirmation.

use super::*;
use crate::base::secret::Secret;
use crate::base::totp;
use crate::domain::api_key::Scope;
use crate::engine::listing::PageRequest;
use crate::engine::users::UserChange;
use crate::net::clock::SystemClock;

const PAGE: PageRequest = PageRequest { before: None, limit: 9 };

fn secret_of(page: &Reply) -> String {
    page.between("id=\"copy-secret\" class=\"whole\">", "<").to_owned()
}

#[tokio::test]
async fn only_sending_is_preselected_for_a_new_key() {
    let page = World::new().await.owner().await.get("/keys").await;
    assert!(page.shows("value=\"send\" checked") && page.shows("Permissions can't be changed later."));
    assert!(!page.shows("value=\"read\" checked") && !page.shows("value=\"manage\" checked"), "{}", page.body);
}

#[tokio::test]
async fn a_new_key_is_shown_once_and_has_its_permissions() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    assert!(browser.get("/keys").await.shows("No keys yet"));
    browser.post("/settings", &[("time_zone", "Europe/Vienna")]).await;
    let form = [("name", "web shop"), ("scopes", "send"), ("stream", "transactional"), ("expires_on", "2023-12-01")];
    let made = browser.post("/keys", &form).await;
    let secret = secret_of(&made);
    assert!(made.status == 200 && secret.starts_with("pr_live_") && secret.len() == 51, "{}", made.body);
    let key = world.engine.authenticate(&secret).unwrap().unwrap().key.unwrap();
    assert_eq!(
        (key.name.as_str(), key.stream, key.scopes.as_list()),
        ("web shop", Some(Stream::Transactional), vec![Scope::Send])
    );
    assert_eq!(key.expires_at.unwrap().to_string(), "2023-11-30T23:00:00.000+00:00", "the day begins in the zone");
    for path in ["/keys", &format!("/keys/{}", key.id), &format!("/keys/{}/json", key.id)] {
        let page = browser.get(path).await;
        assert!(page.status == 200 && page.shows("web shop") && page.shows(&key.prefix), "{path}");
        assert!(!page.shows(&secret), "{path}");
    }
}

#[tokio::test]
async fn a_rejected_key_form_keeps_its_input_and_shows_errors() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let form = [("name", " "), ("stream", "marketing"), ("expires_on", "2020-01-01")];
    let reply = browser.post("/keys", &form).await;
    assert_eq!(reply.status, 422);
    for said in ["name-fault", "scopes-fault", "expires-fault", "must be in the future", "value=\"marketing\" selected"]
    {
        assert!(reply.shows(said), "{said}");
    }
    assert!(reply.shows("value=\"2020-01-01\"") && !reply.shows("checked"));
    assert!(world.engine.keys(world.account, PAGE).unwrap().rows.is_empty());
    let reply = browser.post("/keys", &[("name", "x"), ("scopes", "send"), ("expires_on", "soon")]).await;
    assert!(reply.status == 422 && reply.shows("expires-fault"));
}

#[tokio::test]
async fn a_key_is_renamed_and_permanently_revoked() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let secret = secret_of(&browser.post("/keys", &[("name", "old"), ("scopes", "read")]).await);
    let id = world.engine.keys(world.account, PAGE).unwrap().rows[0].id;
    let path = format!("/keys/{id}");
    assert_eq!(browser.post(&path, &[("name", "new")]).await.location(), format!("{path}?done=renamed"));
    assert!(browser.get("/keys").await.shows(">new</a>"));
    let refused = browser.post(&path, &[("name", "")]).await;
    assert!(refused.status == 422 && refused.shows("name-fault"));
    assert_eq!(
        browser.post(&format!("{path}/revoke"), &[("name", "new")]).await.location(),
        format!("{path}?done=revoked")
    );
    assert!(world.engine.authenticate(&secret).unwrap().is_none());
    let page = browser.get(&path).await;
    assert!(page.shows("Revoked</span>") && !page.shows("Revoke key"));
    assert!(browser.get("/keys").await.shows(">new</a>"), "it stays listed");
}

#[tokio::test]
async fn secrets_require_a_recent_password_confirmation() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let webhook = world.endpoint().await;
    world.advance(Duration::from_secs(15 * 60));
    for (path, back) in [
        ("/keys".to_owned(), "/keys".to_owned()),
        ("/webhooks".to_owned(), "/webhooks".to_owned()),
        (format!("/webhooks/{webhook}"), format!("/webhooks/{webhook}")),
        (format!("/webhooks/{webhook}/rotate-secret"), format!("/webhooks/{webhook}")),
    ] {
        let form = [("name", "x"), ("scopes", "send"), ("url", "https://a.example.com/")];
        let asked = browser.post(&path, &form).await;
        assert_eq!((asked.status, asked.between("name=\"next\" value=\"", "\"")), (403, back.as_str()));
        let back = format!("/login/confirm?next={}", back.replace('/', "%2F"));
        assert_eq!(browser.post(&path, &[]).await.location(), back, "without a form there is nothing to keep");
    }
    assert!(world.engine.keys(world.account, PAGE).unwrap().rows.is_empty());
    // Pages ask for the confirmation before the form is filled in.
    for path in ["/keys".to_owned(), "/webhooks".to_owned(), format!("/webhooks/{webhook}?tab=settings")] {
        let page = browser.get(&path).await;
        assert!(page.shows(&format!("href=\"/login/confirm?next={path}\"")), "{path}");
    }
    let proof = [("password", world.password.as_str()), ("next", "/keys")];
    assert_eq!(browser.post("/login/confirm", &proof).await.location(), "/keys");
    let page = browser.get("/keys").await;
    assert!(page.shows("action=\"/keys\"") && !page.shows("/login/confirm"));
    assert_eq!(browser.post("/keys", &[("name", "x"), ("scopes", "send")]).await.status, 200);
}

#[tokio::test]
async fn the_confirmation_requires_a_second_factor_code_that_works_once() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let user = world.engine.users(world.account, PAGE).unwrap().rows[0].id;
    let (secret, step) = (Secret::new([7; 20]), totp::step_of(SystemClock::new().now()));
    let totp = Some(Some((secret.clone(), step - 1)));
    let change = UserChange { totp, ..UserChange::default() };
    world.engine.change_user(world.account, user, change).await.unwrap();
    assert!(browser.get("/login/confirm").await.shows("name=\"code\""));
    let code = totp::code(&secret, step);
    let shown = |password: &str, code: &str| [("password", password.to_owned()), ("code", code.to_owned())];
    for (password, code, status) in [
        (world.password.as_str(), "", 401),
        (world.password.as_str(), "000000", 401),
        ("wrong", code.as_str(), 401),
        (world.password.as_str(), code.as_str(), 303),
        (world.password.as_str(), code.as_str(), 401),
    ] {
        let form = shown(password, code);
        let form = form.each_ref().map(|(name, value)| (*name, value.as_str()));
        assert_eq!(browser.post("/login/confirm", &form).await.status, status, "{password} {code}");
    }
}
