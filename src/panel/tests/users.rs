//! Tests of user management, roles and sign-in.

use super::*;
use crate::domain::audit::Actor;
use crate::domain::user::Role;
use crate::engine::audit::Behalf;
use crate::engine::users::{UserChange, UserRefusal};
use crate::store::error::OpError;

const LIST: crate::engine::listing::PageRequest = crate::engine::listing::PageRequest { before: None, limit: 9 };

#[tokio::test]
async fn a_viewer_reads_everything_and_changes_only_their_own_user() {
    let world = World::new().await;
    let message = world.send(serde_json::json!({})).await;
    let mut browser = world.viewer().await;
    for path in ["/", "/messages", &format!("/messages/{message}"), "/settings", "/users"] {
        assert_eq!(browser.get(path).await.status, 200, "{path}");
    }
    for path in ["/settings", "/users", &format!("/messages/{message}/cancel")] {
        let reply = browser.post(path, &[("content_retention_days", "7")]).await;
        assert_eq!(reply.status, 403, "{path}");
        assert!(reply.shows("Owners only"));
    }
    assert!(!browser.get("/users").await.shows("Invite user"));
    assert_eq!(browser.post("/settings/sessions", &[]).await.status, 303);
}

#[tokio::test]
async fn owners_see_the_sessions_of_a_user_and_end_them() {
    let world = World::new().await;
    let (mut owner, mut viewer) = (world.owner().await, world.viewer().await);
    let users = world.engine.users(world.account, LIST).unwrap().rows;
    let user = users.iter().find(|user| user.role == Role::Viewer).unwrap().id;
    let path = format!("/users/{user}");
    let page = owner.get(&path).await;
    let sessions = page.between("id=\"sessions\"", "</section>");
    assert!(sessions.contains("127.0.0.1") && sessions.contains("Firefox on Linux"), "the first sign-in: {sessions}");
    assert!(!page.shows("Sign-ins from new browsers") && page.shows("another password with the link"));
    assert!(!viewer.get(&path).await.shows("127.0.0.1"), "other roles don't see addresses");
    // The owner's own new browsers are not among those of the viewer.
    world.owner().await;
    assert!(!owner.get(&path).await.shows("Sign-ins from new browsers"));
    let own = world.owner_id().await;
    let page = owner.get(&format!("/users/{own}")).await;
    assert!(page.between("id=\"new-browsers\"", "</section>").contains("From 127.0.0.1, Firefox on Linux."));
    assert!(!page.shows("value=\"sign-out\""), "own sessions end under Settings");
    let ended = owner.post(&path, &[("action", "sign-out")]).await;
    assert_eq!(ended.location(), format!("{path}?done=signed-out"));
    assert_eq!((viewer.get("/").await.status, owner.get("/").await.status), (303, 200));
    let page = owner.get(&path).await;
    let latest = page.between("id=\"latest\"", "</section>");
    assert!(page.shows("Not signed in") && latest.contains("127.0.0.1") && latest.contains("Firefox on Linux"));
    assert!(owner.get("/users").await.shows("<span class=\"hint block\">127.0.0.1</span>"));
    let mut viewer = world.user_of(Role::Member).await;
    assert!(!viewer.get("/users").await.shows("127.0.0.1") && !viewer.get(&path).await.shows("Latest sign-ins"));
    let log = owner.get("/audit").await;
    assert!(log.between("id=\"sign-ins\"", "</section>").contains("127.0.0.1"), "the latest sign-ins of all users");
    assert!(!viewer.get("/audit").await.shows("127.0.0.1"));
}

#[tokio::test]
async fn a_new_user_gets_a_setup_link_and_no_word_of_a_password() {
    let world = World::new().await;
    let mut owner = world.owner().await;
    let made = owner.post("/users", &[("email", "cleo@example.test"), ("role", "viewer")]).await;
    assert!(made.shows("id=\"copy-link\"") && !made.shows("current password"), "{}", made.body);
    assert!(made.shows("User invited") && made.shows("No mail was sent: give this link to cleo@example.test."));
    let users = world.engine.users(world.account, LIST).unwrap().rows;
    let cleo = users.iter().find(|user| user.email.local() == "cleo").unwrap().id;
    assert!(owner.get("/audit").await.shows("<strong>cleo@example.test</strong></a> as viewer"));
    let page = owner.get(&format!("/users/{cleo}")).await;
    assert!(page.shows("<h1>cleo<wbr>@example.test</h1>") && !page.shows("Not used yet"), "{}", page.body);
    assert!(page.shows("the first password with the link") && !page.shows("Reset password"), "{}", page.body);
}

#[tokio::test]
async fn a_user_is_invited_until_the_first_sign_in() {
    let world = World::new().await;
    let mut owner = world.owner().await;
    owner.post("/users", &[("email", "cleo@example.test"), ("role", "viewer")]).await;
    let users = world.engine.users(world.account, LIST).unwrap().rows;
    let cleo = users.iter().find(|user| user.email.local() == "cleo").unwrap().id;
    let path = format!("/users/{cleo}");
    let list = owner.get("/users").await;
    let state = list.between(&format!("href=\"{path}\""), "</tr>");
    assert!(state.contains(">Invited <") && state.contains("until <time datetime=\"2023-11-15T22:13:20"), "{state}");
    let page = owner.get(&path).await;
    assert!(page.shows("Invited; the link works until ") && page.shows(">Create new link<"), "{}", page.body);
    assert!(page.shows("To withdraw the invitation, delete the user."));
    world.advance(DAY);
    let mut owner = world.owner().await;
    assert!(owner.get("/users").await.shows("link expired"));
    let again = owner.post(&path, &[("action", "link")]).await;
    assert!(again.shows("Invited; the link works until ") && !owner.get("/users").await.shows("link expired"));
    let token = again.between("id=\"copy-link\">", "<").split_once("?token=").unwrap().1.to_owned();
    let form = [("token", &*token), ("password", "correct horse battery")];
    assert_eq!(world.browser().post("/setup", &form).await.status, 303);
    let list = owner.get("/users").await;
    assert!(!list.shows("Invited") && list.between(&path, "</tr>").contains("Enabled"), "{}", list.body);
}

#[tokio::test]
async fn an_invited_user_chooses_a_password_with_the_setup_link() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let reply = browser.post("/users", &[("email", "cleo@example.test"), ("role", "viewer")]).await;
    assert_eq!(reply.status, 200);
    let link = reply.body.split("id=\"copy-link\">").nth(1).unwrap().split('<').next().unwrap().to_owned();
    let (path, token) = link.strip_prefix("http://panel.test").unwrap().split_once("?token=").unwrap();
    assert!(!browser.get("/users").await.shows(token));
    let mut cleo = world.browser();
    let password = "correct horse battery";
    assert_eq!(cleo.post(path, &[("token", token), ("password", password)]).await.status, 303);
    assert_eq!(cleo.sign_in("Cleo@Example.Test", password).await.status, 303);
    for (email, said) in [("cleo@EXAMPLE.test", "is already a user of this service"), ("cleo", "role=\"alert\"")] {
        let reply = browser.post("/users", &[("email", email), ("role", "owner")]).await;
        assert_eq!(reply.status, 422);
        assert!(reply.shows(said) || reply.shows("email-fault"), "{email}");
    }
    let id = world.engine.users(world.account, crate::engine::listing::PageRequest { before: None, limit: 9 }).unwrap();
    let id = id.rows.iter().find(|user| user.email.local() == "cleo").unwrap().id;
    let path = format!("/users/{id}");
    assert_eq!(browser.post(&path, &[("action", "disable")]).await.location(), format!("{path}?done=changed"));
    assert_eq!(cleo.get("/").await.status, 303, "signed out at once");
    assert_eq!(cleo.sign_in("cleo@example.test", password).await.status, 401);
    browser.post(&path, &[("action", "enable")]).await;
    assert_eq!(cleo.sign_in("cleo@example.test", password).await.status, 303);
    browser.post(&path, &[("action", "role"), ("role", "owner")]).await;
    assert_eq!(cleo.post("/settings", &[("content_retention_days", "8")]).await.status, 303);
    assert_eq!(browser.post(&format!("{path}/remove"), &[("name", "cleo")]).await.status, 422);
    let name = [("name", "Cleo@example.test")];
    assert_eq!(browser.post(&format!("{path}/remove"), &name).await.location(), "/users?done=removed");
    assert_eq!(cleo.get("/").await.status, 303);
}

#[tokio::test]
async fn a_refused_invitation_keeps_the_address_and_the_role() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let refused = browser.post("/users", &[("email", EMAIL), ("role", "member")]).await;
    assert_eq!(refused.status, 422);
    assert!(refused.shows("<option value=\"member\" selected>"), "{}", refused.body);
    assert!(refused.shows(&format!("value=\"{EMAIL}\"")));
    let refused = browser.post("/users", &[("email", "cleo@example.test"), ("role", "king")]).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.between("id=\"role-fault\">", "<"), "The role must be owner, member or viewer.");
}

#[tokio::test]
async fn an_account_invites_at_most_20_people_a_day_also_where_the_link_is_shown() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for number in 0..20 {
        let person = [("email", &*format!("u{number}@example.test")), ("role", "viewer")];
        assert!(browser.post("/users", &person).await.shows("id=\"copy-link\""), "{number}");
    }
    let refused = browser.post("/users", &[("email", "u20@example.test"), ("role", "viewer")]).await;
    assert_eq!(refused.status, 429);
    assert!(refused.shows("an account can invite 20 people in 24 hours"), "{}", refused.body);
}

#[tokio::test]
async fn an_unknown_role_changes_nothing_and_names_the_roles() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    browser.post("/users", &[("email", "cleo@example.test"), ("role", "member")]).await;
    let page = crate::engine::listing::PageRequest { before: None, limit: 9 };
    let users = world.engine.users(world.account, page).unwrap().rows;
    let cleo = users.iter().find(|user| user.email.local() == "cleo").unwrap().id;
    for role in ["king", ""] {
        let refused = browser.post(&format!("/users/{cleo}"), &[("action", "role"), ("role", role)]).await;
        assert_eq!(refused.status, 422);
        assert!(refused.shows("The role must be owner, member or viewer."), "{}", refused.body);
    }
    assert!(!browser.get("/audit").await.shows("changed the role"));
}

#[tokio::test]
async fn users_cannot_change_or_remove_themselves() {
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
async fn the_password_must_be_confirmed_again_after_15_minutes() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    world.advance(Duration::from_secs(15 * 60));
    let add = [("email", "cleo@example.test"), ("role", "viewer")];
    assert_eq!(browser.post("/users", &[]).await.location(), "/login/confirm?next=%2Fusers");
    assert_eq!(browser.get("/settings/totp").await.location(), "/login/confirm?next=%2Fsettings%2Ftotp");
    let wrong = browser.post("/login/confirm", &[("password", "wrong"), ("next", "/users")]).await;
    assert_eq!(wrong.status, 401);
    let right = [("password", world.password.as_str()), ("next", "/users")];
    assert_eq!(browser.post("/login/confirm", &right).await.location(), "/users");
    assert_eq!(browser.post("/users", &add).await.status, 200);
}

#[tokio::test]
async fn a_form_is_kept_while_the_password_is_confirmed() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    world.advance(Duration::from_secs(15 * 60));
    let webhook = [("url", "https://hooks.example.com/in?a=1&b=\"2\""), ("events", "bounced"), ("events", "delivered")];
    let asked = browser.post("/webhooks", &webhook).await;
    assert_eq!(asked.status, 403);
    assert!(world.engine.endpoints(world.account, LIST).unwrap().rows.is_empty());
    let (to, form) = (asked.hidden("to"), asked.hidden("form"));
    let wrong = [("password", "wrong"), ("next", "/webhooks"), ("to", to.as_str()), ("form", form.as_str())];
    let wrong = browser.post("/login/confirm", &wrong).await;
    assert_eq!((wrong.status, wrong.hidden("form")), (401, form.clone()), "{}", wrong.body);
    let password = world.password.clone();
    let right = [("password", password.as_str()), ("next", "/webhooks"), ("to", &to), ("form", &form)];
    let proved = browser.post("/login/confirm", &right).await;
    assert_eq!(proved.status, 200);
    assert!(proved.shows("action=\"/webhooks\""), "{}", proved.body);
    assert_eq!(proved.hidden("url"), webhook[0].1);
    assert_eq!(proved.body.matches("name=\"events\"").count(), 2);
    assert_eq!(browser.post("/webhooks", &webhook).await.status, 200);
    // A foreign address is never the target, and a form too large for the page is not kept.
    let foreign = [("password", password.as_str()), ("next", "/"), ("to", "//evil.example"), ("form", "a=b")];
    assert!(browser.post("/login/confirm", &foreign).await.shows("action=\"/\""));
    world.advance(Duration::from_secs(15 * 60));
    let large = "x".repeat(9_000);
    assert_eq!(browser.post("/keys", &[("name", large.as_str())]).await.location(), "/login/confirm?next=%2Fkeys");
}

#[tokio::test]
async fn users_of_a_suspended_account_change_only_their_own_user() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let on = Behalf::operator(world.account);
    assert!(world.engine.suspend_account(on.clone(), "unpaid invoices".parse().unwrap()).await.is_ok());
    let page = browser.get("/settings").await;
    assert!(page.status == 200 && page.shows("(unpaid invoices). The account is read-only and sends no mail."));
    let refused = browser.post("/settings", &[("content_retention_days", "7")]).await;
    assert_eq!(refused.status, 403);
    assert!(refused.shows("The account is suspended") && refused.shows("unpaid invoices"));
    let search = [("q", "status:failed"), ("name", "Failed")];
    assert_eq!(browser.post("/messages", &search).await.status, 403);
    assert_eq!(browser.post("/messages/remove-search", &[("name", "Failed")]).await.status, 403);
    assert!(!browser.get("/messages?q=status%3Afailed").await.shows("save-name"));
    let message = world.send(serde_json::json!({})).await;
    let page = browser.get(&format!("/messages/{message}")).await;
    for shown in ["Cancel message", "Retry now", "Next attempt"] {
        assert!(!page.shows(shown), "{shown} in {}", page.body);
    }
    assert!(!browser.get("/webhooks").await.shows("action=\"/webhooks\""));
    assert_eq!(browser.post("/settings/sessions", &[]).await.status, 303);
    let mut browser = world.owner().await;
    assert!(world.engine.resume_account(on).await.is_ok());
    assert_eq!(browser.post("/settings", &[("content_retention_days", "7")]).await.status, 303);
}

#[tokio::test]
async fn every_form_is_limited_to_the_roles_that_may_send_it() {
    const OWN: [&str; 9] = [
        "panel.messages.save",
        "panel.messages.remove_search",
        "panel.logout",
        "panel.view.end",
        "panel.proof.try",
        "panel.password",
        "panel.sessions.end",
        "panel.totp.set",
        "panel.totp.remove",
    ];
    const OPEN: [&str; 4] = ["panel.login.try", "panel.setup.try", "panel.code.try", "panel.appearance"];
    const OF_MEMBERS: [&str; 8] = [
        "panel.message.cancel",
        "panel.message.try",
        "panel.queue.try",
        "panel.delivery.again",
        "panel.domain.verify",
        "panel.suppressions.add",
        "panel.suppressions.import.try",
        "panel.suppression.remove",
    ];
    let world = World::new().await;
    let mut members = world.user_of(Role::Member).await;
    let mut viewers = world.viewer().await;
    let mut seen = 0;
    for route in crate::panel::routes() {
        let is_for_all = OWN.contains(&route.name) || OPEN.contains(&route.name) || route.name == "panel.explain.try";
        if route.method != hyper::Method::POST || is_for_all {
            continue;
        }
        let path = route.path.replace("{id}", "x").replace("{delivery}", "x");
        let is_of_members = OF_MEMBERS.contains(&route.name);
        seen += usize::from(is_of_members);
        assert_eq!(members.post(&path, &[]).await.status == 403, !is_of_members, "{path}");
        assert_eq!(viewers.post(&path, &[]).await.status, 403, "{path}");
    }
    assert_eq!(seen, OF_MEMBERS.len());
    assert!(members.get("/suppressions").await.shows("action=\"/suppressions\""));
    assert!(!members.get("/users").await.shows("Invite user"));
}

#[tokio::test]
async fn the_last_owner_of_an_account_cannot_be_removed() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let own = world.owner_id().await;
    let reply = browser.post("/users", &[("email", "cleo@example.test"), ("role", "owner")]).await;
    let link = reply.body.split("id=\"copy-link\">").nth(1).unwrap().split('<').next().unwrap().to_owned();
    let token = link.split_once("?token=").unwrap().1;
    let mut cleo = world.browser();
    assert_eq!(cleo.post("/setup", &[("token", token), ("password", "correct horse battery")]).await.status, 303);
    let page = crate::engine::listing::PageRequest { before: None, limit: 9 };
    let others = world.engine.users(world.account, page).unwrap().rows;
    let other = others.iter().find(|user| user.id != own).unwrap().id;
    let demoted = [("action", "role"), ("role", "member")];
    assert_eq!(browser.post(&format!("/users/{other}"), &demoted).await.status, 303);
    // A concurrent form of the other owner changes this role in between. The operation still counts the owners.
    let on = Behalf::new(world.account, Actor::Service);
    let change = || UserChange { role: Some(Role::Member), ..UserChange::default() };
    let refused = world.engine.change_user(on.clone(), own, change()).await;
    assert!(matches!(refused, Err(OpError::Refused(UserRefusal::LastOwner))));
    let refused = world.engine.delete_user(on, own).await;
    assert!(matches!(refused, Err(OpError::Refused(UserRefusal::LastOwner))));
    assert!(world.engine.change_user(Behalf::operator(world.account), own, change()).await.is_ok());
}
