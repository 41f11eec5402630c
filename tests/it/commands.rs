//! Tests of the operator's commands against the running service: they print the API's objects and return its result.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::Dev;

/// Exit code and output of a command.
struct Ran {
    code: i32,
    out: String,
}

impl Ran {
    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!((self.code, self.out.lines().count()), (0, 1), "{}", self.out);
        serde_json::from_str(&self.out).unwrap()
    }
}

/// Runs the command in `line`, words separated by spaces, for the service of `directory`.
fn run(directory: &str, line: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(line.split(' ')).args(["--json", "--data-dir", directory]);
    let output = command.output().unwrap();
    Ran { code: output.status.code().unwrap(), out: String::from_utf8(output.stdout).unwrap() }
}

impl Dev {
    fn run(&self, line: &str) -> Ran {
        run(self.data_dir().to_str().unwrap(), line)
    }

    /// Asserts that the command prints the API's answer, byte for byte.
    async fn same(&self, line: &str, path: &str) -> Value {
        let (ran, answer) = (self.run(line), self.get(path).await.expect(200));
        assert_eq!(ran.code, 0, "{line}");
        assert_eq!(ran.out.trim_end().as_bytes(), answer.bytes, "{line}");
        ran.json()
    }
}

#[tokio::test]
async fn accounts_can_be_shown_and_changed_and_keys_added_and_removed() {
    let dev = Dev::start();
    let id = dev.announcement["account_id"].as_str().unwrap();
    let shown = dev.run(&format!("account show {id}")).json();
    let mut members: Vec<_> = shown.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    assert_eq!(
        members,
        ["content_retention_days", "created_at", "hosted_unsubscribe", "id", "name", "quota", "time_zone"]
    );
    let set = format!("account set {id} --quota-per-hour 5 --quota-per-day 9 --name Renamed --time-zone Europe/Vienna");
    let changed = dev.run(&set).json();
    assert_eq!(changed["quota"], json!({"per_hour": 5, "per_day": 9}));
    assert_eq!(dev.run(&format!("account show {id}")).json(), changed);
    let me = dev.get("/v1/me").await.json();
    assert_eq!((&me["quota"]["hour"]["limit"], &me["name"]), (&json!(5), &json!("Renamed")));

    let made = dev.run("key add --name app --scopes read,send --stream marketing").json();
    let (key, secret) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    dev.same(&format!("key show {key}"), &format!("/v1/keys/{key}")).await;
    let bearer = format!("Bearer {secret}");
    let as_it = [("authorization", bearer.as_str())];
    dev.call_with(reqwest::Method::GET, "/v1/me", None, &as_it).await.expect(200);
    assert_eq!(dev.run(&format!("key set {key} --name other")).json()["name"], "other");
    let removed = dev.run(&format!("key remove {key}"));
    assert_eq!((removed.code, removed.out.as_str()), (0, ""));
    dev.call_with(reqwest::Method::GET, "/v1/me", None, &as_it).await.expect(401);
    let listed = dev.same("key list", "/v1/keys?limit=50").await;
    assert!(listed["data"].as_array().unwrap().iter().any(|row| row["id"] == key && !row["revoked_at"].is_null()));
}

#[tokio::test]
async fn commands_print_an_account_s_objects_as_the_api_returns_them() {
    let dev = Dev::start();
    let message = dev.send("delivered@simulator.test").await;
    dev.advance(0).await;
    dev.same(&format!("message show {message}"), &format!("/v1/messages/{message}")).await;
    dev.same("message list --status delivered --limit 1", "/v1/messages?limit=1&status=delivered").await;
    let events = format!("/v1/events?message_id={message}&type=delivered");
    let page = dev.same(&format!("event list --type delivered --message-id {message}"), &events).await;
    assert_eq!(page["data"].as_array().unwrap().len(), 1);
    assert_eq!(dev.run(&format!("message cancel {message}")).code, 6, "too late");

    let domain = dev.run("domain add mail.example.com --stream marketing").json();
    let path = format!("/v1/domains/{}", domain["id"].as_str().unwrap());
    dev.same("domain show mail.example.com", &path).await;
    let moved = dev.run("domain set mail.example.com --stream transactional").json();
    assert_eq!(moved["stream"], "transactional");
    let rotated = dev.run("domain rotate-dkim mail.example.com").json();
    assert_ne!(rotated["dkim"][0]["selector"], domain["dkim"][0]["selector"]);
    assert_eq!(dev.run("domain remove mail.example.com").code, 0);
    dev.get(&path).await.expect(404);

    let hook = dev.run("webhook add https://hooks.example.com/in --events bounced,failed").json();
    let id = hook["id"].as_str().unwrap();
    assert!(hook["secret"].as_str().unwrap().starts_with("whsec_"));
    assert_eq!(dev.run(&format!("webhook set {id} --enabled false --all-events")).json()["events"], json!(null));
    dev.same(&format!("webhook show {id}"), &format!("/v1/webhooks/{id}")).await;
    dev.same("webhook list", "/v1/webhooks").await;
    assert_eq!(dev.run(&format!("webhook remove {id}")).code, 0);

    dev.run("suppression add Ann+x@example.org --note asked").json();
    dev.same("suppression show ann+x@example.org", "/v1/suppressions/ann%2Bx@example.org").await;
    dev.same("suppression list --reason manual", "/v1/suppressions?reason=manual").await;
    assert_eq!(dev.run("suppression remove ann+x@example.org").code, 0);
    assert_eq!(dev.run("suppression remove ann+x@example.org").code, 3);
}

#[tokio::test]
async fn a_command_s_exit_code_follows_from_the_answer() {
    let dev = Dev::start();
    let id = dev.announcement["account_id"].as_str().unwrap();
    for (line, code) in [
        ("key show key_x", 3),
        ("webhook show whk_00000000000000000000000000", 3),
        ("account set acc_00000000000000000000000000 --name x", 3),
        ("domain show nowhere.example", 3),
        ("webhook add ftp://hooks.example.com/", 8),
        ("suppression add nobody", 8),
        ("event list --type opened", 8),
        ("message list --cursor x", 8),
        ("key add --name x --expires-at yesterday", 8),
        ("webhook set whk_x", 2),
    ] {
        let ran = dev.run(line);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{line}");
    }
    assert_eq!(dev.run(&format!("account set {id} --time-zone Mars")).code, 8);
    dev.run("account add Second").json();
    assert_eq!(dev.run("key list").code, 2, "there are two accounts, and none is selected");
    assert_eq!(dev.run(&format!("key list --account {id}")).code, 0);
    let nowhere = tempfile::tempdir().unwrap();
    assert_eq!(run(nowhere.path().to_str().unwrap(), "message list").code, 4);
}
