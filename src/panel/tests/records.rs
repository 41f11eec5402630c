//! Tests of every record's pages and forms: records of other accounts are not found, viewers only read, forms must come
//! from the panel, and foreign text is escaped.

use super::escaping::{PAYLOADS, does, escaped};
use super::*;
use crate::base::id::{DeliveryId, EndpointId};
use crate::domain::webhook_url::WebhookUrl;
use crate::engine::accounts::NewKey;
use crate::engine::endpoints::NewEndpoint;
use crate::engine::listing::PageRequest;
use crate::store::op::suppression::Suppression;
use crate::store::row::suppression::SuppressionReason;

/// Pages of records, with `{..}` for an identifier.
const PAGES: [&str; 10] = [
    "/webhooks/{whk}",
    "/webhooks/{whk}/json",
    "/webhooks/{whk}/deliveries/{dlv}",
    "/webhooks/{whk}/deliveries/{dlv}/json",
    "/domains/{dom}",
    "/domains/{dom}/json",
    "/keys/{key}",
    "/keys/{key}/json",
    "/suppressions/{sup}",
    "/suppressions/{sup}/json",
];
/// Forms of records.
const FORMS: [&str; 16] = [
    "/webhooks/{whk}",
    "/webhooks/{whk}/reactivate",
    "/webhooks/{whk}/pause",
    "/webhooks/{whk}/rotate-secret",
    "/webhooks/{whk}/test",
    "/webhooks/{whk}/replay",
    "/webhooks/{whk}/delete",
    "/webhooks/{whk}/deliveries/{dlv}/redeliver",
    "/domains/{dom}",
    "/domains/{dom}/verify",
    "/domains/{dom}/rotate-dkim",
    "/domains/{dom}/delete",
    "/keys/{key}",
    "/keys/{key}/revoke",
    "/suppressions/{sup}/remove",
    "/suppressions/import",
];
/// Lists, and the forms that add to them.
const LISTS: [&str; 4] = ["/webhooks", "/domains", "/keys", "/suppressions"];
const FORM: [(&str, &str); 4] =
    [("name", "x.example.com"), ("stream", "marketing"), ("url", "https://x.example.com/"), ("email", "x@example.com")];

/// One record of each kind, all of one account.
struct Records {
    account: AccountId,
    webhook: EndpointId,
    delivery: DeliveryId,
    ids: [(&'static str, String); 5],
}

impl Records {
    async fn of(engine: &Engine, account: AccountId, words: &str) -> Self {
        let url = WebhookUrl::parse("https://hooks.example.com/in", |_| true).unwrap();
        let new = NewEndpoint { url, events: None, description: Some(words.to_owned()) };
        let webhook = engine.create_endpoint(account, new).await.unwrap().0;
        let delivery = engine.test_endpoint(account, webhook).await.unwrap().id;
        let name = format!("d{}.example.com", webhook.to_string()[20..].to_lowercase());
        let domain = engine.create_domain(account, name.parse().unwrap(), Stream::Marketing).await.unwrap().0;
        let new = NewKey {
            name: words.to_owned(),
            stream: None,
            scopes: crate::domain::api_key::Scopes::ALL,
            expires_at: None,
        };
        let key = engine.make_key(account, new).await.unwrap().0.id;
        let suppression = Suppression {
            note: Some(words.to_owned()),
            smtp_response: Some(words.to_owned()),
            ..Suppression::of("gone@example.com".parse().unwrap(), SuppressionReason::Bounce)
        };
        let suppression = engine.suppress(account, suppression).await.unwrap().row.id;
        let ids = [
            ("{whk}", webhook.to_string()),
            ("{dlv}", delivery.to_string()),
            ("{dom}", domain.to_string()),
            ("{key}", key.to_string()),
            ("{sup}", suppression.to_string()),
        ];
        Self { account, webhook, delivery, ids }
    }

    fn path(&self, pattern: &str) -> String {
        self.ids.iter().fold(pattern.to_owned(), |path, (mark, id)| path.replace(mark, id))
    }

    /// Returns the state that a change would alter.
    fn state(&self, engine: &Engine) -> String {
        let page = PageRequest { before: None, limit: 99 };
        format!(
            "{:?} {:?} {:?} {:?}",
            engine.endpoints(self.account, page).unwrap().rows,
            engine.deliveries(self.account, self.webhook, None, page).unwrap().unwrap().rows,
            engine.domains(self.account, page).unwrap().rows,
            engine.keys(self.account, page).unwrap().rows,
        )
    }
}

#[tokio::test]
async fn records_of_another_account_are_not_found_and_unchanged() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let other = world.engine.create_account("Other".parse().unwrap(), None, QuotaLimits::default()).await.unwrap().id;
    let theirs = Records::of(&world.engine, other, "theirs").await;
    let before = theirs.state(&world.engine);
    for pattern in PAGES {
        let path = theirs.path(pattern);
        assert_eq!(browser.get(&path).await.status, 404, "{path}");
        assert_eq!(browser.get(&pattern.replace(['{', '}'], "")).await.status, 404, "{pattern}");
    }
    for pattern in FORMS.iter().filter(|pattern| pattern.contains('{')) {
        let path = theirs.path(pattern);
        assert_eq!(browser.post(&path, &FORM).await.status, 404, "{path}");
    }
    assert_eq!(theirs.state(&world.engine), before);
    let own = world.endpoint().await;
    let mixed = format!("/webhooks/{own}/deliveries/{}", theirs.delivery);
    assert_eq!(browser.get(&mixed).await.status, 404);
    for path in LISTS {
        assert!(!browser.get(path).await.shows("theirs"), "{path}");
    }
}

#[tokio::test]
async fn a_viewer_reads_every_record_and_changes_none() {
    let world = World::new().await;
    let mut browser = world.viewer().await;
    let records = Records::of(&world.engine, world.account, "words").await;
    let before = records.state(&world.engine);
    for path in PAGES.iter().chain(&LISTS).chain(&["/audit", "/suppressions/import", "/suppressions/export"]) {
        let path = records.path(path);
        let page = browser.get(&path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(!page.shows("method=\"post\" action=\"/webhooks") && !page.shows("class=\"danger\""), "{path}");
    }
    for path in FORMS.iter().chain(&LISTS) {
        let path = records.path(path);
        let reply = match path.as_str() {
            "/suppressions/import" => browser.upload(&path, &[("list", "email\nx@example.com\n")]).await,
            _ => browser.post(&path, &FORM).await,
        };
        assert!(reply.status == 403 && reply.shows("Owners only"), "{path}");
    }
    assert_eq!(records.state(&world.engine), before);
}

#[tokio::test]
async fn a_cross_site_form_changes_no_record() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let records = Records::of(&world.engine, world.account, "words").await;
    let before = records.state(&world.engine);
    browser.origin = Origin::Lines("Sec-Fetch-Site: cross-site\r\n");
    for path in FORMS.iter().chain(&LISTS).filter(|path| **path != "/suppressions/import") {
        let path = records.path(path);
        let reply = browser.post(&path, &FORM).await;
        assert!(reply.status == 403 && reply.shows("Form blocked"), "{path}");
    }
    let headers = "Content-Type: multipart/form-data; boundary=b0\r\nSec-Fetch-Site: cross-site\r\n";
    let reply = browser.ask("POST", "/suppressions/import", headers, "--b0--").await;
    assert_eq!(reply.status, 403);
    assert_eq!(records.state(&world.engine), before);
}

#[tokio::test]
async fn every_record_page_shows_its_id_json_and_curl_command() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let records = Records::of(&world.engine, world.account, "words").await;
    for pattern in PAGES.iter().filter(|pattern| !pattern.ends_with("/json")) {
        let path = records.path(pattern);
        let id = path.rsplit('/').next().unwrap();
        let page = browser.get(&path).await;
        assert!(page.shows(&format!("id=\"copy-id\" class=\"whole\">{id}</code>")), "{path}");
        assert!(page.shows(&format!("href=\"{path}/json\"")), "{path}");
        assert!(page.shows("curl http://panel.test/v1/") && page.shows("<h1>"), "{path}");
        assert!(!page.shows(" style=") && !page.shows("<style") && !page.shows(" onclick="), "{path}");
        let ids: Vec<_> = page.body.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        let different: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(ids.len(), different.len(), "{path}: an id stands twice in {ids:?}");
    }
}

#[tokio::test]
async fn markup_in_a_record_is_escaped_on_every_page() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    for payload in PAYLOADS {
        let account = world.account;
        let records = Records::of(&world.engine, account, payload).await;
        let delivery = world.engine.delivery(account, records.delivery).unwrap().unwrap().0;
        world.attempt(&delivery, 500, payload).await;
        for path in PAGES.iter().chain(&LISTS).filter(|path| !path.ends_with("/json")) {
            let page = browser.get(&records.path(path)).await;
            assert!(page.status == 200 && !does(&page, payload), "{payload} at {path}");
            assert!(page.shows(&escaped(payload)) || path.starts_with("/domains"), "{payload} at {path}");
        }
        // Rejected input is escaped too.
        let form =
            [("name", payload), ("url", payload), ("email", payload), ("note", payload), ("description", payload)];
        for path in ["/webhooks", "/domains", "/suppressions", &records.path("/webhooks/{whk}")] {
            let reply = browser.post(path, &form).await;
            assert!(
                reply.status == 422 && !does(&reply, payload) && reply.shows(&escaped(payload)),
                "{payload} at {path}"
            );
        }
        let encoded: String = form_urlencoded::byte_serialize(payload.as_bytes()).collect();
        let search = browser.get(&format!("/suppressions?email={encoded}&reason={encoded}&older={encoded}")).await;
        assert!(search.status == 200 && !does(&search, payload), "{payload}");
        let import = browser.upload("/suppressions/import", &[("list", payload), ("act", "check")]).await;
        assert!(import.status == 422 && !does(&import, payload) && import.shows(&escaped(payload)), "{payload}");
        browser.post(&records.path("/keys/{key}"), &[("name", payload)]).await;
        assert!(!does(&browser.get("/audit").await, payload), "{payload}");
        world.engine.delete_endpoint(account, records.webhook).await.unwrap();
        let name = crate::store::op::suppression::Name::Address("gone@example.com".parse().unwrap());
        world.engine.unsuppress(account, name).await.unwrap();
    }
}
