//! Single DNS queries for an operator: which server answered, whether the answer was validated there (AD), and how long
//! its signatures are valid.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::proto::dnssec::rdata::DNSSECRData;
use hickory_resolver::proto::op::{Edns, Message, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::net::plain_error::plain_error;

/// UDP payload in bytes that fits into one packet on every path (DNS flag day 2020).
const PAYLOAD_BYTES: u16 = 1232;
/// Time limit of one try of one server.
const TRY: Duration = Duration::from_secs(2);
/// Maximum number of name servers asked, as in resolv.conf(5).
const SERVERS_MAX: usize = 3;

/// Record type to query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// The names of an address (reverse lookup).
    Ptr,
    /// Texts.
    Txt,
    /// Mail servers, best first.
    Mx,
    /// The start of a zone.
    Soa,
}

impl ProbeType {
    const fn record_type(self) -> RecordType {
        match self {
            Self::A => RecordType::A,
            Self::Aaaa => RecordType::AAAA,
            Self::Ptr => RecordType::PTR,
            Self::Txt => RecordType::TXT,
            Self::Mx => RecordType::MX,
            Self::Soa => RecordType::SOA,
        }
    }
}

/// Answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAnswer {
    /// The records as text: addresses, names in lower case without trailing dot, or joined TXT strings.
    pub records: Vec<String>,
    /// Whether the server reports that it validated the records (RFC 4035 3.2.3).
    pub is_validated: bool,
    /// Validity period of the signatures in the answer, in seconds since 1970.
    pub signed: Option<(u32, u32)>,
    /// The server that answered.
    pub server: SocketAddr,
}

/// Reasons for a query without records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// The name does not exist, or has no record of the requested kind.
    #[error("no such record")]
    Absent,
    /// No server gave an answer.
    #[error("{0}")]
    Failed(String),
}

/// Client for a list of name servers.
#[derive(Debug, Clone)]
pub struct DnsProbe {
    servers: Vec<SocketAddr>,
}

impl DnsProbe {
    /// Creates a client for `servers`, or for the system's servers if the list is empty.
    ///
    /// # Errors
    /// The system names no servers either. The error is a sentence.
    pub fn new(servers: &[SocketAddr]) -> Result<Self, String> {
        let mut servers = servers.to_vec();
        if servers.is_empty() {
            let system = read_system_conf().map_err(|error| format!("/etc/resolv.conf: {error}"))?;
            servers = system.0.name_servers.iter().map(|server| SocketAddr::new(server.ip, 53)).collect();
        }
        servers.dedup();
        servers.truncate(SERVERS_MAX);
        if servers.is_empty() { Err("/etc/resolv.conf names no server".to_owned()) } else { Ok(Self { servers }) }
    }

    /// Returns the records of this type at `name`. The servers are asked in turn until one answers.
    ///
    /// # Errors
    /// [`ServerError`].
    pub async fn ask(&self, name: &str, asked: ProbeType) -> Result<ServerAnswer, ServerError> {
        let mut name = Name::from_ascii(name).map_err(|error| ServerError::Failed(error.to_string()))?;
        name.set_fqdn(true);
        let mut why = String::new();
        for server in &self.servers {
            match timeout(TRY, exchange(*server, &name, asked)).await {
                Ok(Ok(message)) => match read(&message, asked, *server) {
                    Err(ServerError::Failed(fault)) => why = format!("{server} answered {fault}"),
                    settled => return settled,
                },
                Ok(Err(fault)) => why = format!("{server} did not answer: {fault}"),
                Err(_) => why = format!("{server} did not answer within {} s", TRY.as_secs()),
            }
        }
        Err(ServerError::Failed(why))
    }
}

async fn exchange(server: SocketAddr, name: &Name, asked: ProbeType) -> Result<Message, String> {
    let mut question = Message::query();
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD_BYTES).set_dnssec_ok(true);
    question.metadata.recursion_desired = true;
    question.metadata.authentic_data = true;
    question.add_query(Query::query(name.clone(), asked.record_type())).set_edns(edns);
    let bytes = question.to_vec().map_err(|error| error.to_string())?;
    let by_datagram = datagram(server, &bytes).await.map_err(plain_error)?;
    let mut answer = Message::from_vec(&by_datagram).map_err(|error| error.to_string())?;
    if answer.metadata.truncation {
        let by_stream = stream(server, &bytes).await.map_err(plain_error)?;
        answer = Message::from_vec(&by_stream).map_err(|error| error.to_string())?;
    }
    match answer.metadata.id == question.metadata.id {
        true => Ok(answer),
        false => Err("with an answer to a different query".to_owned()),
    }
}

async fn datagram(server: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let any: SocketAddr = if server.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut answer = vec![0; usize::from(u16::MAX)];
    let length = socket.recv(&mut answer).await?;
    answer.truncate(length);
    Ok(answer)
}

async fn stream(server: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).unwrap_or(u16::MAX);
    stream.write_all(&[&length.to_be_bytes()[..], question].concat()).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

fn read(message: &Message, asked: ProbeType, server: SocketAddr) -> Result<ServerAnswer, ServerError> {
    match message.metadata.response_code {
        ResponseCode::NoError => {}
        ResponseCode::NXDomain => return Err(ServerError::Absent),
        other => return Err(ServerError::Failed(other.to_string())),
    }
    let mut records: Vec<(u16, String)> =
        message.answers.iter().filter_map(|record| text(&record.data, asked)).collect();
    records.sort_by_key(|(preference, _)| *preference);
    let records: Vec<_> = records.into_iter().map(|(_, text)| text).collect();
    if records.is_empty() {
        return Err(ServerError::Absent);
    }
    let signed = message.answers.iter().find_map(|record| signed(&record.data));
    Ok(ServerAnswer { records, is_validated: message.metadata.authentic_data, signed, server })
}

/// Formats a record of the requested type, with its preference.
fn text(data: &RData, asked: ProbeType) -> Option<(u16, String)> {
    let name = |name: &Name| name.to_ascii().trim_end_matches('.').to_ascii_lowercase();
    match (asked, data) {
        (ProbeType::A, RData::A(a)) => Some((0, a.0.to_string())),
        (ProbeType::Aaaa, RData::AAAA(aaaa)) => Some((0, aaaa.0.to_string())),
        (ProbeType::Ptr, RData::PTR(pointed)) => Some((0, name(&pointed.0))),
        (ProbeType::Txt, RData::TXT(txt)) => Some((0, String::from_utf8_lossy(&txt.txt_data.concat()).into_owned())),
        (ProbeType::Mx, RData::MX(mx)) => Some((mx.preference, name(&mx.exchange))),
        (ProbeType::Soa, RData::SOA(soa)) => Some((0, name(&soa.mname))),
        (_, _) => None,
    }
}

fn signed(data: &RData) -> Option<(u32, u32)> {
    let RData::DNSSEC(DNSSECRData::RRSIG(signature)) = data else { return None };
    let input = signature.input();
    Some((input.sig_inception.get(), input.sig_expiration.get()))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use hickory_resolver::proto::rr::Record;
    use hickory_resolver::proto::rr::rdata::{A, TXT};

    use super::*;

    /// A server that gives this answer to every query, with the query's identifier.
    async fn server(answer: impl Fn(&mut Message) + Send + 'static) -> DnsProbe {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut bytes = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut bytes).await {
                let mut message = Message::from_vec(&bytes[..length]).unwrap().into_response();
                answer(&mut message);
                socket.send_to(&message.to_vec().unwrap(), peer).await.unwrap();
            }
        });
        DnsProbe::new(&[address]).unwrap()
    }

    fn record(data: RData) -> Record {
        Record::from_rdata(Name::from_ascii("a.test.").unwrap(), 60, data)
    }

    #[tokio::test]
    async fn an_answer_has_its_records_and_the_validation_flag() {
        let probe = server(|message| {
            message.metadata.authentic_data = true;
            message.add_answer(record(RData::A(A::new(192, 0, 2, 7))));
            message.add_answer(record(RData::TXT(TXT::new(vec!["not asked for".to_owned()]))));
        });
        let answer = probe.await.ask("a.test", ProbeType::A).await.unwrap();
        assert_eq!((answer.records, answer.is_validated, answer.signed), (vec!["192.0.2.7".to_owned()], true, None));
        assert_eq!(answer.server.ip(), IpAddr::from([127, 0, 0, 1]));
    }

    #[tokio::test]
    async fn a_missing_record_differs_from_a_failed_query() {
        let absent = server(|message| message.metadata.response_code = ResponseCode::NXDomain).await;
        assert_eq!(absent.ask("a.test", ProbeType::Txt).await, Err(ServerError::Absent));
        let empty = server(|_| ()).await;
        assert_eq!(empty.ask("a.test", ProbeType::Txt).await, Err(ServerError::Absent));
        let broken = server(|message| message.metadata.response_code = ResponseCode::ServFail).await;
        let Err(ServerError::Failed(why)) = broken.ask("a.test", ProbeType::Txt).await else {
            panic!("it returned records")
        };
        assert!(why.contains("127.0.0.1") && why.contains("answered"), "{why}");
    }
}
