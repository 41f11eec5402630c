//! Stores that earlier versions wrote, kept under `tests/stores`, one for each format: every later version opens them
//! and has all that was in them. The files of a store are kept as they were, the database under zstd.
//!
//! `cargo test --test it -- --ignored keep_a_store_of_this_version` writes the one of the present format anew; after a
//! release it is never written again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Dev, types};

const DATABASE: &str = "postrider.redb";
/// What the story asks after in every store: the addresses of its messages, and what became of them.
const MESSAGES: [(&str, &[&str]); 5] = [
    ("delivered@simulator.test", &["queued", "delivered"]),
    ("bounced@simulator.test", &["queued", "bounced"]),
    ("complained@simulator.test", &["queued", "delivered", "complained"]),
    ("deferred@simulator.test", &["queued", "deferred"]),
    ("full@simulator.test", &["queued", "deferred"]),
];

fn stores() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores")
}

/// Under which name, and as what, a file is copied; nothing where it is not.
type Change<'a> = &'a dyn Fn(&Path) -> Option<(PathBuf, Vec<u8>)>;

/// Copies a store's files, each through `change`.
fn copy(from: &Path, to: &Path, change: Change<'_>) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            copy(&path, &to.join(path.file_name().unwrap()), change);
        } else if let Some((name, bytes)) = change(&path) {
            fs::write(to.join(name), bytes).unwrap();
        }
    }
}

fn named(path: &Path) -> PathBuf {
    path.file_name().unwrap().into()
}

#[tokio::test]
async fn a_store_of_every_format_opens_and_has_all_that_was_in_it() {
    let mut seen = 0;
    for entry in fs::read_dir(stores()).unwrap() {
        let (kept, place) = (entry.unwrap().path(), tempfile::tempdir().unwrap());
        let data = place.path().join("data");
        copy(&kept, &data, &|path| {
            let bytes = fs::read(path).unwrap();
            Some(match path.extension().is_some_and(|end| end == "zst") {
                true => (path.file_stem().unwrap().into(), zstd::decode_all(&bytes[..]).unwrap()),
                false => (named(path), bytes),
            })
        });
        seen += 1;
        let dev = Dev::on(&data, &["--virtual-clock"]);
        for (to, expected) in MESSAGES {
            let page = dev.get(&format!("/v1/messages?to={to}")).await.expect(200).json();
            let record = dev.message(page["data"][0]["id"].as_str().unwrap()).await;
            assert_eq!(types(&record), expected, "{}: {to}", kept.display());
            assert_eq!(record["text"], "It works.\n");
        }
        let hooks = dev.get("/v1/webhooks").await.expect(200).json();
        assert_eq!(hooks["data"][0]["url"], "https://hooks.example.com/in");
        let suppressed = dev.get("/v1/suppressions").await.expect(200).json();
        assert_eq!(suppressed["data"].as_array().unwrap().len(), 3, "{suppressed}");
        // It goes on from where it stood.
        dev.advance(86_400).await;
        let page = dev.get("/v1/messages?to=deferred@simulator.test").await.json();
        assert_eq!(page["data"][0]["status"], "delivered");
        assert_eq!(dev.terminate().await.code(), Some(0));
        let report = checked(&data);
        assert_eq!(report["failed"], 0, "{}: {report}", kept.display());
    }
    assert!(seen > 0);
}

fn checked(data: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    let output = command.args(["check", "--json", "--data-dir"]).arg(data).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
#[ignore = "writes the store that is kept for the present format"]
async fn keep_a_store_of_this_version() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let dev = Dev::on(&data, &["--virtual-clock"]);
    let hook = json!({"url": "https://hooks.example.com/in", "events": ["bounced"], "description": "kept"});
    let hook = dev.post("/v1/webhooks", hook).await.expect(201).json();
    // Held, so that what it is owed stands in the store.
    let path = format!("/v1/webhooks/{}", hook["id"].as_str().unwrap());
    dev.call(reqwest::Method::PATCH, &path, Some(json!({"enabled": false}))).await.expect(200);
    dev.post("/v1/suppressions", json!({"email": "nobody@example.org", "note": "asked"})).await.expect(201);
    for (to, _) in MESSAGES {
        let body = json!({"from": "hello@example.test", "to": to, "subject": "Kept", "text": "It works.\n"});
        let key = [("idempotency-key", to)];
        dev.call_with(reqwest::Method::POST, "/v1/messages", Some(body), &key).await.expect(202);
    }
    dev.advance(0).await;
    assert_eq!(dev.terminate().await.code(), Some(0));
    let report = checked(&data);
    assert_eq!(report["failed"], 0, "{report}");
    let kept = stores().join(format!("format-{}", report["format"]));
    drop(fs::remove_dir_all(&kept));
    copy(&data, &kept, &|path| {
        let name = named(path);
        if name == Path::new(DATABASE) {
            let bytes = fs::read(path).unwrap();
            return Some((format!("{DATABASE}.zst").into(), zstd::encode_all(&bytes[..], 19).unwrap()));
        }
        let is_kept = ["master.key", "dev.json", "virtual-clock", "keys"].iter().any(|known| name == Path::new(known))
            || name.extension().is_some_and(|end| end == "segment");
        is_kept.then(|| (name, fs::read(path).unwrap()))
    });
}
