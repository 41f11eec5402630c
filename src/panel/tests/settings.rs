//! Tests of account settings and of the user's own password.

use super::*;

#[tokio::test]
async fn settings_are_changed_and_shown() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let reply = browser.post("/settings", &[("content_retention_days", "7")]).await;
    assert_eq!((reply.status, reply.location()), (303, "/settings?done=saved"));
    let all = [("name", "Bäckerei"), ("time_zone", "Europe/Vienna"), ("content_retention_days", "90")];
    let with_box =
        [&all[..], &[("has_boxes", "1"), ("hosted_unsubscribe", "true"), ("keep_message_id", "true")]].concat();
    browser.post("/settings", &with_box).await;
    let account = world.engine.account(world.account).unwrap().unwrap();
    assert_eq!((account.name.as_str(), account.time_zone.as_str()), ("Bäckerei", "Europe/Vienna"));
    assert!(account.content_retention_days.get() == 90 && account.hosted_unsubscribe && account.keep_message_id);
    browser.post("/settings", &[&all[..], &[("has_boxes", "1")]].concat()).await;
    assert!(!world.engine.account(world.account).unwrap().unwrap().hosted_unsubscribe);
    let page = browser.get("/settings?done=saved").await;
    assert!(page.shows("Settings saved.") && page.shows("value=\"Europe/Vienna\"") && page.shows("23:13:20 CET"));
}

#[tokio::test]
async fn a_rejected_form_shows_errors_and_keeps_its_input() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    let form = [("name", "Acme"), ("time_zone", "Europe/Atlantis"), ("content_retention_days", "0")];
    let reply = browser.post("/settings", &form).await;
    assert_eq!(reply.status, 422);
    assert!(reply.shows("value=\"Europe/Atlantis\"") && reply.shows("must be the name of an IANA time zone"));
    assert!(reply.shows("must be a whole number of days from 1 to 3650"));
    assert_eq!(world.engine.account(world.account).unwrap().unwrap().time_zone.as_str(), "UTC");
    for days in ["seven", "3651", "-1", "7.5", ""] {
        assert_eq!(browser.post("/settings", &[("content_retention_days", days)]).await.status, 422, "{days}");
    }
}

#[tokio::test]
async fn a_new_password_needs_the_old_one_and_ends_other_sessions() {
    let world = World::new().await;
    let (mut browser, mut other) = (world.owner().await, world.owner().await);
    let change = |old: &str, new: &str| [("current_password", old.to_owned()), ("new_password", new.to_owned())];
    let as_form = |pairs: [(&'static str, String); 2]| pairs;
    for (old, new, said) in [
        ("wrong", "correct horse battery", "The current password is wrong."),
        (world.password.as_str(), "short", "must have at least 12 characters"),
        (world.password.as_str(), "password12345", "too easy to guess"),
    ] {
        let pairs = as_form(change(old, new));
        let form = [(pairs[0].0, pairs[0].1.as_str()), (pairs[1].0, pairs[1].1.as_str())];
        let reply = browser.post("/settings/password", &form).await;
        assert_eq!(reply.status, 422);
        assert!(reply.shows(said), "{said}");
    }
    let form = [("current_password", world.password.as_str()), ("new_password", "correct horse battery")];
    assert_eq!(browser.post("/settings/password", &form).await.location(), "/settings?done=password");
    assert_eq!((browser.get("/").await.status, other.get("/").await.status), (200, 303));
    assert_eq!(other.sign_in(EMAIL, &world.password).await.status, 401);
    assert_eq!(other.sign_in(EMAIL, "correct horse battery").await.status, 303);
}

#[tokio::test]
async fn of_two_password_changes_at_once_one_succeeds() {
    let world = World::new().await;
    let (mut browser, mut other) = (world.owner().await, world.owner().await);
    let forms = ["correct horse battery", "battery horse correct"]
        .map(|new| [("current_password", world.password.as_str()), ("new_password", new)]);
    let (one, two) =
        tokio::join!(browser.post("/settings/password", &forms[0]), other.post("/settings/password", &forms[1]));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 422]);
}

#[tokio::test]
async fn the_theme_is_stored_and_applied_to_every_page() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    assert!(browser.get("/").await.shows("data-theme=\"system\""));
    let reply = browser.post("/appearance", &[("theme", "dark")]).await;
    assert_eq!((reply.status, reply.location()), (303, "/"));
    assert!(browser.get("/messages").await.shows("data-theme=\"dark\""));
    assert!(browser.get("/nowhere").await.shows("data-theme=\"dark\""));
}

#[tokio::test]
async fn single_key_shortcuts_can_be_turned_off() {
    let world = World::new().await;
    let mut browser = world.owner().await;
    assert!(browser.get("/").await.shows("<body data-shortcuts=\"on\">"));
    let all = browser.get("/shortcuts").await;
    assert!(all.shows("Single-key shortcuts are on.") && all.shows("<kbd>g</kbd> <kbd>q</kbd>"), "{}", all.body);
    assert_eq!(browser.post("/appearance", &[("shortcuts", "off")]).await.status, 303);
    let page = browser.get("/messages").await;
    assert!(page.shows("<body data-shortcuts=\"off\">") && page.shows("data-theme=\"system\""));
}

#[tokio::test]
async fn sessions_name_the_browser_and_keep_its_own_words_as_the_title() {
    let world = World::new().await;
    let page = world.owner().await.get("/settings").await;
    assert!(page.shows(&format!("title=\"{AGENT}\">Firefox on Linux</td>")), "{}", page.body);
}
