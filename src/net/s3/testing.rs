//! A test server that gives scripted answers in order and records its requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// One received request.
#[derive(Debug, Clone)]
pub(super) struct RecordedRequest {
    /// The request line.
    pub(super) line: String,
    /// Header lines, with lower-case names.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl RecordedRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The server. When the script ends, it closes connections without an answer.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<RecordedRequest>>>,
    answers: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), seen: Arc::default(), answers: Arc::default() };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        server
    }

    /// Adds an answer with this status, further header lines and a body.
    pub(super) fn answer(&self, status: u16, headers: &str, body: &str) {
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
        self.answer_raw(format!("{head}{body}").as_bytes());
    }

    /// Adds an answer as raw bytes.
    pub(super) fn answer_raw(&self, answer: &[u8]) {
        self.answers.lock().unwrap().push(answer.to_vec());
    }

    pub(super) fn seen(&self) -> Vec<RecordedRequest> {
        self.seen.lock().unwrap().clone()
    }

    async fn serve(self, mut stream: TcpStream) {
        while let Some(seen) = read(&mut stream).await {
            self.seen.lock().unwrap().push(seen);
            let answer = {
                let mut answers = self.answers.lock().unwrap();
                if answers.is_empty() { None } else { Some(answers.remove(0)) }
            };
            let Some(answer) = answer else { return };
            if stream.write_all(&answer).await.is_err() {
                return;
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<RecordedRequest> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        let mut part = [0; 4096];
        match stream.read(&mut part).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&part[..read]),
            Ok(_) | Err(_) => return None,
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let line = lines.next()?.to_owned();
    let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: Vec<_> = lines.filter_map(pair).collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = bytes[end + 4..].to_vec();
    while body.len() < length {
        let mut part = vec![0; length - body.len()];
        let read = stream.read(&mut part).await.ok().filter(|read| *read > 0)?;
        body.extend_from_slice(&part[..read]);
    }
    Some(RecordedRequest { line, headers, body })
}
