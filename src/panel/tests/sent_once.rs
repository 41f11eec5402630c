//! Tests of forms whose answer shows a secret: a reload of the answer repeats nothing.

use super::*;
use crate::engine::listing::PageRequest;

const PAGE: PageRequest = PageRequest { before: None, limit: 99 };

impl World {
    /// Returns the store's rows that the forms of this file change.
    fn changed_rows(&self) -> String {
        let keys = self.engine.keys(self.account, PAGE).unwrap().rows;
        let endpoints = self.engine.endpoints(self.account, PAGE).unwrap().rows;
        let users = self.engine.users(self.account, PAGE).unwrap().rows;
        let of_endpoint = |row: &crate::store::row::endpoint::EndpointRow| (row.updated_at, row.secret.0.clone());
        let endpoints: Vec<_> = endpoints.iter().map(|(id, row)| (*id, of_endpoint(row))).collect();
        let users: Vec<_> = users.iter().map(|user| (user.id, user.password_hash.clone())).collect();
        format!("{} {endpoints:?} {users:?}", keys.len())
    }
}

#[tokio::test]
async fn a_form_that_shows_a_secret_is_executed_once() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let webhook = world.endpoint().await;
    world.viewer().await;
    let users = world.engine.users(world.account, PAGE).unwrap().rows;
    let user = users.iter().find(|user| user.email.local() != "ann").unwrap().id;
    let (of_webhook, of_user) = (format!("/webhooks/{webhook}?tab=settings"), format!("/users/{user}"));
    let rotate = format!("/webhooks/{webhook}/rotate-secret");
    let url = ("url", "https://hooks.example.com/other");
    for (page, path, fields, what_to_do, link) in [
        ("/keys", "/keys", &[("name", "shop"), ("scopes", "send")][..], "create another", "API keys"),
        ("/webhooks", "/webhooks", &[url, ("has_events", "1"), ("events", "failed")], "rotate the secret", "webhooks"),
        (&of_webhook, &rotate, &[], "rotate the secret again", "the webhook"),
        ("/users", "/users", &[("email", "cleo@example.test"), ("role", "viewer")], "create another link", "users"),
        (&of_user, &of_user, &[("action", "password")], "create another", "the user"),
        (&of_user, &of_user, &[("action", "link")], "create another", "the user"),
    ] {
        let number = browser.get(page).await.hidden("once");
        assert!(!number.is_empty(), "{page}");
        let form = [fields, &[("once", number.as_str())]].concat();
        let shown = browser.post(path, &form).await;
        assert!(shown.status == 200 && shown.shows("id=\"copy-"), "{path}: {}", shown.body);
        let before = world.changed_rows();
        let again = browser.post(path, &form).await;
        assert_eq!((again.status, world.changed_rows()), (409, before), "{path}");
        assert!(again.shows("Already done") && again.shows(what_to_do), "{path}: {}", again.body);
        assert!(!again.shows("id=\"copy-") && again.shows(&format!(">Open {link}</a>")), "{path}");
    }
}

#[tokio::test]
async fn a_refused_form_and_one_with_other_fields_are_executed() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let number = browser.get("/keys").await.hidden("once");
    let form = |name: &'static str| [("name", name), ("scopes", "send"), ("once", number.as_str())];
    for (name, status) in [("", 422), ("", 422), ("shop", 200), ("till", 200), ("shop", 409)] {
        assert_eq!(browser.post("/keys", &form(name)).await.status, status, "{name}");
    }
    assert_eq!(world.engine.keys(world.account, PAGE).unwrap().rows.len(), 2);
}

#[tokio::test]
async fn a_form_of_a_page_from_before_the_start_is_not_executed() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let form = [("name", "shop"), ("scopes", "send"), ("once", "0123456789abcdef-0")];
    let refused = browser.post("/keys", &form).await;
    assert!(refused.status == 409 && refused.shows("was restarted after this page was opened"), "{}", refused.body);
    assert!(world.engine.keys(world.account, PAGE).unwrap().rows.is_empty());
}

#[tokio::test]
async fn the_address_of_a_form_leads_to_its_page() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let webhook = world.endpoint().await;
    let rotate = format!("/webhooks/{webhook}/rotate-secret");
    assert_eq!(browser.get(&rotate).await.location(), format!("/webhooks/{webhook}"));
    let routes = crate::panel::routes();
    let pages: Vec<_> = routes.iter().filter(|route| route.method == hyper::Method::GET).collect();
    for form in routes.iter().filter(|route| route.method == hyper::Method::POST) {
        let at = pages.iter().find(|page| page.path == form.path);
        let page = at.unwrap_or_else(|| panic!("{} has no page", form.path));
        if page.name == "panel.form" {
            let leads_to = browser.get(form.path).await.location().to_owned();
            let is_page = pages.iter().any(|page| page.path == leads_to && page.name != "panel.form");
            assert!(is_page, "{} leads to {leads_to}", form.path);
        }
    }
}
