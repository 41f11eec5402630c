//! Tests of the operators' pages, and of their view of another account.

use super::following::Following;
use super::*;
use crate::domain::audit::Action;
use crate::domain::user::User;
use crate::domain::webhook_url::WebhookUrl;
use crate::engine::audit::Behalf;
use crate::engine::endpoints::NewEndpoint;
use crate::engine::listing::PageRequest;
use crate::engine::users::UserChange;

const PAGE: PageRequest = PageRequest { before: None, limit: 50 };

/// Pages that show message content, whole records or files.
const PRIVATE: [&str; 17] = [
    "panel.dmarc.json",
    "panel.messages.export",
    "panel.message.preview",
    "panel.message.source",
    "panel.message.download",
    "panel.message.json",
    "panel.captured",
    "panel.captured.mail",
    "panel.captured.preview",
    "panel.captured.source",
    "panel.events.export",
    "panel.suppressions.export",
    "panel.suppression.json",
    "panel.webhook.json",
    "panel.delivery.json",
    "panel.domain.json",
    "panel.key.json",
];
/// Pages about the visitor's own sign-in.
const OWN: [&str; 3] = ["panel.proof", "panel.proof.form", "panel.totp"];
/// Routes that need no session.
const OPEN: [&str; 12] = [
    "panel.oidc",
    "panel.oidc.callback",
    "panel.assets",
    "panel.docs",
    "panel.docs.page",
    "panel.login",
    "panel.login.try",
    "panel.setup",
    "panel.setup.try",
    "panel.code",
    "panel.code.try",
    "panel.appearance",
];

impl World {
    /// Returns a browser of an operator from another account, and the user.
    async fn operator(&self) -> (Browser, AccountId, User) {
        let account = self.engine.create_account("Hosting".parse().unwrap(), None, self.engine.settings.quota).await;
        let account = account.unwrap().id;
        let made = self.engine.create_user(account, "olga@example.test".parse().unwrap(), Role::Owner).await.unwrap();
        let on = Behalf::operator(account);
        let change = UserChange { operator: Some(true), ..UserChange::default() };
        let user = self.engine.change_user(on, made.0.id, change).await.unwrap();
        let mut browser = self.browser();
        assert_eq!(browser.sign_in("olga@example.test", made.1.expose()).await.status, 303);
        (browser, account, user)
    }

    /// Returns an operator's browser with a view of the test account.
    async fn viewing(&self) -> (Browser, AccountId, User) {
        let (mut browser, account, user) = self.operator().await;
        let path = format!("/accounts/{}/view", self.account);
        assert_eq!(browser.post(&path, &[("reason", "ticket 4711")]).await.location(), "/");
        (browser, account, user)
    }

    /// Returns the audit log of an account, the oldest line first.
    fn log(&self, account: AccountId) -> Vec<(Action, String, String)> {
        let lines = self.engine.audit_log(account, PAGE).unwrap().rows.into_iter().rev();
        lines.map(|(_, line)| (line.change.action, line.change.name, line.actor.to_string())).collect()
    }
}

fn line(action: Action, name: &str, who: &str) -> (Action, String, String) {
    (action, name.to_owned(), who.to_owned())
}

#[tokio::test]
async fn operator_pages_are_limited_to_operators() {
    let world = World::new().await;
    let (mut operator, own, _) = world.operator().await;
    let mut owner = world.owner().await;
    let of_account = format!("/accounts/{}", world.account);
    for path in ["/system", "/accounts", &of_account] {
        assert_eq!(operator.get(path).await.status, 200, "{path}");
        let refused = owner.get(path).await;
        assert!(refused.status == 403 && refused.shows("Operators only"), "{path}");
        assert_eq!(world.browser().get(path).await.status, 303, "{path}");
    }
    for path in ["/system/doctor", "/accounts", &of_account, &format!("{of_account}/view")] {
        assert_eq!(owner.post(path, &[("reason", "x"), ("name", "x")]).await.status, 403, "{path}");
    }
    let (found, hidden) = (operator.get("/messages").await, owner.get("/messages").await);
    for place in ["href=\"/system\"", "href=\"/accounts\"", ">Operator</h2>"] {
        assert!(found.shows(place) && !hidden.shows(place), "{place}");
    }
    assert_eq!(operator.get(&format!("/accounts/{}", AccountId::default())).await.status, 404);
    assert_eq!(operator.get("/accounts/nonsense").await.status, 404);
    assert!(world.log(own).contains(&line(Action::OperatorNamed, "olga@example.test", "operator")));
}

#[tokio::test]
async fn the_system_page_shows_service_alerts_and_replication() {
    use crate::domain::alert::{Condition, Severity, Sighting};
    use crate::store::op::alert::RaiseAlert;
    let world = World::new().await;
    let (mut operator, ..) = world.operator().await;
    let page = operator.get("/system").await;
    assert!(
        !page.shows("Open alerts")
            && page.shows("id=\"replication\"")
            && page.shows("see <a href=\"/docs/replication\"")
    );
    let disk = Sighting::new(Condition::DiskLow, Severity::Critical, "The disk is full", "1 MiB is free.");
    let quota = Sighting::new(Condition::Quota, Severity::Critical, "Quota used up", "A send was refused.");
    for (account, sighting) in [(AccountId::default(), disk), (world.account, quota)] {
        let op = RaiseAlert { account, sighting, is_over: false };
        world.engine.store.commit(op).await.unwrap_or_else(|_| panic!("an alert opens"));
    }
    let page = operator.get("/system").await;
    let alerts = page.between("id=\"alerts\"", "</section>");
    assert!(
        alerts.contains("Critical") && alerts.contains("<a href=\"/alerts#alr_") && alerts.contains("1 MiB is free.")
    );
    assert!(
        alerts.contains("/docs/alerts#disk_low") && !alerts.contains("Quota used up"),
        "an account's own: {alerts}"
    );
    assert!(alerts.contains("The disk is full"));
    let page = operator.get("/alerts").await;
    assert!(page.shows("The disk is full (critical alert)."), "{}", page.body);
}

#[tokio::test]
async fn an_operator_creates_changes_suspends_and_resumes_accounts() {
    let world = World::new().await;
    let (mut browser, _, _) = world.operator().await;
    let made = browser.post("/accounts", &[("name", "Branch"), ("quota_per_hour", "5"), ("quota_per_day", "")]).await;
    let id = made.location().trim_start_matches("/accounts/").split('?').next().unwrap().to_owned();
    let account: AccountId = id.parse().unwrap();
    let path = format!("/accounts/{id}");
    let page = browser.get(made.location()).await;
    for shown in [
        "<h1>Branch</h1>",
        "0 of 5",
        "Active",
        "<dt>Owners</dt>",
        &format!("user add EMAIL --account {id} --role owner"),
    ] {
        assert!(page.shows(shown), "{shown} in {}", page.body);
    }
    for (form, field) in [([("name", " ")], "name-fault"), ([("quota_per_day", "many")], "day-fault")] {
        let refused = browser.post(&path, &form).await;
        assert!(refused.status == 422 && refused.shows(field), "{field}");
    }
    let page = browser.get(&path).await;
    for (link, field) in [("View as", "view-reason"), ("Suspend", "reason")] {
        assert!(page.shows(&format!("<a href=\"#{field}\">{link}</a>")), "{link} leads to its field");
        assert!(page.shows(&format!("<input id=\"{field}\" name=\"reason\"")), "{link}: {}", page.body);
    }
    assert!(page.shows("<h2 id=\"view\">View as Branch</h2>") && page.shows(">View as<span"), "{}", page.body);
    let changed = browser.post(&path, &[("name", "Shop"), ("quota_per_day", "7,000")]).await;
    assert_eq!(changed.location(), format!("{path}?done=saved"));
    let quota = world.engine.account(account).unwrap().unwrap().quota;
    assert_eq!((quota.per_hour, quota.per_day), (5, 7_000));
    assert!(browser.get(&path).await.shows("name=\"quota_per_day\" inputmode=\"numeric\" value=\"7,000\""));
    assert_eq!(browser.post(&format!("{path}/suspend"), &[("reason", "")]).await.status, 422);
    browser.post(&format!("{path}/suspend"), &[("reason", "unpaid")]).await;
    assert!(browser.get(&path).await.shows("Reason: unpaid</p>"));
    browser.post(&format!("{path}/view"), &[("reason", "ticket 7")]).await;
    assert!(browser.get(&path).await.shows("End the view to resume the account."));
    let overview = browser.get("/").await;
    assert!(!overview.shows("Send your first message") && overview.shows("A suspended account can't send"));
    browser.post("/view/end", &[]).await;
    assert!(browser.get("/accounts").await.shows("Suspended"));
    assert!(world.engine.suspension(account).unwrap().is_some());
    browser.post(&format!("{path}/resume"), &[]).await;
    assert!(world.engine.suspension(account).unwrap().is_none());
    let actions: Vec<_> = world.log(account).into_iter().map(|(action, _, who)| (action, who)).collect();
    let olga = || "olga@example.test".to_owned();
    assert_eq!(
        actions,
        [
            (Action::AccountCreated, olga()),
            (Action::SettingsChanged, olga()),
            (Action::AccountSuspended, olga()),
            (Action::ViewBegun, olga()),
            (Action::ViewEnded, olga()),
            (Action::AccountResumed, olga()),
        ]
    );
    // An operator whose own account is suspended can still resume it.
    let own = world.engine.user_by_email(&olga().parse().unwrap()).unwrap().unwrap().0;
    browser.post(&format!("/accounts/{own}/suspend"), &[("reason", "by mistake")]).await;
    assert_eq!(browser.post("/settings", &[("name", "x")]).await.status, 403);
    assert_eq!(browser.post(&format!("/accounts/{own}/resume"), &[]).await.status, 303);
}

#[tokio::test]
async fn a_view_shows_another_account_without_content_and_is_logged_twice() {
    let world = World::new().await;
    let url = WebhookUrl::parse("https://hooks.example.com/secret-path", |_| true).unwrap();
    let new = NewEndpoint { url, events: None, description: None };
    world.engine.create_endpoint(world.account, new).await.unwrap();
    let message =
        world.send(serde_json::json!({ "text": "the secret text", "headers": { "X-Own": "own-header" } })).await;
    let (mut browser, _, _) = world.viewing().await;
    for path in ["/", "/messages", "/domains", "/settings", "/system", "/accounts"] {
        let page = browser.get(path).await;
        assert!(
            page.status == 200 && page.shows("You are viewing Acme as operator") && page.shows("ticket 4711"),
            "{path}"
        );
    }
    let list = browser.get("/messages").await;
    assert!(list.shows("Your order") && list.shows(&message.to_string()));
    let webhooks = browser.get("/webhooks").await;
    assert!(webhooks.shows("hooks.example.com") && !webhooks.shows("secret-path"), "{}", webhooks.body);
    for tab in ["", "?tab=source", "?tab=json"] {
        let page = browser.get(&format!("/messages/{message}{tab}")).await;
        assert!(!page.shows("secret-path"), "{tab}");
        assert!(page.status == 200 && page.shows("Your order") && page.shows("bob@example.com"));
        assert!(!page.shows("the secret text") && !page.shows("own-header"), "{tab}");
    }
    let settings = browser.get("/settings").await;
    assert!(!settings.shows("current_password") && settings.shows(&world.account.to_string()));
    assert_eq!(world.log(world.account).last().unwrap(), &line(Action::ViewBegun, "ticket 4711", "olga@example.test"));
    let ended = browser.post("/view/end", &[]).await;
    assert_eq!(ended.location(), format!("/accounts/{}?done=view-ended", world.account));
    assert_eq!(world.log(world.account).last().unwrap(), &line(Action::ViewEnded, "ticket 4711", "olga@example.test"));
    assert_eq!(browser.get(&format!("/messages/{message}")).await.status, 404);
    assert!(!browser.get("/").await.shows("You are viewing"));
    assert!(world.owner().await.get("/audit").await.shows("ticket 4711"));
}

#[tokio::test]
async fn a_view_allows_only_reads_of_pages() {
    let world = World::new().await;
    let (mut browser, ..) = world.viewing().await;
    for route in crate::panel::routes() {
        if OPEN.contains(&route.name) || ["panel.logout", "panel.view.end", "panel.events.stream"].contains(&route.name)
        {
            continue;
        }
        let path = route.path.replace("{id}", "x").replace("{delivery}", "x");
        let is_read = route.method == hyper::Method::GET;
        let reply = if is_read { browser.get(&path).await } else { browser.post(&path, &[("reason", "x")]).await };
        let asks = route.name.contains(".ask.");
        let is_shown = is_read && !asks && !PRIVATE.contains(&route.name) && !OWN.contains(&route.name);
        assert_eq!(reply.status == 403, !is_shown, "{} {path}: {}", route.method, reply.status);
        assert!(is_shown || reply.shows("End the view"), "{path}");
        let is_own = route.path.starts_with("/messages/export");
        assert!(!is_own || (reply.status == 403 && reply.shows("You are viewing Acme as operator")), "{path}");
    }
}

#[tokio::test]
async fn a_view_ends_by_time_loss_of_the_right_or_sign_out_with_its_streams() {
    for end in ["time", "right", "sign-out", "end"] {
        let world = World::new().await;
        let message = world.send(serde_json::json!({})).await;
        let (mut browser, own, user) = world.viewing().await;
        let mut stream = Following::open(&world, &browser, "/events/stream").await;
        assert!(stream.has("retry: ").await);
        assert_eq!(browser.get(&format!("/messages/{message}")).await.status, 200);
        match end {
            "time" => {
                world.advance(Duration::from_secs(30 * 60));
                let [timer] = world.timers_of_views()[..] else { panic!("one timer") };
                assert!(world.engine.store.commit(crate::store::op::view::ExpireView { timer }).await.is_ok());
            }
            "right" => {
                let change = UserChange { operator: Some(false), ..UserChange::default() };
                world.engine.change_user(Behalf::operator(own), user.id, change).await.unwrap();
            }
            "sign-out" => drop(browser.post("/logout", &[]).await),
            _ => drop(browser.post("/view/end", &[]).await),
        }
        let status = browser.get(&format!("/messages/{message}")).await.status;
        assert_eq!(status, if end == "sign-out" { 303 } else { 404 }, "{end}");
        let unseen = world.send(serde_json::json!({})).await;
        assert!(!stream.has(&unseen.to_string()).await, "{end}");
        assert_eq!(world.log(world.account).last().unwrap().0, Action::ViewEnded, "{end}");
        assert!(world.timers_of_views().is_empty(), "{end}");
    }
}

#[tokio::test]
async fn a_view_needs_a_reason_and_a_current_operator() {
    let world = World::new().await;
    let (mut browser, own, user) = world.operator().await;
    let path = format!("/accounts/{}/view", world.account);
    let refused = browser.post(&path, &[("reason", " ")]).await;
    assert!(refused.status == 422 && refused.shows("view-fault"));
    let change = UserChange { operator: Some(false), ..UserChange::default() };
    world.engine.change_user(Behalf::operator(own), user.id, change).await.unwrap();
    assert_eq!(browser.post(&path, &[("reason", "x")]).await.status, 403);
    assert!(!world.log(world.account).iter().any(|(action, ..)| *action == Action::ViewBegun));
    assert_eq!(browser.get("/").await.status, 200, "the own account stays");
}

#[tokio::test]
async fn owners_cannot_sign_in_as_an_operator_of_their_account() {
    let world = World::new().await;
    let mut owner = world.owner().await;
    let made =
        world.engine.create_user(world.account, "olga@example.test".parse().unwrap(), Role::Member).await.unwrap();
    let change = UserChange { operator: Some(true), ..UserChange::default() };
    world.engine.change_user(Behalf::operator(world.account), made.0.id, change).await.unwrap();
    for action in ["password", "link", "totp"] {
        let refused = owner.post(&format!("/users/{}", made.0.id), &[("action", action)]).await;
        assert_eq!(refused.status, 409, "{action}");
    }
    assert_eq!(owner.post(&format!("/users/{}", made.0.id), &[("action", "disable")]).await.status, 303);
}

impl World {
    fn timers_of_views(&self) -> Vec<crate::store::timer::Timer> {
        use crate::store::read::{Order, Read as _, after_prefix};
        use crate::store::timer::{Timer, TimerKind};
        let table = crate::store::schema::Table::Timers;
        let keys = self.engine.store.snapshot().unwrap().keys(table, &[], &after_prefix(&[]), Order::Ascending, 999);
        let timers = keys.unwrap().into_iter().filter_map(|key| Timer::decode(&key));
        timers.filter(|timer| timer.kind == TimerKind::ViewEnd).collect()
    }
}
