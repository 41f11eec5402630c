//! Tests of backups of a running service, their restores, and checks that find planted faults (contract 8 `backup`,
//! `restore`, `check`, `queue release`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::{Dev, types};

/// Exit code and output of a command.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!((self.code, self.out.lines().count()), (0, 1), "{} {}", self.out, self.err);
        serde_json::from_str(&self.out).unwrap()
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Ran {
    Ran::of(command(words).output().unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn backup(dev: &Dev, file: &Path, options: &[&str]) -> Ran {
    let data_dir = dev.data_dir();
    let words = [&["backup", text(file), "--data-dir", text(&data_dir), "--json"], options].concat();
    run(&words)
}

fn restore(file: &Path, directory: &Path, options: &[&str]) -> Ran {
    run(&[&["restore", text(file), "--data-dir", text(directory), "--json"], options].concat())
}

fn check(directory: &Path) -> Ran {
    run(&["check", "--data-dir", text(directory), "--json"])
}

/// A directory for one test, with paths in it.
struct Places {
    directory: tempfile::TempDir,
}

impl Places {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn of(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Returns the message identifiers of captured mail.
async fn captured(dev: &Dev) -> Vec<String> {
    let mail = dev.get("/dev/mail").await.expect(200).json();
    mail["data"].as_array().unwrap().iter().map(|mail| mail["message_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn queued_mail_in_a_restored_store_is_on_hold_until_released() {
    let places = Places::new();
    let dev = Dev::on(&places.of("old"), &["--virtual-clock"]);
    let delivered = dev.send("done@example.org").await;
    dev.advance(0).await;
    let waiting = dev.send("deferred@simulator.test").await;
    dev.advance(0).await;
    assert_eq!(dev.message(&waiting).await["status"], "deferred");
    let file = places.of("a.backup");
    let taken = backup(&dev, &file, &["--with-content", "--with-key"]);
    assert!(taken.err.starts_with("backup: "), "progress is shown: {}", taken.err);
    assert_eq!(taken.json()["with_content"], true);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(backup(&dev, &file, &[]).code, 6, "an existing file is not overwritten");
    let (bearer, records) = (dev.announcement["api_key"].as_str().unwrap().to_owned(), dev.message(&delivered).await);
    dev.advance(86_400).await;
    assert_eq!(dev.message(&waiting).await["status"], "delivered", "the old service continued");
    dev.kill();

    let new = places.of("new");
    let restored = restore(&file, &new, &[]).json();
    assert_eq!((&restored["messages"], &restored["with_content"]), (&json!(1), &json!(true)));
    assert_eq!(check(&new).json()["failed"], 0);
    let bearer = format!("Bearer {bearer}");
    for round in 0..2 {
        let dev = Dev::on(&new, &["--virtual-clock"]);
        let as_before = [("authorization", bearer.as_str())];
        let path = format!("/v1/messages/{delivered}");
        let found = dev.call_with(reqwest::Method::GET, &path, None, &as_before).await.expect(200).json();
        assert_eq!(found, records, "all records are restored, with content and timeline");
        dev.advance(3 * 3600).await;
        assert_eq!(dev.message(&waiting).await["status"], "deferred", "round {round}: the restored queue is on hold");
        let data_dir = dev.data_dir();
        let queue = run(&["queue", "list", "--json", "--data-dir", text(&data_dir)]).json();
        assert_eq!(queue["standstill"]["messages"], 1, "{queue}");
        assert_eq!(queue["data"][0]["waiting"], 1, "{queue}");
        let fresh = dev.send("new@example.org").await;
        dev.advance(0).await;
        assert_eq!(dev.message(&fresh).await["status"], "delivered", "new messages are sent as usual");
        dev.get("/readyz").await.expect(200);
        assert_eq!(dev.terminate().await.code(), Some(0));
    }

    let dev = Dev::on(&new, &["--virtual-clock"]);
    let data_dir = dev.data_dir();
    let release = || run(&["queue", "release", "--json", "--data-dir", text(&data_dir)]).json();
    let released = release();
    assert_eq!((&released["released"], &released["messages"]), (&json!(true), &json!(1)), "{released}");
    assert_eq!(release()["released"], false);
    dev.advance(86_400).await;
    assert_eq!(dev.message(&waiting).await["status"], "delivered");
    assert!(!captured(&dev).await.contains(&delivered), "a delivered message is not sent again");
    let queue = run(&["queue", "list", "--json", "--data-dir", text(&data_dir)]).json();
    assert_eq!(queue.get("standstill"), None);
    assert_eq!(dev.terminate().await.code(), Some(0));
    assert_eq!(check(&new).json()["failed"], 0);
}

#[tokio::test]
async fn without_content_a_queued_message_fails_after_the_restore() {
    let places = Places::new();
    let dev = Dev::on(&places.of("old"), &["--virtual-clock"]);
    let waiting = dev.send("deferred@simulator.test").await;
    dev.advance(0).await;
    let (file, key, new) = (places.of("a.backup"), places.of("old/master.key"), places.of("new"));
    assert_eq!(backup(&dev, &file, &[]).json()["with_key"], false);
    dev.kill();
    let refused = restore(&file, &new, &[]);
    assert_eq!((refused.code, refused.err.lines().count()), (2, 3), "{}", refused.err);
    fs::write(places.of("wrong.key"), [7; 32]).unwrap();
    let wrong = places.of("wrong.key");
    assert_eq!(restore(&file, &new, &["--master-key", text(&wrong)]).code, 1);
    assert_eq!(restore(&file, &new, &["--master-key", text(&places.of("no.key"))]).code, 3);
    restore(&file, &new, &["--master-key", text(&key)]).json();
    assert_eq!(restore(&file, &new, &["--master-key", text(&key)]).code, 6, "the directory is not empty any more");

    let dev = Dev::on(&new, &["--virtual-clock"]);
    let record = dev.message(&waiting).await;
    assert_eq!((&record["status"], &record["text"]), (&json!("deferred"), &json!(null)));
    dev.get(&format!("/v1/messages/{waiting}/raw")).await.expect(410);
    let data_dir = dev.data_dir();
    run(&["queue", "release", "--json", "--data-dir", text(&data_dir)]).json();
    dev.advance(86_400).await;
    let record = dev.message(&waiting).await;
    assert_eq!(record["status"], "failed");
    // The receiver defers twice; then reading the content fails for an hour.
    assert_eq!(types(&record), ["queued", "deferred", "deferred", "deferred", "failed"]);
    assert_eq!(dev.terminate().await.code(), Some(0));
    assert_eq!(check(&new).json()["failed"], 0);
}

#[tokio::test]
async fn outstanding_webhook_deliveries_are_on_hold_too() {
    let places = Places::new();
    let config = places.of("config.toml");
    fs::write(&config, "[network]\nallow = [\"127.0.0.0/8\"]\n").unwrap();
    let options = ["--virtual-clock", "--config", text(&config)];
    let dev = Dev::on(&places.of("old"), &options);
    // Nothing listens at this port, so each attempt fails immediately.
    let hook = json!({"url": "https://127.0.0.1:1/", "events": ["queued"]});
    let hook = dev.post("/v1/webhooks", hook).await.expect(201).json();
    let path = format!("/v1/webhooks/{}/deliveries", hook["id"].as_str().unwrap());
    dev.send("you@example.org").await;
    dev.advance(0).await;
    let file = places.of("a.backup");
    backup(&dev, &file, &["--with-key"]).json();
    dev.kill();

    let new = places.of("new");
    assert_eq!(restore(&file, &new, &[]).json()["deliveries"], 1);
    let dev = Dev::on(&new, &options);
    /// Returns the number of attempts of each delivery, oldest first.
    async fn attempts(dev: &Dev, path: &str) -> Vec<u64> {
        let page = dev.get(path).await.expect(200).json();
        page["data"].as_array().unwrap().iter().rev().map(|row| row["attempt"].as_u64().unwrap()).collect()
    }
    dev.advance(3600).await;
    assert_eq!(attempts(&dev, &path).await, [1], "restored deliveries are on hold");
    dev.send("you@example.org").await;
    dev.advance(0).await;
    assert_eq!(attempts(&dev, &path).await, [1, 1], "new events are delivered as usual");
    let data_dir = dev.data_dir();
    let released = run(&["queue", "release", "--json", "--data-dir", text(&data_dir)]).json();
    assert_eq!((&released["messages"], &released["deliveries"]), (&json!(0), &json!(1)));
    dev.advance(0).await;
    assert_eq!(attempts(&dev, &path).await, [2, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_64_clients_contains_every_earlier_202() {
    const CLIENTS: usize = 64;
    let places = Places::new();
    let dev = Arc::new(Dev::on(&places.of("old"), &["--virtual-clock"]));
    let stop = Arc::new(AtomicBool::new(false));
    let answers = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (dev, stop, answers) = (Arc::clone(&dev), Arc::clone(&stop), Arc::clone(&answers));
            tokio::spawn(async move {
                let mut sent = Vec::new();
                while !stop.load(Ordering::SeqCst) && sent.len() < 8 {
                    sent.push((dev.send(&format!("you{client}@example.org")).await, std::time::Instant::now()));
                    answers.fetch_add(1, Ordering::SeqCst);
                }
                sent
            })
        })
        .collect();
    // Count the answers that have arrived: a message is in the log before its client has read the 202.
    while answers.load(Ordering::SeqCst) < CLIENTS {
        tokio::task::yield_now().await;
    }
    let began = std::time::Instant::now();
    let file = places.of("a.backup");
    let taken = {
        let (dev, file) = (Arc::clone(&dev), file.clone());
        tokio::task::spawn_blocking(move || backup(&dev, &file, &["--with-content", "--with-key"])).await.unwrap()
    };
    taken.json();
    stop.store(true, Ordering::SeqCst);
    let mut before = Vec::new();
    for client in clients {
        before.extend(client.await.unwrap().into_iter().filter(|(_, at)| *at < began).map(|(id, _)| id));
    }
    Arc::into_inner(dev).unwrap().kill();
    assert!(before.len() >= CLIENTS, "{}", before.len());

    let new = places.of("new");
    restore(&file, &new, &[]).json();
    let report = check(&new).json();
    assert_eq!(report["failed"], 0, "{report}");
    assert_eq!(report["bodies"], report["rows"]["messages"], "the backup contains every body of its rows");
    assert_eq!(run(&["check", "--backup", text(&file), "--json"]).json()["rows"], report["rows"]);
    let dev = Dev::on(&new, &["--virtual-clock"]);
    for id in before {
        assert_eq!(dev.message(&id).await["text"], "It works.\n");
    }
}

#[tokio::test]
async fn a_killed_backup_leaves_no_file_that_looks_complete() {
    let places = Places::new();
    let dev = Dev::on(&places.of("old"), &["--virtual-clock"]);
    for number in 0..20 {
        dev.send(&format!("you{number}@example.org")).await;
    }
    let (file, data_dir) = (places.of("a.backup"), dev.data_dir());
    // Stop the backup at different moments. At none of them may the name exist without a complete backup.
    let words = ["backup", text(&file), "--data-dir", text(&data_dir), "--with-content", "--with-key"];
    for spins in [0, 1, 2, 4, 8, 16, 32, 64] {
        let mut child = command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        for _ in 0..spins {
            dev.get("/healthz").await.expect(200);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if file.exists() {
            assert_eq!(run(&["check", "--backup", text(&file)]).code, 0);
            fs::remove_file(&file).unwrap();
        }
        for entry in fs::read_dir(places.directory.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(name == "old" || name.starts_with("a.backup.unfinished-"), "{name}");
        }
    }
    backup(&dev, &file, &[]).json();
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let (new, key) = (places.of("new"), places.of("old/master.key"));
    let refused = restore(&file, &new, &["--master-key", text(&key)]);
    assert_eq!((refused.code, refused.err.lines().last().unwrap().trim()), (1, "Use another copy, or another backup."));
    let report = run(&["check", "--backup", text(&file), "--json"]);
    assert_eq!(report.code, 7, "{} {}", report.out, report.err);
    assert_eq!(run(&["check", "--backup", text(&places.of("nothing"))]).code, 3);
}

#[tokio::test]
async fn a_check_finds_planted_damage_and_refuses_a_running_store() {
    let places = Places::new();
    let data = places.of("data");
    let dev = Dev::on(&data, &["--virtual-clock"]);
    let id = dev.send("deferred@simulator.test").await;
    dev.advance(0).await;
    let running = check(&data);
    assert_eq!((running.code, running.out.as_str(), running.err.lines().count()), (6, "", 3), "{}", running.err);
    // Expired content is not a failure, even if the clock jumped.
    dev.advance(31 * 86_400).await;
    dev.send("deferred@simulator.test").await;
    dev.advance(0).await;
    dev.kill();
    let report = check(&data).json();
    assert_eq!(report["failed"], 0, "{report}");
    assert!(report["rows"]["messages"] == 2 && report["bodies"] == 1, "{report}");

    damage(&segment(&data));
    assert_eq!(check(&data).json()["failed"], 0, "after a crash the journal has the body too");
    let dev = Dev::on(&data, &["--virtual-clock"]);
    assert!(dev.terminate().await.success());
    assert_eq!(check(&data).json()["failed"], 0, "the start has repaired it");
    damage(&segment(&data));
    let found = check(&data);
    assert_eq!(found.code, 7, "{}", found.err);
    let report: Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!((&report["failed"], &report["failures"][0]["rule"]), (&json!(1), &json!("content")), "{report}");
    assert!(
        !report["failures"][0]["what"].as_str().unwrap().contains(&id),
        "the failure is about the other message: {report}"
    );
    let ran = run(&["check", "--data-dir", text(&data)]);
    assert!(ran.code == 7 && ran.out.contains("FAIL ") && ran.out.ends_with("1 failures.\n"), "{}", ran.out);
    assert_eq!(check(&places.of("nowhere")).code, 3);
}

fn damage(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).unwrap();
}

fn segment(data: &Path) -> PathBuf {
    let buckets = fs::read_dir(data.join("content")).unwrap().map(|entry| entry.unwrap().path());
    let bucket = buckets.filter(|path| path.is_dir()).max().unwrap();
    bucket.join("000000.segment")
}
