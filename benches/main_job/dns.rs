//! A name server for the benchmark, one thread on a loopback port. Every `*.test` domain has a mail server on this
//! machine.
//!
//! It knows the sending domain's records once they are published, and answers other queries by rule. The MX of
//! `NAME.test` is `mx.NAME.test`, whose address is 127.0.0.1, or 127.0.0.2 under `dead.test`. Names under
//! `servfail.test` fail, and names under `silent.test` get no answer. Negative answers contain an SOA, so that they are
//! cached as usual (RFC 2308 section 5).

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Outcome;

/// Names below this one get SERVFAIL.
pub(crate) const SERVFAIL: &str = "servfail.test";
/// Names below this one get no answer.
pub(crate) const SILENT: &str = "silent.test";
/// Names below this one have servers at [`DEAD_ADDRESS`].
const DEAD: &str = "dead.test";
/// Address of the servers that accept nothing.
const DEAD_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

const A: u16 = 1;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const MX: u16 = 15;
const TXT: u16 = 16;
const IN: u16 = 1;
const TTL_SECONDS: u32 = 3600;

const HEADER_BYTES: usize = 12;
/// Response, authoritative, recursion desired and available.
const FLAGS: u16 = 0x8580;
const SERVER_FAILURE: u16 = 2;
const NAME_ERROR: u16 = 3;
/// A pointer to the question's name (RFC 1035 4.1.4).
const QUESTION_NAME: [u8; 2] = [0xc0, HEADER_BYTES as u8];

/// Records of a name.
#[derive(Clone)]
enum Data {
    Address(Ipv4Addr),
    Alias(String),
    Exchange(String),
    Text(String),
}

/// Answer to one question.
enum Verdict {
    Found(Vec<Data>),
    /// The name exists, without this type.
    Empty,
    NoSuchName,
    Failure,
    Silence,
}

struct Question<'a> {
    name: String,
    kind: u16,
    /// The question as received: the answer repeats its spelling, including letter case.
    bytes: &'a [u8],
}

type Zone = HashMap<String, Vec<Data>>;

/// The running name server; it ends with the process.
pub(crate) struct NameServer {
    address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
}

impl NameServer {
    /// Starts answering on a free loopback port.
    pub(crate) fn start() -> Outcome<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = socket.local_addr()?;
        let zone = Arc::new(Mutex::new(Zone::new()));
        let shared = Arc::clone(&zone);
        std::thread::Builder::new().name("dns".to_owned()).spawn(move || answer_all(&socket, &shared))?;
        Ok(Self { address, zone })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Publishes the `records` of a domain object (contract 2), replacing earlier ones.
    pub(crate) fn publish(&self, domain: &serde_json::Value) {
        let mut zone = Zone::new();
        for record in domain["records"].as_array().into_iter().flatten() {
            let text = |field: &str| record[field].as_str().unwrap_or_default().to_owned();
            let data = match text("type").as_str() {
                "TXT" => Data::Text(text("value")),
                "CNAME" => Data::Alias(text("value")),
                _ => continue,
            };
            let name = text("name").trim_end_matches('.').to_ascii_lowercase();
            zone.entry(name).or_default().push(data);
        }
        *self.zone.lock().unwrap_or_else(PoisonError::into_inner) = zone;
    }
}

fn answer_all(socket: &UdpSocket, zone: &Mutex<Zone>) {
    let mut buffer = [0; 4096];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
        let reply = {
            let zone = zone.lock().unwrap_or_else(PoisonError::into_inner);
            reply(&buffer[..length], &zone)
        };
        if let Some(reply) = reply {
            // The client may have gone.
            let _ = socket.send_to(&reply, peer);
        }
    }
}

/// Returns the answer to `query`; `None` for silent names and for datagrams that are not a query.
fn reply(query: &[u8], zone: &Zone) -> Option<Vec<u8>> {
    let question = question(query)?;
    let (code, answers) = match verdict(&question, zone) {
        Verdict::Found(answers) => (0, answers),
        Verdict::Empty => (0, Vec::new()),
        Verdict::NoSuchName => (NAME_ERROR, Vec::new()),
        Verdict::Failure => (SERVER_FAILURE, Vec::new()),
        Verdict::Silence => return None,
    };
    let negative = answers.is_empty() && code != SERVER_FAILURE && is_test(&question.name);
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(&query[..2]);
    for field in [FLAGS | code, 1, answers.len() as u16, u16::from(negative), 0] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    out.extend_from_slice(question.bytes);
    for data in &answers {
        put_record(&mut out, data);
    }
    if negative {
        put_soa(&mut out);
    }
    Some(out)
}

fn question(query: &[u8]) -> Option<Question<'_>> {
    if query.get(4..6)? != [0, 1] {
        return None;
    }
    let mut labels = Vec::new();
    let mut at = HEADER_BYTES;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(std::str::from_utf8(query.get(at..at + length)?).ok()?.to_ascii_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes(query.get(at..at + 2)?.try_into().ok()?);
    Some(Question { name: labels.join("."), kind, bytes: query.get(HEADER_BYTES..at + 4)? })
}

fn verdict(question: &Question<'_>, zone: &Zone) -> Verdict {
    let name = question.name.as_str();
    if is_below(name, SERVFAIL) {
        Verdict::Failure
    } else if is_below(name, SILENT) {
        Verdict::Silence
    } else if let Some(records) = zone.get(name) {
        published(records, question.kind)
    } else if !is_test(name) || name.starts_with('_') {
        // No DANE, no MTA-STS, no reports, as for most domains.
        Verdict::NoSuchName
    } else {
        by_rule(name, question.kind)
    }
}

fn published(records: &[Data], kind: u16) -> Verdict {
    let fits = |data: &&Data| match data {
        Data::Text(_) => kind == TXT,
        Data::Alias(_) => true,
        Data::Address(_) => kind == A,
        Data::Exchange(_) => kind == MX,
    };
    let found: Vec<Data> = records.iter().filter(fits).cloned().collect();
    if found.is_empty() { Verdict::Empty } else { Verdict::Found(found) }
}

fn by_rule(name: &str, kind: u16) -> Verdict {
    let is_server = name.starts_with("mx.");
    match kind {
        MX if !is_server => Verdict::Found(vec![Data::Exchange(format!("mx.{name}"))]),
        A if is_server && is_below(name, DEAD) => Verdict::Found(vec![Data::Address(DEAD_ADDRESS)]),
        A if is_server => Verdict::Found(vec![Data::Address(Ipv4Addr::LOCALHOST)]),
        _ => Verdict::Empty,
    }
}

fn is_test(name: &str) -> bool {
    is_below(name, "test")
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn put_record(out: &mut Vec<u8>, data: &Data) {
    let (kind, value) = match data {
        Data::Address(address) => (A, address.octets().to_vec()),
        Data::Alias(target) => (CNAME, encoded(target)),
        Data::Exchange(host) => (MX, [vec![0, 10], encoded(host)].concat()),
        // A TXT record consists of strings of at most 255 bytes (RFC 1035 3.3.14).
        Data::Text(text) => {
            (TXT, text.as_bytes().chunks(255).flat_map(|part| [&[part.len() as u8], part].concat()).collect())
        }
    };
    out.extend_from_slice(&QUESTION_NAME);
    put_value(out, kind, &value);
}

fn put_soa(out: &mut Vec<u8>) {
    let mut value = [encoded("ns.test"), encoded("hostmaster.test")].concat();
    for number in [1, TTL_SECONDS, TTL_SECONDS, TTL_SECONDS, TTL_SECONDS] {
        value.extend_from_slice(&number.to_be_bytes());
    }
    out.extend(encoded("test"));
    put_value(out, SOA, &value);
}

fn put_value(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&IN.to_be_bytes());
    out.extend_from_slice(&TTL_SECONDS.to_be_bytes());
    out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    out.extend_from_slice(value);
}

fn encoded(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for label in name.trim_end_matches('.').split('.') {
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}
