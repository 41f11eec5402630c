//! Who may do what, and who may sign in at all.

use super::*;

#[tokio::test]
async fn a_viewer_looks_at_everything_and_changes_nothing_but_their_own() {
    let world = World::new().await;
    let message = world.send(serde_json::json!({})).await;
    let mut browser = world.viewer().await;
    for path in ["/", "/messages", &format!("/messages/{message}"), "/settings", "/users"] {
        assert_eq!(browser.get(path).await.status, 200, "{path}");
    }
    for path in ["/settings", "/users", &format!("/messages/{message}/cancel")] {
        let reply = browser.post(path, &[("content_retention_days", "7")]).await;
        assert_eq!(reply.status, 403, "{path}");
        assert!(reply.shows("Only for owners"));
    }
    assert!(!browser.get("/users").await.shows("Add a user"));
    assert_eq!(browser.post("/settings/sessions", &[]).await.status, 303);
}

#[tokio::test]
async fn an_owner_adds_a_user_whose_password_is_shown_once_and_works() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let reply = browser.post("/users", &[("email", "cleo@example.test"), ("role", "viewer")]).await;
    assert_eq!(reply.status, 200);
    let password = reply.body.split("id=\"copy-password\">").nth(1).unwrap().split('<').next().unwrap().to_owned();
    assert!(!browser.get("/users").await.shows(&password));
    let mut cleo = world.browser();
    assert_eq!(cleo.sign_in("Cleo@Example.Test", &password).await.status, 303);
    for (email, said) in [("cleo@EXAMPLE.test", "signs in to this service already"), ("cleo", "role=\"alert\"")] {
        let reply = browser.post("/users", &[("email", email), ("role", "owner")]).await;
        assert_eq!(reply.status, 422);
        assert!(reply.shows(said) || reply.shows("email-fault"), "{email}");
    }
    let id = world.engine.users(world.account, crate::engine::listing::PageRequest { before: None, limit: 9 }).unwrap();
    let id = id.rows.iter().find(|user| user.email.local() == "cleo").unwrap().id;
    let path = format!("/users/{id}");
    assert_eq!(browser.post(&path, &[("action", "disable")]).await.location(), "/users?done=changed");
    assert_eq!(cleo.get("/").await.status, 303, "signed out at once");
    assert_eq!(cleo.sign_in("cleo@example.test", &password).await.status, 401);
    browser.post(&path, &[("action", "enable")]).await;
    assert_eq!(cleo.sign_in("cleo@example.test", &password).await.status, 303);
    browser.post(&path, &[("action", "role"), ("role", "owner")]).await;
    assert_eq!(cleo.post("/settings", &[("content_retention_days", "8")]).await.status, 303);
    assert_eq!(browser.post(&format!("{path}/remove"), &[]).await.location(), "/users?done=removed");
    assert_eq!(cleo.get("/").await.status, 303);
}

#[tokio::test]
async fn nobody_changes_or_removes_themselves() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let page = crate::engine::listing::PageRequest { before: None, limit: 9 };
    let own = world.engine.users(world.account, page).unwrap().rows[0].id;
    for (path, form) in
        [(format!("/users/{own}"), [("action", "disable")]), (format!("/users/{own}/remove"), [("", "")])]
    {
        assert_eq!(browser.post(&path, &form).await.status, 409);
    }
    assert_eq!(browser.post("/users/usr_nonsense", &[("action", "disable")]).await.status, 404);
}

#[tokio::test]
async fn a_quarter_of_an_hour_after_the_password_it_is_asked_for_again() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    world.advance(Duration::from_secs(15 * 60));
    let add = [("email", "cleo@example.test"), ("role", "viewer")];
    let reply = browser.post("/users", &add).await;
    assert_eq!((reply.status, reply.location()), (303, "/login/confirm?next=%2Fusers"));
    assert_eq!(browser.get("/settings/totp").await.location(), "/login/confirm?next=%2Fsettings%2Ftotp");
    let wrong = browser.post("/login/confirm", &[("password", "wrong"), ("next", "/users")]).await;
    assert_eq!(wrong.status, 401);
    let right = [("password", world.password.as_str()), ("next", "/users")];
    assert_eq!(browser.post("/login/confirm", &right).await.location(), "/users");
    assert_eq!(browser.post("/users", &add).await.status, 200);
}

#[tokio::test]
async fn users_of_a_suspended_account_look_and_change_only_what_is_their_own() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let on = crate::engine::audit::Behalf::operator(world.account);
    assert!(world.engine.suspend_account(on.clone(), "unpaid invoices".parse().unwrap()).await.is_ok());
    assert_eq!(browser.get("/settings").await.status, 200);
    let refused = browser.post("/settings", &[("content_retention_days", "7")]).await;
    assert_eq!(refused.status, 403);
    assert!(refused.shows("The account is suspended") && refused.shows("unpaid invoices"));
    assert_eq!(browser.post("/settings/sessions", &[]).await.status, 303);
    let mut browser = world.owner().await;
    assert!(world.engine.resume_account(on).await.is_ok());
    assert_eq!(browser.post("/settings", &[("content_retention_days", "7")]).await.status, 303);
}
