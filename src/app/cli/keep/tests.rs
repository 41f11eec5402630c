//! Tests of `backup`, `restore` and `check` in failure cases: each reports the reason and leaves no files.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::*;
use crate::app::cli::{Services, run};
use crate::app::environment::Environment;
use crate::app::fake_daemon::FakeDaemon;

/// Returns a command's exit code and both outputs.
fn typed(line: &str, data_dir: &Path) -> (Exit, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let variable = ("POSTRIDER_DATA_DIR".to_owned(), data_dir.to_str().unwrap().to_owned());
    let mut console = Console {
        environment: Environment::of([variable]),
        input: &mut std::io::empty(),
        out: &mut out,
        err: &mut err,
    };
    let services = Services {
        serve: &|_, _, _| panic!("serves"),
        dev: &|_| panic!("runs dev"),
        standby: &|_, _| panic!("stands by"),
    };
    let words = std::iter::once("postrider").chain(line.split_whitespace()).map(OsString::from);
    let exit = run(words, &mut console, &services);
    (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

#[test]
fn an_incomplete_backup_leaves_no_file() {
    for (status, body, expected) in [
        (200, "postrider backup 1\n", Exit::Failed),
        (200, "<html>", Exit::Failed),
        (200, "", Exit::Failed),
        (409, "{\"message\":\"A backup is being taken already.\",\"code\":\"conflict\"}", Exit::Conflict),
        (503, "{\"message\":\"Restarting.\",\"code\":\"shutting_down\"}", Exit::Unreachable),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let daemon = FakeDaemon::answering(&[(status, body)]);
        let line = format!("backup {} --with-content", folder.path().join("b").display());
        let (exit, out, err) = typed(&line, daemon.data_dir());
        assert_eq!((exit, out.as_str(), err.lines().count()), (expected, "", 3), "{status} {body}: {err}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{status} {body}");
        let asked = daemon.requests();
        assert!(asked[0].starts_with("GET /v1/backup?content=true&master_key=false "), "{asked:?}");
    }
}

#[test]
fn a_backup_refuses_existing_and_impossible_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("b");
    fs::write(&file, "mine").unwrap();
    let (exit, _, err) = typed(&format!("backup {}", file.display()), folder.path());
    assert_eq!((exit, err.lines().count()), (Exit::Conflict, 3), "{err}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    assert_eq!(typed(&format!("backup {}.other", file.display()), folder.path()).0, Exit::Unreachable);
    let daemon = FakeDaemon::answering(&[(200, "")]);
    let line = format!("backup {}", folder.path().join("no/such/folder").display());
    assert_eq!(typed(&line, daemon.data_dir()).0, Exit::NotFound);
}

#[test]
fn restore_and_check_report_missing_files() {
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("b"), folder.path().join("data"));
    let restore = format!("restore {} --data-dir {}", file.display(), data.display());
    let ended = |line: &str| {
        let (exit, out, err) = typed(line, folder.path());
        assert_eq!((out.as_str(), err.lines().count()), ("", 3), "{line}: {err}");
        exit
    };
    assert_eq!(ended(&restore), Exit::NotFound);
    assert_eq!(ended(&format!("check --backup {}", file.display())), Exit::NotFound);
    assert_eq!(ended(&format!("check --data-dir {}", data.display())), Exit::NotFound);
    assert!(!data.exists(), "a check creates nothing");
    fs::write(&file, "postrider backup 9\n").unwrap();
    assert_eq!(ended(&restore), Exit::Failed);
    assert_eq!(ended(&format!("check --backup {}", file.display())), Exit::Failed);
    fs::write(&file, "something else").unwrap();
    assert_eq!(ended(&restore), Exit::Failed);
    let (exit, out, _) = typed(&format!("check --backup {} --json", file.display()), folder.path());
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((exit, &report["failures"][0]["rule"]), (Exit::ChecksFailed, &serde_json::json!("backup")));
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("mine"), "").unwrap();
    assert_eq!(ended(&restore), Exit::Conflict);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1);
    let line = format!("{restore} --master-key {}", folder.path().join("no.key").display());
    assert_eq!(ended(&line), Exit::NotFound);
    let (exit, ..) = typed(&format!("check --backup b --data-dir {}", data.display()), folder.path());
    assert_eq!(exit, Exit::Usage);
}

#[test]
fn a_release_reports_the_released_items() {
    let answer = "{\"released\":true,\"backup_at\":\"2026-11-20T15:04:05.000+00:00\",\"messages\":7,\"deliveries\":2}";
    let nothing = "{\"released\":false,\"backup_at\":null,\"messages\":0,\"deliveries\":0}";
    let daemon = FakeDaemon::answering(&[(200, answer), (200, answer), (200, nothing)]);
    let (exit, out, _) = typed("queue release", daemon.data_dir());
    assert_eq!(exit, Exit::Done);
    assert_eq!(out, "Released 7 messages and 2 webhook deliveries of the backup of 2026-11-20T15:04:05.000+00:00.\n");
    assert_eq!(typed("queue release --json", daemon.data_dir()).1, format!("{answer}\n"));
    assert_eq!(typed("queue release", daemon.data_dir()).1, "Nothing is on hold.\n");
    assert!(daemon.requests().iter().all(|request| request.starts_with("POST /v1/queue/release ")));
}

#[test]
fn a_queue_on_hold_is_reported_after_its_sites() {
    let page = "{\"data\":[],\"next_cursor\":null,\"standstill\":{\"backup_at\":\"2026-11-20T15:04:05.000+00:00\",\
        \"messages\":7,\"deliveries\":2}}";
    let daemon = FakeDaemon::answering(&[(200, page)]);
    let (_, out, _) = typed("queue list", daemon.data_dir());
    assert!(
        out.contains("7 messages and 2 webhook deliveries are on hold") && out.contains("`postrider queue release`")
    );
}
