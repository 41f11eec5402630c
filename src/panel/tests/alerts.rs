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
        assert!(!browser.get(path).await.shows("An alert is open"), "{path}");
    }
    let sighting = Sighting::new(Condition::Quota, Severity::Critical, "Quota used up", "A send was refused.");
    let op = RaiseAlert { account, sighting, is_over: false };
    world.engine.store.commit(op).await.unwrap_or_else(|_| panic!("an alert opens"));
    for path in pages {
        assert!(browser.get(path).await.shows("An alert is open (critical). <a href=\"/alerts\">"), "{path}");
    }
    let op = ClearAlert { account, condition: Condition::Quota, subject: String::new() };
    world.engine.store.commit(op).await.unwrap_or_else(|_| panic!("the alert ends"));
    assert!(!browser.get("/alerts").await.shows("An alert is open"));
}

#[tokio::test]
async fn an_ended_alert_unfolds_to_its_details() {
    let world = World::new().await;
    world.owner().await;
    let page = world.owner().await.get("/alerts").await;
    assert!(page.shows("<summary>New sign-in to the panel</summary>"), "{}", page.body);
    assert!(page.shows("<p>From 127.0.0.1, Firefox on Linux.</p>") && page.shows("<th scope=\"rowgroup\""));
}

#[tokio::test]
async fn alerts_are_filtered_by_condition_and_their_absence_is_explained() {
    let world = World::new().await;
    world.owner().await;
    let mut browser = world.owner().await;
    assert!(browser.get("/audit").await.shows("href=\"/alerts?condition=new_sign_in\""));
    let page = browser.get("/alerts?condition=new_sign_in").await;
    assert!(page.shows("New sign-in to the panel") && page.shows("href=\"/alerts\" aria-label=\"Remove the filter"));
    assert!(!browser.get("/alerts?condition=quota").await.shows("New sign-in to the panel"));
    world.owner().await;
    let page = browser.get("/alerts?condition=new_sign_in").await;
    assert_eq!(page.body.matches("<summary>New sign-in").count(), 2, "a later one hides none: {}", page.body);
    // The only account sees the service's alerts.
    assert!(browser.get("/alerts").await.shows("checks backups, replication"));
}
