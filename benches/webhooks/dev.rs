//! `postrider dev` as a child, with configuration, data directory and log in one folder.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::Outcome;

/// Starts it, and returns its output once it is ready.
pub(crate) fn spawn(bin: &Path, folder: &Path) -> Outcome<(Child, Value)> {
    let log = File::options().create(true).append(true).open(folder.join("log"))?;
    let mut child = Command::new(bin)
        .args(["dev", "--json", "--listen", "127.0.0.1:0", "--config"])
        .arg(folder.join("postrider.toml"))
        .arg("--data-dir")
        .arg(folder.join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| format!("{}: {error}", bin.display()))?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no pipe for the ready line")?).read_line(&mut line)?;
    let announcement =
        serde_json::from_str(&line).map_err(|_| format!("dev did not start; see {}", folder.display()))?;
    Ok((child, announcement))
}
