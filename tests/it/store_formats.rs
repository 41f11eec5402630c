//! Stores of earlier versions, kept under `tests/stores`, one for each format. Every later version must open them and
//! find all their data. Their files are unchanged; the database is compressed with zstd.
//!
//! `cargo test --test it -- --ignored keep_a_store_of_this_version` rewrites the store of the current format; after a
//! release it is never rewritten. `keep_a_killed_store_of_this_version` writes one whose process was killed while its
//! journal had records.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Dev, types};

const DATABASE: &str = "postrider.redb";
const JOURNAL: &str = "journal";
/// Messages in every store: their addresses and outcomes.
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

/// Returns the new name and content of a copied file; `None` skips the file.
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

/// Copies a kept store and decompresses its files.
fn unpack(kept: &Path, data: &Path) {
    copy(kept, data, &|path| {
        let bytes = fs::read(path).unwrap();
        Some(match path.extension().is_some_and(|end| end == "zst") {
            true => (path.file_stem().unwrap().into(), zstd::decode_all(&bytes[..]).unwrap()),
            false => (named(path), bytes),
        })
    });
}

#[tokio::test]
async fn a_killed_store_of_format_1_keeps_its_journal_s_data_and_gets_a_backup_of_its_rows() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    unpack(&stores().join("format-1-killed"), &data);
    let dev = Dev::on(&data, &["--virtual-clock"]);
    let page = dev.get("/v1/messages?to=waits@paused.example").await.expect(200).json();
    assert_eq!(page["data"][0]["status"], "queued");
    let accounts = command(&data, "account list");
    let second = accounts["data"].as_array().unwrap().iter().find(|account| account["name"] == "Second").unwrap();
    let second = second["id"].as_str().unwrap();
    for (line, many) in [("key list", 2), ("domain list", 2), ("user list", 1), ("webhook list", 1)] {
        let listed = command(&data, &format!("{line} --account {second}"));
        assert_eq!(listed["data"].as_array().unwrap().len(), many, "{line}: {listed}");
    }
    assert_eq!(dev.terminate().await.code(), Some(0));
    // The original rows: their backup can be restored, and then has the current format.
    let restored = place.path().join("restored");
    let (backup, key) = (data.join("format-1.backup"), data.join("master.key"));
    let line = format!("restore {} --master-key {}", backup.display(), key.display());
    command(&restored, &line);
    // The backup has no content, because a migration changes none.
    let report = checked(&restored);
    assert_eq!((&report["failed"], &report["format"]), (&json!(0), &json!(2)), "{report}");
}

#[test]
fn a_damaged_journal_of_format_1_fails_the_check_and_stops_the_start() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    unpack(&stores().join("format-1-killed"), &data);
    let mut journal = fs::read(data.join(JOURNAL)).unwrap();
    journal[60] ^= 1;
    fs::write(data.join(JOURNAL), &journal).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        let output = command.args(words).arg("--data-dir").arg(&data).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, text) = run(&["check", "--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &report["format"], &report["failures"][0]["rule"]), (Some(7), &json!(1), &json!("journal")));
    let (code, text) = run(&["dev", "--listen", "127.0.0.1:0"]);
    assert!(code == Some(1) && text.contains("the journal is damaged"), "{code:?}: {text}");
    assert!(!text.contains("--accept-journal-damage"), "dev has no such flag: {text}");
    assert_eq!(fs::read(data.join(JOURNAL)).unwrap(), journal, "the journal is unchanged");
}

#[test]
fn a_backup_of_every_format_is_checked_and_restored() {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/backups")).unwrap() {
        let (file, place) = (entry.unwrap().path(), tempfile::tempdir().unwrap());
        let data = place.path().join("data");
        let mut check = Command::new(env!("CARGO_BIN_EXE_postrider"));
        let output = check.args(["check", "--json", "--backup"]).arg(&file).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &report["failed"]), (Some(0), &json!(0)), "{report}");
        command(&data, &format!("restore {}", file.display()));
        let report = checked(&data);
        assert_eq!((&report["failed"], &report["format"]), (&json!(0), &json!(2)), "{report}");
    }
}

#[tokio::test]
async fn a_store_of_every_format_opens_with_all_its_data() {
    let mut seen = 0;
    for entry in fs::read_dir(stores()).unwrap() {
        let (kept, place) = (entry.unwrap().path(), tempfile::tempdir().unwrap());
        let data = place.path().join("data");
        unpack(&kept, &data);
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
        // It continues from its last state.
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
#[ignore = "writes the stored fixture of the current format"]
async fn keep_a_store_of_this_version() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let dev = Dev::on(&data, &["--virtual-clock"]);
    let hook = json!({"url": "https://hooks.example.com/in", "events": ["bounced"], "description": "kept"});
    let hook = dev.post("/v1/webhooks", hook).await.expect(201).json();
    // Hold the endpoint, so that the store contains its outstanding deliveries.
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
    keep(&data, &format!("format-{}", report["format"]));
}

/// Writes the files of the store in `data` to `tests/stores`, the database and the journal compressed with zstd.
fn keep(data: &Path, name: &str) {
    let kept = stores().join(name);
    drop(fs::remove_dir_all(&kept));
    copy(data, &kept, &|path| {
        let name = named(path);
        if name == Path::new(DATABASE) || name == Path::new(JOURNAL) {
            let bytes = fs::read(path).unwrap();
            return Some((format!("{}.zst", name.display()).into(), zstd::encode_all(&bytes[..], 19).unwrap()));
        }
        let is_kept = ["master.key", "dev.json", "virtual-clock", "keys"].iter().any(|known| name == Path::new(known))
            || name.extension().is_some_and(|end| end == "segment");
        is_kept.then(|| (name, fs::read(path).unwrap()))
    });
}

/// Runs an operator's command with `--json`, words separated by spaces, and returns its output.
fn command(data: &Path, line: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    let output = command.args(line.split(' ')).args(["--json", "--data-dir"]).arg(data).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// Writes rows of many tables: a second account with its own keys, domains, user, suppression, pause and endpoint.
async fn fill_second_account(dev: &Dev, data: &Path) {
    let account = command(data, "account add Second --quota-per-day 1000")["id"].as_str().unwrap().to_owned();
    let own = |line: &str| command(data, &format!("{line} --account {account}"));
    own("key add --name second --stream marketing");
    let revoked = own("key add --name revoked")["id"].as_str().unwrap().to_owned();
    own(&format!("key remove {revoked}"));
    own("domain add --stream marketing second.example");
    own("domain add --stream transactional unverified.example");
    own("user add --role viewer viewer@second.example");
    own("suppression add left@second.example --note asked");
    own("queue pause gmail.com");
    own("webhook add https://second.invalid/in");
    dev.advance(20).await;
}

#[tokio::test]
#[ignore = "writes the stored fixture of a killed process"]
async fn keep_a_killed_store_of_this_version() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let dev = Dev::on(&data, &["--virtual-clock"]);
    let send = async |to: &str| {
        let body = json!({"from": "hello@example.test", "to": to, "subject": "Kept", "text": "It works.\n"});
        let key = [("idempotency-key", to)];
        dev.call_with(reqwest::Method::POST, "/v1/messages", Some(body), &key).await.expect(202);
    };
    // Its deliveries fail, because the name does not exist.
    let failing = json!({"url": "https://nobody.invalid/in", "events": ["delivered"]});
    dev.post("/v1/webhooks", failing).await.expect(201);
    let hook = json!({"url": "https://hooks.example.com/in", "events": ["bounced"], "description": "kept"});
    let hook = dev.post("/v1/webhooks", hook).await.expect(201).json();
    let path = format!("/v1/webhooks/{}", hook["id"].as_str().unwrap());
    dev.call(reqwest::Method::PATCH, &path, Some(json!({"enabled": false}))).await.expect(200);
    dev.post("/v1/suppressions", json!({"email": "nobody@example.org", "note": "asked"})).await.expect(201);
    for (to, _) in &MESSAGES[..3] {
        send(to).await;
    }
    // A checkpoint is due after five seconds: rows before it are in the database, later ones in the journal.
    dev.advance(20).await;
    fill_second_account(&dev, &data).await;
    for (to, _) in &MESSAGES[3..] {
        send(to).await;
    }
    dev.advance(0).await;
    let own = dev.announcement["account_id"].as_str().unwrap();
    command(&data, &format!("queue pause paused.example --account {own}"));
    send("waits@paused.example").await;
    dev.kill();
    let journal = fs::read(data.join(JOURNAL)).unwrap();
    assert!(journal.iter().any(|byte| *byte != 0), "the journal contains records");
    let report = checked(&data);
    assert_eq!(report["failed"], 0, "{report}");
    keep(&data, &format!("format-{}-killed", report["format"]));
}
