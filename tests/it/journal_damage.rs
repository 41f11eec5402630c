//! Tests of a damaged journal: `serve` refuses to start, `check` reports the damage, and the operator may accept the
//! loss, once.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::Dev;

/// Start of the first record.
const RECORDS: usize = 8192;

/// Creates a data directory as after kill -9, with a flipped bit in the first record of its journal.
async fn damaged(directory: &Path) {
    let dev = Dev::on(directory, &["--virtual-clock"]);
    for number in 0..5 {
        dev.send(&format!("you{number}@example.org")).await;
    }
    dev.kill_now();
    drop(dev);
    // `serve` refuses a directory of `dev`.
    fs::remove_file(directory.join("dev.json")).unwrap();
    let path = directory.join("journal");
    let mut journal = fs::read(&path).unwrap();
    assert!(journal[RECORDS..].starts_with(b"PRJ\x02"), "no checkpoint has emptied the journal");
    journal[RECORDS + 60] ^= 1;
    fs::write(&path, journal).unwrap();
}

fn serve(folder: &Path, data: &Path, arguments: &[&str]) -> Command {
    let config = folder.join("postrider.toml");
    let data = data.display().to_string();
    let text = format!(
        "hostname = \"mail.example.com\"\ndata_dir = {data:?}\n[http]\nlisten = [\"127.0.0.1:0\"]\n[http.tls]\n\
         mode = \"off\"\n[metrics]\nlisten = \"\"\n[dns]\nservers = [\"127.0.0.1:1\"]\n"
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    command.args(["serve", "--config"]).arg(config).args(arguments).stdin(Stdio::null());
    command
}

fn ended(command: &mut Command) -> (i32, String) {
    let Output { status, stderr, stdout } = command.output().unwrap();
    (status.code().unwrap(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

/// Returns the kept files of damaged journals.
fn kept(data: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("journal.damaged-")).collect()
}

#[tokio::test]
async fn serve_refuses_a_damaged_journal_until_the_loss_is_accepted_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    damaged(&data).await;
    let before = fs::read(data.join("journal")).unwrap();

    let (code, text) = ended(&mut serve(folder.path(), &data, &[]));
    assert_eq!(code, 1, "{text}");
    for named in ["the journal is damaged", "postrider check", "postrider serve --accept-journal-damage"] {
        assert!(text.contains(named), "{named}: {text}");
    }
    let check = ["check", "--data-dir", data.to_str().unwrap()];
    let (code, text) = ended(Command::new(env!("CARGO_BIN_EXE_postrider")).args(check));
    assert!(code == 7 && text.contains("the journal is damaged"), "{code}: {text}");
    assert_eq!(fs::read(data.join("journal")).unwrap(), before, "the journal is unchanged");

    let accept = ["--accept-journal-damage", "--ready-fd", "1"];
    let mut running =
        serve(folder.path(), &data, &accept).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    running.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let pid = running.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let output = running.wait_with_output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && log.contains("left_out=") && log.contains("queue release"), "{log}");
    let [copy] = &kept(&data)[..] else { panic!("{:?}", kept(&data)) };
    assert_eq!(fs::read(copy).unwrap(), before);

    let (code, text) = ended(&mut serve(folder.path(), &data, &accept));
    assert!(code == 2 && text.contains("not damaged"), "{code}: {text}");
    let (code, text) = ended(Command::new(env!("CARGO_BIN_EXE_postrider")).args(check));
    assert_eq!(code, 0, "{text}");
}
