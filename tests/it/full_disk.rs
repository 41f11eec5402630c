//! Tests of a full disk (contract 8), on a small separate disk. Accepting stops in time, accepted mail is
//! still delivered, and everything works again once there is space.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use serde_json::json;

use crate::smtp::Session;
use crate::support::Dev;

const SIZE: &str = "size=192m,mode=0700";

/// A small disk, unmounted when it is dropped.
struct Disk {
    place: tempfile::TempDir,
}

impl Disk {
    /// Mounts a small disk; `None` if this user may not mount.
    fn mount() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(place.path()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self { place })
    }

    fn path(&self) -> &Path {
        self.place.path()
    }

    fn free(&self) -> u64 {
        let space = statvfs(self.path()).unwrap();
        space.f_bavail * space.f_frsize
    }

    /// Fills the disk like another program, except `left` bytes.
    fn fill(&self, left: u64) {
        let file = File::create(self.path().join("another's")).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, self.free() - left).unwrap();
    }

    fn clear(&self) {
        fs::remove_file(self.path().join("another's")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.path()).status());
    }
}

#[tokio::test]
async fn a_full_disk_stops_only_accepting_and_only_while_it_is_full() {
    let Some(disk) = Disk::mount() else {
        eprintln!("skipped: this user may not mount a disk");
        return;
    };
    let data = disk.path().join("data");
    let dev = Dev::on(&data, &["--virtual-clock"]);
    let before = dev.send("you@example.org").await;
    let waiting = dev.send("deferred@simulator.test").await;
    dev.advance(0).await;
    assert_eq!(dev.message(&waiting).await["status"], "deferred");

    disk.fill(512 * 1024);
    let letter = json!({"from": "hello@example.test", "to": "late@example.org", "text": "no room"});
    let refused = dev.post("/v1/messages", letter.clone()).await.expect(503);
    assert_eq!(refused.json()["code"], "storage_full");
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    dev.get("/readyz").await.expect(503);
    dev.get("/healthz").await.expect(200);
    let mut smtp = Session::submission(&dev).await;
    let refused = smtp.say("MAIL FROM:<hello@example.test>\r\n").await;
    assert!(refused.starts_with("452 4.3.1 "), "{refused}");
    assert!(smtp.say("NOOP\r\n").await.starts_with("250 "), "the session stays usable");
    // Outcomes still fit into the reserved space, and expired content frees more.
    dev.advance(600).await;
    assert_eq!(dev.message(&waiting).await["status"], "delivered");
    assert_eq!(dev.message(&before).await["text"], "It works.\n");
    dev.advance(31 * 86_400).await;
    assert_eq!(dev.message(&before).await["text"], json!(null));
    dev.get(&format!("/v1/messages/{before}/raw")).await.expect(410);
    dev.post("/v1/messages", letter.clone()).await.expect(503);

    disk.clear();
    dev.get("/readyz").await.expect(200);
    assert!(smtp.say("MAIL FROM:<hello@example.test>\r\n").await.starts_with("250 "));
    let after = dev.post("/v1/messages", letter).await.expect(202).json();
    dev.advance(0).await;
    dev.kill();
    let dev = Dev::on(&data, &["--virtual-clock"]);
    for id in [before.as_str(), &waiting, after["id"].as_str().unwrap()] {
        assert_eq!(dev.message(id).await["status"], "delivered", "every message with a 202 is delivered");
    }
}
