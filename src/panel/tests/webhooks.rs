//! Tests of webhooks: creating and changing them, automatic disabling, and deliveries.

use super::*;
use crate::base::id::{DeliveryId, EndpointId};
use crate::engine::deliveries::DeliveryRecord;
use crate::engine::endpoints::NewEndpoint;
use crate::engine::listing::PageRequest;
use crate::machine::delivery::Stage;
use crate::store::op::settle_delivery::{Attempt, DeliveryEnd, SettleDelivery};

const PAGE: PageRequest = PageRequest { before: None, limit: 99 };

impl World {
    pub(super) async fn endpoint(&self) -> EndpointId {
        let url = crate::domain::webhook_url::WebhookUrl::parse("https://hooks.example.com/in", |_| true).unwrap();
        let new = NewEndpoint { url, events: None, description: None };
        self.engine.create_endpoint(self.account, new).await.unwrap().0
    }

    pub(super) fn deliveries(&self, endpoint: EndpointId) -> Vec<DeliveryRecord> {
        self.engine.deliveries(self.account, endpoint, None, PAGE).unwrap().unwrap().rows
    }

    /// Records an attempt of a delivery at the current time.
    pub(super) async fn attempt(&self, record: &DeliveryRecord, status: u16, body: &str) {
        let Stage::Pending { due } = record.row.state.stage else { panic!("it has ended") };
        let at = self.clock.now();
        let end = DeliveryEnd::Attempted(Attempt {
            at,
            ended_at: at,
            status: Some(status),
            error: (status >= 300).then(|| "status".to_owned()),
            duration_ms: 84,
            peer: Some("192.0.2.80".to_owned()),
            response_body: Some(body.to_owned()),
        });
        let op = SettleDelivery { account: self.account, delivery: record.id, due, end };
        self.engine.store.commit(op).await.unwrap();
    }

    /// Creates an endpoint that failed ten times in a row.
    async fn disabled(&self) -> EndpointId {
        let endpoint = self.endpoint().await;
        for number in 0..10 {
            self.send(serde_json::json!({})).await;
            self.advance(Duration::from_secs(1));
            let newest = self.deliveries(endpoint).remove(0);
            self.attempt(&newest, 500, &format!("broken {number}")).await;
        }
        endpoint
    }
}

fn secret_of(page: &Reply) -> String {
    page.between("id=\"copy-secret\" class=\"whole\">", "<").to_owned()
}

#[tokio::test]
async fn a_webhook_is_created_and_its_secret_shown_once() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    assert!(browser.get("/webhooks").await.shows("No webhooks yet"));
    let form =
        [("url", "https://hooks.example.com/in"), ("has_events", "1"), ("events", "bounced"), ("events", "failed")];
    let made = browser.post("/webhooks", &form).await;
    let secret = secret_of(&made);
    assert!(made.status == 200 && secret.starts_with("whsec_") && secret.len() == 50, "{}", made.body);
    let (id, row) = world.engine.endpoints(world.account, PAGE).unwrap().rows.remove(0);
    assert_eq!((row.url.as_str(), row.events.unwrap().len()), ("https://hooks.example.com/in", 2));
    for path in ["/webhooks", &format!("/webhooks/{id}"), &format!("/webhooks/{id}/json")] {
        let page = browser.get(path).await;
        assert!(page.status == 200 && page.shows("hooks.example.com") && !page.shows(&secret), "{path}");
    }
    let page = browser.get(&format!("/webhooks/{id}")).await;
    assert!(page.shows(&format!("curl http://panel.test/v1/webhooks/{id}")) && page.shows("bounced, failed"));
}

#[tokio::test]
async fn webhooks_of_one_host_differ_in_the_list() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let orders = "https://hooks.example.com/a/long/path/of/the/shop/that/ends/with/orders";
    let invoices = "https://hooks.example.com/a/long/path/of/the/shop/that/ends/with/invoices";
    for form in [
        vec![("url", orders)],
        vec![("url", invoices), ("description", "Books")],
        vec![("url", "https://hooks.example.com/")],
    ] {
        assert_eq!(browser.post("/webhooks", &form).await.status, 200);
    }
    let page = browser.get("/webhooks").await;
    for (title, below) in [
        ("hooks.example.com", format!("title=\"{orders}\">/a/long/path/of/the/sh…that/ends/with/orders<")),
        ("Books", format!("title=\"{invoices}\">hooks.example.com/a/lo…at/ends/with/invoices<")),
    ] {
        assert!(page.shows(&format!(">{title}</a> <span class=\"hint block\" {below}")), "{}", page.body);
    }
    assert!(page.shows(">hooks.example.com</a></td>"), "the root has no path");
}

#[tokio::test]
async fn a_rejected_webhook_form_keeps_its_input_and_shows_errors() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = world.endpoint().await;
    for path in ["/webhooks", &format!("/webhooks/{id}")] {
        let form =
            [("url", "http://plain.test/in"), ("events", "bounced"), ("events", "opened"), ("description", "shop")];
        let reply = browser.post(path, &form).await;
        assert_eq!(reply.status, 422, "{path}");
        assert!(reply.shows("value=\"http://plain.test/in\"") && reply.shows("value=\"shop\""), "{path}");
        assert!(reply.shows("value=\"bounced\" checked") && !reply.shows("value=\"failed\" checked"), "{path}");
        assert!(reply.shows("id=\"url-fault\"") && reply.shows("id=\"events-fault\""), "{path}");
    }
    assert_eq!(world.engine.endpoint(world.account, id).unwrap().unwrap().url, "https://hooks.example.com/in");
}

#[tokio::test]
async fn a_webhook_is_changed_paused_reactivated_and_deleted() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = world.endpoint().await;
    let path = format!("/webhooks/{id}");
    let row = || world.engine.endpoint(world.account, id).unwrap();
    let form = [("url", "https://b.example.com/"), ("description", "shop"), ("has_events", "1"), ("events", "failed")];
    assert_eq!(browser.post(&path, &form).await.location(), format!("{path}?tab=settings&done=saved"));
    let changed = row().unwrap();
    assert_eq!((changed.url.as_str(), changed.description.as_deref()), ("https://b.example.com/", Some("shop")));
    assert_eq!(changed.events.unwrap().len(), 1);
    browser.post(&path, &[("description", ""), ("has_events", "1")]).await;
    assert_eq!((row().unwrap().description, row().unwrap().events), (None, None));

    assert_eq!(browser.post(&format!("{path}/pause"), &[]).await.location(), format!("{path}?done=paused"));
    assert!(!row().unwrap().state.is_enabled() && browser.get(&path).await.shows("Paused"));
    browser.post(&format!("{path}/reactivate"), &[]).await;
    assert!(row().unwrap().state.is_enabled());

    assert_eq!(
        browser.post(&format!("{path}/delete"), &[("name", "b.example.com")]).await.location(),
        "/webhooks?done=deleted"
    );
    assert!(row().is_none());
    assert_eq!(browser.get(&path).await.status, 404);
    assert_eq!(browser.post(&format!("{path}/reactivate"), &[]).await.status, 404);
}

#[tokio::test]
async fn a_disabled_webhook_shows_its_failures_and_is_reactivated() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = world.disabled().await;
    let strip = browser.get("/").await;
    assert!(!strip.shows("open alert"), "the notice about the webhook is enough: {}", strip.body);
    assert!(strip.shows("is disabled after repeated failures") && strip.shows(&format!("href=\"/webhooks/{id}\"")));
    assert!(browser.get("/webhooks").await.shows("Disabled after repeated failures"));
    // Pending deliveries must not hide the failures.
    for _ in 0..30 {
        world.send(serde_json::json!({})).await;
    }
    let page = browser.get(&format!("/webhooks/{id}")).await;
    assert!(page.shows("Events are held 30 days") && page.shows("Receiver error: see its log"));
    let failures = page.between("Recent failures", "</table>");
    assert!(failures.contains("500</th><td class=\"number\" data-label=\"Count\">10</td>"), "{failures}");
    assert!(page.shows("Success rate, 24 hours</dt><dd>0% (0 of 10 attempts)"), "{}", page.body);
    assert!(page.shows("Held") && page.shows("rel=\"next\""));
    let reply = browser.post(&format!("/webhooks/{id}/reactivate"), &[]).await;
    assert_eq!(reply.location(), format!("/webhooks/{id}?done=reactivated"));
    let page = browser.get(reply.location()).await;
    assert!(page.shows("Enabled.") && !page.shows("Events are held 30 days"));
}

#[tokio::test]
async fn a_delivery_shows_each_attempt_with_its_response() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = world.endpoint().await;
    let message = world.send(serde_json::json!({})).await;
    let record = world.deliveries(id).remove(0);
    let path = format!("/webhooks/{id}/deliveries/{}", record.id);
    assert!(browser.get(&path).await.shows("No attempts yet"));
    world.attempt(&record, 302, "Moved").await;
    world.advance(Duration::from_secs(60));
    world.attempt(&world.deliveries(id)[0], 204, "").await;
    let page = browser.get(&path).await;
    for expected in
        ["Attempt 1", "302", "Redirect: use the final URL", "Moved", "192.0.2.80", "84 ms", "Attempt 2", "204"]
    {
        assert!(page.shows(expected), "{expected}");
    }
    assert!(page.shows(&format!("href=\"/messages/{message}\"")) && page.shows("2 of at most 7"));
    let json = browser.get(&format!("{path}/json")).await;
    assert!(json.body.starts_with(&format!("{{\"id\":\"{}\"", record.id)) && json.shows("\"response_body\":\"Moved\""));

    let again = browser.post(&format!("{path}/redeliver"), &[]).await;
    assert_eq!(again.location(), format!("/webhooks/{id}?done=again"));
    let deliveries = world.deliveries(id);
    assert_eq!((deliveries.len(), deliveries[0].row.event), (2, record.row.event));
    assert!(browser.get(&format!("/webhooks/{id}")).await.shows(&format!("/deliveries/{}", deliveries[0].id)));
    let foreign = world.endpoint().await;
    assert_eq!(browser.get(&format!("/webhooks/{foreign}/deliveries/{}", record.id)).await.status, 404);
    assert_eq!(browser.get(&format!("/webhooks/{id}/deliveries/{}", DeliveryId::default())).await.status, 404);
}

#[tokio::test]
async fn tests_and_replays_are_listed_as_deliveries() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = world.endpoint().await;
    let path = format!("/webhooks/{id}");
    assert_eq!(browser.post(&format!("{path}/test"), &[]).await.location(), format!("{path}?done=test"));
    assert_eq!(world.deliveries(id)[0].row.owed.event_type(), "test");
    world.send(serde_json::json!({})).await;
    let page = browser.get(&path).await;
    let since = page.between("<select id=\"since\" name=\"since\"><option value=\"", "\"").to_owned();
    let all = [("events", "all"), ("since", since.as_str())];
    let pending = browser.post(&format!("{path}/replay"), &all).await;
    assert_eq!((pending.location(), world.deliveries(id).len()), (format!("{path}?done=replayed-none").as_str(), 2));
    let late = world.endpoint().await;
    let replayed = browser.post(&format!("/webhooks/{late}/replay"), &all).await;
    assert_eq!(replayed.location(), format!("/webhooks/{late}?done=replayed"));
    assert_eq!(world.deliveries(late).len(), 1);
    let failed = [("events", "failed"), ("since", since.as_str())];
    let none = browser.post(&format!("{path}/replay"), &failed).await;
    assert_eq!(none.location(), format!("{path}?done=replayed-none"));
    assert_eq!(browser.post(&format!("{path}/replay"), &[("since", "yesterday")]).await.status, 422);
}

#[tokio::test]
async fn a_rotated_secret_is_shown_once_and_signs_later_attempts() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = world.endpoint().await;
    let settings = browser.get(&format!("/webhooks/{id}?tab=settings")).await;
    let form = settings.between("id=\"rotate\"", "</section>");
    let warning = form.find("The old secret stops working as soon as you click.").unwrap();
    assert!(warning < form.find("<button class=\"danger\">Rotate secret").unwrap(), "{form}");
    let rotated = browser.post(&format!("/webhooks/{id}/rotate-secret"), &[]).await;
    let secret = secret_of(&rotated);
    assert!(rotated.status == 200 && secret.starts_with("whsec_"));
    let again = secret_of(&browser.post(&format!("/webhooks/{id}/rotate-secret"), &[]).await);
    assert_ne!(secret, again);
    assert!(!browser.get(&format!("/webhooks/{id}")).await.shows("whsec_"));
    let row = world.engine.endpoint(world.account, id).unwrap().unwrap();
    let context = crate::store::row::endpoint::EndpointRow::secret_context(id);
    let opened = world.engine.store.master_key().open(&context, &row.secret.0).unwrap();
    assert_eq!(opened.expose_text(), again);
}

#[tokio::test]
async fn settings_of_a_webhook_are_a_tab_of_users_who_may_change_it() {
    let world = World::new().await;
    let path = format!("/webhooks/{}", world.endpoint().await);
    let settings = format!("{path}?tab=settings");
    let (form, deliveries) = ("name=\"url\"", "id=\"deliveries\"");
    let mut owner = world.owner().await;
    let page = owner.get(&path).await;
    assert!(page.shows(&format!("href=\"{settings}\"")) && page.shows(deliveries) && !page.shows(form));
    let page = owner.get(&settings).await;
    assert!(page.shows(form) && page.shows("Rotate secret") && page.shows("Delete webhook") && !page.shows(deliveries));
    let mut viewer = world.viewer().await;
    let page = viewer.get(&settings).await;
    assert!(page.shows(deliveries) && !page.shows(form) && !page.shows("tab=settings"));
}

#[tokio::test]
async fn deliveries_are_filtered_by_state() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let id = world.endpoint().await;
    let empty = browser.get(&format!("/webhooks/{id}?state=failed")).await;
    assert!(empty.shows("No failed deliveries") && empty.shows("All deliveries"));
    for number in 0..20 {
        world.send(serde_json::json!({})).await;
        let newest = world.deliveries(id).remove(0);
        world.attempt(&newest, if number == 3 { 500 } else { 204 }, "").await;
    }
    let waits = world.deliveries(id)[16].id;
    let page = browser.get(&format!("/webhooks/{id}?state=pending")).await;
    assert!(page.shows(&format!("/deliveries/{waits}\"")) && !page.shows("rel=\"next\""));
    assert_eq!(page.body.matches("data-label=\"Attempts\"").count(), 1);
    let page = browser.get(&format!("/webhooks/{id}?state=delivered")).await;
    assert_eq!(page.body.matches("data-label=\"Attempts\"").count(), 8);
    let older = page.between("<a rel=\"next\" class=\"button\" href=\"", "\"").replace("&#38;", "&");
    assert!(older.contains("state=delivered&older=dlv_"), "{older}");
    assert_eq!(browser.get(&older).await.body.matches("data-label=\"Attempts\"").count(), 8);
    assert!(browser.get(&format!("/webhooks/{id}?state=nonsense")).await.shows("aria-current=\"true\">All"));
}
