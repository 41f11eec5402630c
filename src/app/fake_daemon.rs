//! A daemon for tests, with given answers. It records the requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::{self, JoinHandle};

use tempfile::TempDir;

use super::admin_client::SOCKET_NAME;

/// The daemon and its data directory.
pub(super) struct FakeDaemon {
    dir: TempDir,
    thread: JoinHandle<Vec<String>>,
}

impl FakeDaemon {
    /// Starts a daemon that gives these answers (status, body), one for each connection, and then ends.
    pub(super) fn answering(answers: &[(u16, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(SOCKET_NAME)).unwrap();
        let answers: Vec<(u16, String)> = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
        let serve = move || answers.iter().map(|answer| exchange(listener.accept().unwrap().0, answer)).collect();
        Self { dir, thread: thread::spawn(serve) }
    }

    pub(super) fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns all requests, head and body, once all answers are given.
    pub(super) fn requests(self) -> Vec<String> {
        self.thread.join().unwrap()
    }
}

fn exchange(stream: UnixStream, (status, body): &(u16, String)) -> String {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut request).unwrap(), 0, "the request ends in its head");
    }
    let length =
        request.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut sent = vec![0; length];
    reader.read_exact(&mut sent).unwrap();
    request.push_str(std::str::from_utf8(&sent).unwrap());
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    write!(reader.into_inner(), "{head}{body}").unwrap();
    request
}
