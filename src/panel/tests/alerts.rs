//! Tests of alerts in the panel.

use super::*;
use crate::domain::alert::{Condition, Severity, Sighting};
use crate::store::op::alert::{ClearAlert, RaiseAlert};

#[tokio::test]
async fn every_page_has_a_strip_while_an_alert_is_open() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let account = world.account;
    let pages = ["/", "/messages", "/providers", "/explain", "/alerts"];
    for path in pages {
        assert!(!browser.get(path).await.shows("Quota used up"), "{path}");
    }
    world.opens(Condition::Quota, "Quota used up").await;
    for path in &pages[..4] {
        let page = browser.get(path).await;
        assert!(page.shows("Quota used up (critical alert). <a href=\"/alerts\">View alert</a>"), "{path}");
        assert!(page.shows("1<span class=\"hidden\"> open</span>"), "{path}");
    }
    let page = browser.get("/alerts").await;
    assert!(page.shows("Quota used up (critical alert). <span>See below.</span>") && !page.shows("View alert"));
    assert!(page.shows("When the alert opened or last changed:"));
    let page = browser.get("/alerts?condition=webhook_disabled").await;
    assert!(page.shows("No open alerts match the filter") && !page.shows("See below"), "{}", page.body);
    assert!(page.shows("Quota used up (critical alert). <a href=\"/alerts\">View alert</a>"));
    world.opens(Condition::WebhookDisabled, "A webhook is disabled").await;
    assert!(browser.get("/").await.shows("2 open alerts, the worst critical. <a href=\"/alerts\">View alerts"));
    for condition in [Condition::Quota, Condition::WebhookDisabled] {
        let op = ClearAlert { account, condition, subject: String::new() };
        world.engine.store.commit(op).await.unwrap_or_else(|_| panic!("the alert ends"));
    }
    assert!(!browser.get("/alerts").await.shows("See below"));
}

impl World {
    async fn opens(&self, condition: Condition, summary: &str) {
        let sighting = Sighting::new(condition, Severity::Critical, summary, "A send was refused.");
        let op = RaiseAlert { account: self.account, sighting, is_over: false };
        self.engine.store.commit(op).await.unwrap_or_else(|_| panic!("an alert opens"));
    }
}

#[tokio::test]
async fn an_ended_alert_unfolds_to_its_details() {
    let world = World::new().await;
    world.owner().await;
    let page = world.owner().await.get("/alerts").await;
    assert!(page.shows("<summary>New sign-in to the panel</summary>"), "{}", page.body);
    assert!(page.shows("</span> From 127.0.0.1, Firefox on Linux.</p>") && page.shows("<th scope=\"rowgroup\""));
}

#[tokio::test]
async fn alerts_are_filtered_by_condition_and_their_absence_is_explained() {
    let world = World::new().await;
    world.owner().await;
    let mut browser = world.owner().await;
    assert!(browser.get("/audit").await.shows("page lists more sign-ins, and the open sessions: choose one in"));
    let page = browser.get("/alerts?condition=new_sign_in").await;
    assert!(page.shows("New sign-in to the panel") && page.shows("href=\"/alerts\" aria-label=\"Remove the filter"));
    assert!(!browser.get("/alerts?condition=quota").await.shows("New sign-in to the panel"));
    world.owner().await;
    let page = browser.get("/alerts?condition=new_sign_in").await;
    assert_eq!(page.body.matches("<summary>New sign-in").count(), 2, "a later one hides none: {}", page.body);
    // The only account sees the service's alerts.
    assert!(browser.get("/alerts").await.shows("checks backups, replication"));
}
