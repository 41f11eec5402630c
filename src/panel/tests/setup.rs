//! Tests of setup links, with which a user chooses a password once.

use super::*;
use crate::base::id::UserId;
use crate::domain::audit::{Action, Change};
use crate::engine::listing::PageRequest;
use crate::engine::users::UserChange;

const CHOSEN: &str = "four random words here";

impl World {
    async fn cleo(&self) -> UserId {
        self.engine.create_user(self.account, "cleo@example.test".parse().unwrap(), Role::Viewer).await.unwrap().0.id
    }

    /// Returns the path and query of a link, and its token.
    async fn link(&self, user: UserId) -> (String, String) {
        let url = self.engine.setup_link(self.account, user).await.unwrap().unwrap().url;
        let path = url.strip_prefix("http://panel.test").unwrap().to_owned();
        let token = path.strip_prefix("/setup?token=").unwrap().to_owned();
        (path, token)
    }
}

#[tokio::test]
async fn a_setup_link_sets_the_password_once_and_signs_in() {
    let world = World::new().await;
    let (path, token) = world.link(world.cleo().await).await;
    let mut browser = world.browser();
    for _ in 0..2 {
        let page = browser.get(&path).await;
        assert_eq!(page.status, 200, "showing the page does not use up the link");
        assert!(page.shows("cleo@example.test"));
    }
    for (weak, said) in [("short", "at least 12 characters"), ("passwordpassword", "too easy to guess")] {
        let reply = browser.post("/setup", &[("token", &token), ("password", weak)]).await;
        assert_eq!(reply.status, 422);
        assert!(reply.shows(said), "{weak}");
    }
    let reply = browser.post("/setup", &[("token", &token), ("password", CHOSEN)]).await;
    assert_eq!((reply.status, reply.location()), (303, "/"));
    assert_eq!(browser.get("/").await.status, 200);
    let mut other = world.browser();
    assert_eq!(other.get(&path).await.status, 410);
    assert_eq!(other.post("/setup", &[("token", &token), ("password", "another four words")]).await.status, 410);
    assert_eq!(other.sign_in("cleo@example.test", CHOSEN).await.status, 303);
}

#[tokio::test]
async fn a_link_ends_after_a_day_by_a_password_change_and_for_disabled_users() {
    let world = World::new().await;
    let user = world.cleo().await;
    let mut browser = world.browser();
    let (path, _) = world.link(user).await;
    let change = |change: UserChange| world.engine.change_user(world.account, user, change);
    change(UserChange { disabled: Some(true), ..UserChange::default() }).await.unwrap();
    assert_eq!(browser.get(&path).await.status, 410);
    assert!(world.engine.setup_link(world.account, user).await.unwrap().is_none());
    change(UserChange { disabled: Some(false), ..UserChange::default() }).await.unwrap();
    assert_eq!(browser.get(&path).await.status, 200);
    world.advance(DAY);
    assert_eq!(browser.get(&path).await.status, 410);
    let (path, token) = world.link(user).await;
    let tampered = format!("/setup?token={}", token.replace(&token[90..], "AAAAAA"));
    for wrong in ["/setup", "/setup?token=nonsense", tampered.as_str()] {
        assert_eq!(browser.get(wrong).await.status, 410, "{wrong}");
    }
    let password = crate::domain::user::NewPassword::generate(&*world.engine.entropy);
    change(UserChange { password: Some(password), ..UserChange::default() }).await.unwrap();
    assert_eq!(browser.get(&path).await.status, 410);
}

#[tokio::test]
async fn the_audit_log_names_the_link_and_its_creator() {
    let world = World::new().await;
    let user = world.cleo().await;
    let mut owner = world.owner().await;
    let reply = owner.post(&format!("/users/{user}"), &[("action", "link")]).await;
    assert_eq!(reply.status, 200);
    let url = reply.body.split("id=\"copy-link\">").nth(1).unwrap().split('<').next().unwrap().to_owned();
    let token = url.split("token=").nth(1).unwrap();
    let mut cleo = world.browser();
    assert_eq!(cleo.post("/setup", &[("token", token), ("password", CHOSEN)]).await.status, 303);
    let lines = world.audited();
    let lines: Vec<_> = lines[lines.len() - 2..].iter().map(|line| (line.actor.to_string(), &line.change)).collect();
    let made = Change::new(Action::SetupLinkMade, user, "cleo@example.test");
    let used = Change::new(Action::PasswordChanged, user, "cleo@example.test");
    assert_eq!(lines, [(EMAIL.to_owned(), &made), (format!("setup link created by {EMAIL}"), &used)]);
    let page = owner.get("/audit").await;
    assert!(page.shows("created a setup link for") && page.shows(&format!("setup link created by {EMAIL}")));
    assert!(!page.shows(token) && !format!("{:?}", world.audited()).contains(token));
    let users = world.engine.users(world.account, PageRequest { before: None, limit: 9 }).unwrap();
    assert!(users.rows.iter().any(|row| row.id == user && row.last_sign_in_at.is_some()));
}

#[tokio::test]
async fn a_link_ends_when_its_user_becomes_an_operator() {
    let world = World::new().await;
    let user = world.cleo().await;
    let (path, token) = world.link(user).await;
    let operator = UserChange { operator: Some(true), ..UserChange::default() };
    world.engine.change_user(crate::engine::audit::Behalf::operator(world.account), user, operator).await.unwrap();
    let mut browser = world.browser();
    assert_eq!(browser.get(&path).await.status, 410, "an owner may still know the link");
    assert_eq!(browser.post("/setup", &[("token", &token), ("password", CHOSEN)]).await.status, 410);
    let (path, _) = world.link(user).await;
    assert_eq!(browser.get(&path).await.status, 200);
}
