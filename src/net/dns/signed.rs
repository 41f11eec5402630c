//! Test server on loopback with signed and unsigned zones. Signatures are made for each answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use hickory_resolver::proto::dnssec::crypto::EcdsaSigningKey;
use hickory_resolver::proto::dnssec::rdata::{DNSKEY, DNSSECRData, NSEC, RRSIG, SigInput};
use hickory_resolver::proto::dnssec::{Algorithm, DigestType, SigningKey, TBS};
use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::{DNSClass, LowerName, Name, RData, Record, RecordSet, RecordType, RrKey};
use hickory_resolver::proto::serialize::txt::Parser;
use tokio::net::UdpSocket;

const HEAD: &str = "@ 300 SOA ns hostmaster 1 3600 600 86400 60\n@ 300 NS ns\nns 300 A 127.0.0.1\n";

/// The signing key of a zone.
pub(super) struct ZoneKey {
    zone: Name,
    key: EcdsaSigningKey,
    public: DNSKEY,
    /// Age of the signatures, in seconds.
    age: u32,
}

impl ZoneKey {
    pub(super) fn new(zone: &str) -> Self {
        let algorithm = Algorithm::ECDSAP256SHA256;
        let der = EcdsaSigningKey::generate_pkcs8(algorithm).unwrap();
        let key = EcdsaSigningKey::from_pkcs8(&der, algorithm).unwrap();
        let public = DNSKEY::from_key(&key.to_public_key().unwrap());
        Self { zone: Name::from_ascii(zone).unwrap(), key, public, age: 0 }
    }

    /// Creates a key whose signatures expired an hour ago.
    pub(super) fn out_of_time(zone: &str) -> Self {
        Self { age: 3600 + 1800, ..Self::new(zone) }
    }

    /// Returns the DNSKEY record as a line of a trust anchor file.
    pub(super) fn key_record(&self) -> String {
        format!("{} 300 IN DNSKEY {}\n", self.zone, self.public)
    }

    /// Returns the DS record as a line of a trust anchor file.
    pub(super) fn digest_record(&self) -> String {
        let digest = self.public.to_digest(&self.zone, DigestType::SHA256).unwrap();
        let tag = self.public.calculate_key_tag().unwrap();
        format!("{} 300 IN DS {tag} 13 2 {}\n", self.zone, hex::encode(digest.as_ref()))
    }

    /// Signs `set`, valid for an hour around now, shifted back by the key's age.
    fn sign(&self, set: &RecordSet) -> Record {
        let now = u32::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap() - self.age;
        let input = SigInput {
            type_covered: set.record_type(),
            algorithm: Algorithm::ECDSAP256SHA256,
            num_labels: set.name().num_labels(),
            original_ttl: set.ttl(),
            sig_expiration: (now + 1800).into(),
            sig_inception: (now - 1800).into(),
            key_tag: self.public.calculate_key_tag().unwrap(),
            signer_name: self.zone.clone(),
        };
        let tbs = TBS::from_input(set.name(), DNSClass::IN, &input, set.records_without_rrsigs()).unwrap();
        let signature = RRSIG::from_sig(input, self.key.sign(&tbs).unwrap());
        Record::from_rdata(set.name().clone(), set.ttl(), RData::DNSSEC(DNSSECRData::RRSIG(signature)))
    }
}

/// A zone; signed if it has a key.
pub(super) struct SignedZone {
    origin: Name,
    sets: BTreeMap<RrKey, RecordSet>,
    key: Option<Arc<ZoneKey>>,
}

impl SignedZone {
    pub(super) fn new(origin: &str, records: &str, key: Option<Arc<ZoneKey>>) -> Self {
        let text = format!("$ORIGIN {origin}\n$TTL 300\n{HEAD}{records}");
        let (origin, mut sets) = Parser::new(text, None, Some(Name::from_ascii(origin).unwrap())).parse().unwrap();
        if let Some(key) = &key {
            let mut set = RecordSet::with_ttl(origin.clone(), RecordType::DNSKEY, 300);
            set.add_rdata(RData::DNSSEC(DNSSECRData::DNSKEY(key.public.clone())));
            sets.insert(RrKey::new(LowerName::new(&origin), RecordType::DNSKEY), set);
        }
        Self { origin, sets, key }
    }

    fn set(&self, name: &Name, kind: RecordType) -> Option<&RecordSet> {
        self.sets.get(&RrKey::new(LowerName::new(name), kind))
    }

    fn signed(&self, set: &RecordSet) -> Vec<Record> {
        let records = set.records_without_rrsigs().cloned();
        records.chain(self.key.as_ref().map(|key| key.sign(set))).collect()
    }

    fn answer(&self, query: &Query, answer: &mut Message) {
        let mut name = query.name().clone();
        while let Some(alias) = self.set(&name, RecordType::CNAME) {
            answer.add_answers(self.signed(alias));
            let Some(RData::CNAME(target)) = alias.records_without_rrsigs().next().map(|record| &record.data) else {
                return;
            };
            name = target.0.clone();
        }
        match self.set(&name, query.query_type()) {
            Some(set) => drop(answer.add_answers(self.signed(set))),
            None => self.deny(&name, answer),
        }
    }

    /// Adds the SOA and a minimal NSEC: it denies one type of a name, or every name but the apex.
    fn deny(&self, name: &Name, answer: &mut Message) {
        let soa = self.set(&self.origin, RecordType::SOA).unwrap();
        answer.add_authorities(self.signed(soa));
        let kinds: Vec<_> = self.sets.values().filter(|set| set.name() == name).map(RecordSet::record_type).collect();
        let (owner, next) = if kinds.is_empty() {
            answer.metadata.response_code = ResponseCode::NXDomain;
            (self.origin.clone(), self.origin.clone())
        } else {
            (name.clone(), name.prepend_label("0").unwrap())
        };
        if self.key.is_some() {
            let nsec = NSEC::new_cover_self(next, kinds);
            let mut set = RecordSet::with_ttl(owner, RecordType::NSEC, 60);
            set.add_rdata(RData::DNSSEC(DNSSECRData::NSEC(nsec)));
            answer.add_authorities(self.signed(&set));
        }
    }
}

/// Serves `zones` over UDP on the test's runtime, until the runtime ends.
pub(super) async fn serve(zones: Vec<SignedZone>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            socket.send_to(&answer(&zones, &buffer[..length]), peer).await.unwrap();
        }
    });
    address
}

fn answer(zones: &[SignedZone], question: &[u8]) -> Vec<u8> {
    let question = Message::from_vec(question).unwrap();
    let query = question.queries.first().unwrap().clone();
    let mut answer = Message::new(question.metadata.id, MessageType::Response, OpCode::Query);
    answer.metadata.recursion_available = true;
    // Of a delegation, the parent zone holds only the DS records (RFC 4035 3.1.4.1).
    let holds = |zone: &&SignedZone| {
        zone.origin.zone_of(query.name()) && (query.query_type() != RecordType::DS || zone.origin != *query.name())
    };
    match zones.iter().filter(holds).max_by_key(|zone| zone.origin.num_labels()) {
        Some(zone) => zone.answer(&query, &mut answer),
        None => answer.metadata.response_code = ResponseCode::NXDomain,
    }
    answer.add_query(query);
    answer.to_vec().unwrap()
}
