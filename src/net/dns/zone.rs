//! Test server on loopback with scripted answers over UDP and TCP, which counts its queries; and a manual clock.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, MX, SOA, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use crate::base::time::Timestamp;
use crate::engine::ports::Clock;

/// A manual clock, which only changes when it is advanced.
#[derive(Default)]
pub(in crate::net) struct ManualClock(Mutex<Duration>);

impl ManualClock {
    pub(in crate::net) fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.monotonic()
    }
    fn monotonic(&self) -> Duration {
        *self.0.lock().unwrap()
    }
}

/// Behaviour of the server for a query.
#[derive(Clone)]
pub(super) enum DnsBehaviour {
    /// An answer with these records, with this TTL.
    Records(Vec<RData>, u32),
    /// An alias, without following it.
    Alias(String, u32),
    /// The name exists, the record does not; the SOA's minimum in seconds.
    NoData(u32),
    /// NXDOMAIN; the SOA's minimum in seconds.
    NoName(u32),
    /// An error code.
    Error(ResponseCode),
    /// No answer.
    Silence,
    /// An empty truncated answer over UDP, and these records over TCP.
    OnlyTcp(Vec<RData>),
}

#[derive(Default)]
struct Script {
    says: HashMap<(String, RecordType), DnsBehaviour>,
    asked: HashMap<(String, RecordType), usize>,
}

/// The server. Names without a script are NXDOMAIN, or NODATA if the name has other records.
#[derive(Clone)]
pub(super) struct Zone {
    pub(super) address: SocketAddr,
    script: Arc<Mutex<Script>>,
}

impl Zone {
    /// Starts serving on the test's runtime, until the runtime ends.
    pub(super) async fn serve() -> Self {
        let (udp, tcp) = same_port().await;
        let zone = Self { address: udp.local_addr().unwrap(), script: Arc::default() };
        tokio::spawn(zone.clone().serve_udp(udp));
        tokio::spawn(zone.clone().serve_tcp(tcp));
        zone
    }

    pub(super) fn says(&self, name: &str, kind: RecordType, say: DnsBehaviour) -> &Self {
        self.script.lock().unwrap().says.insert((name.to_owned(), kind), say);
        self
    }

    pub(super) fn a(&self, name: &str, addresses: &[&str]) -> &Self {
        let records = addresses.iter().map(|a| RData::A(A(a.parse().unwrap()))).collect();
        self.says(name, RecordType::A, DnsBehaviour::Records(records, 300))
    }

    pub(super) fn aaaa(&self, name: &str, addresses: &[&str]) -> &Self {
        let records = addresses.iter().map(|a| RData::AAAA(AAAA(a.parse().unwrap()))).collect();
        self.says(name, RecordType::AAAA, DnsBehaviour::Records(records, 300))
    }

    pub(super) fn mx(&self, name: &str, exchanges: &[(u16, &str)]) -> &Self {
        let records = exchanges.iter().map(|(preference, name)| mx(*preference, name)).collect();
        self.says(name, RecordType::MX, DnsBehaviour::Records(records, 300))
    }

    pub(super) fn txt(&self, name: &str, strings: &[&str]) -> &Self {
        let text = TXT::new(strings.iter().map(|s| (*s).to_owned()).collect());
        self.says(name, RecordType::TXT, DnsBehaviour::Records(vec![RData::TXT(text)], 300))
    }

    /// Returns the number of queries for this name and type.
    pub(super) fn asked(&self, name: &str, kind: RecordType) -> usize {
        self.script.lock().unwrap().asked.get(&(name.to_owned(), kind)).copied().unwrap_or(0)
    }

    fn say(&self, query: &Query) -> DnsBehaviour {
        let key = (super::query::normal(&query.name().to_ascii()), query.query_type());
        let mut script = self.script.lock().unwrap();
        *script.asked.entry(key.clone()).or_default() += 1;
        let exists = script.says.keys().any(|(name, _)| *name == key.0);
        script.says.get(&key).cloned().unwrap_or(if exists {
            DnsBehaviour::NoData(60)
        } else {
            DnsBehaviour::NoName(60)
        })
    }

    fn answer(&self, question: &[u8], over_tcp: bool) -> Option<Vec<u8>> {
        let question = Message::from_vec(question).ok()?;
        let query = question.queries.first()?.clone();
        let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
        answer.metadata.recursion_available = true;
        let name = query.name().clone();
        let add = |answer: &mut Message, records: Vec<RData>, ttl| {
            answer.add_answers(records.into_iter().map(|data| Record::from_rdata(name.clone(), ttl, data)));
        };
        match self.say(&query) {
            DnsBehaviour::Silence => return None,
            DnsBehaviour::Error(code) => answer.metadata.response_code = code,
            DnsBehaviour::Records(records, ttl) => add(&mut answer, records, ttl),
            DnsBehaviour::Alias(target, ttl) => add(&mut answer, vec![RData::CNAME(CNAME(dns_name(&target)))], ttl),
            DnsBehaviour::OnlyTcp(records) if over_tcp => add(&mut answer, records, 300),
            DnsBehaviour::OnlyTcp(_) => answer.metadata.truncation = true,
            DnsBehaviour::NoData(minimum) => {
                answer.add_authority(soa(minimum));
            }
            DnsBehaviour::NoName(minimum) => {
                answer.metadata.response_code = ResponseCode::NXDomain;
                answer.add_authority(soa(minimum));
            }
        }
        answer.add_query(query);
        answer.to_vec().ok()
    }

    async fn serve_udp(self, socket: UdpSocket) {
        let mut buffer = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            if let Some(answer) = self.answer(&buffer[..length], false) {
                socket.send_to(&answer, peer).await.unwrap();
            }
        }
    }

    async fn serve_tcp(self, listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let zone = self.clone();
            tokio::spawn(async move {
                while let Ok(length) = stream.read_u16().await {
                    let mut question = vec![0; length.into()];
                    stream.read_exact(&mut question).await.unwrap();
                    let Some(answer) = zone.answer(&question, true) else { continue };
                    stream.write_u16(answer.len().try_into().unwrap()).await.unwrap();
                    stream.write_all(&answer).await.unwrap();
                }
            });
        }
    }
}

/// Returns one MX record.
pub(super) fn mx(preference: u16, name: &str) -> RData {
    RData::MX(MX::new(preference, dns_name(name)))
}

async fn same_port() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
}

fn dns_name(name: &str) -> Name {
    let mut name = Name::from_ascii(name).unwrap();
    name.set_fqdn(true);
    name
}

fn soa(minimum: u32) -> Record {
    let soa = SOA::new(dns_name("ns.example"), dns_name("hostmaster.example"), 1, 3600, 600, 86400, minimum);
    Record::from_rdata(dns_name("example"), 86400, RData::SOA(soa))
}
