//! View of a sending domain with its keys and the records to publish (contract 2).

use serde::Serialize;

use crate::base::id::{self, DomainId};
use crate::base::time::{Timestamp, iso};
use crate::domain::sending_domain::{DkimAlgorithm, DkimState, DomainStatus, RecordPurpose, RecordStatus};
use crate::domain::stream::Stream;
use crate::engine::domains::{ExpectedRecord, RecordType, expected_records, finding_of};
use crate::engine::settings::Settings;
use crate::http::openapi::schema::Schema;
use crate::http::openapi::shape::describe;
use crate::store::row::domain::{DkimKeyRow, DomainRow};

/// A sending domain.
#[derive(Serialize)]
pub(in crate::http) struct DomainView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: DomainId,
    name: &'a str,
    stream: Stream,
    status: DomainStatus,
    #[serde(serialize_with = "iso::option::serialize")]
    verified_at: Option<Timestamp>,
    #[serde(serialize_with = "iso::option::serialize")]
    last_checked_at: Option<Timestamp>,
    #[serde(serialize_with = "iso::option::serialize")]
    next_check_at: Option<Timestamp>,
    dkim_rotation_days: u16,
    #[serde(serialize_with = "iso::option::serialize")]
    next_rotation_at: Option<Timestamp>,
    dkim: Vec<DkimView<'a>>,
    records: Vec<RecordView<'a>>,
    #[serde(serialize_with = "iso::serialize")]
    created_at: Timestamp,
}

#[derive(Serialize)]
struct DkimView<'a> {
    selector: &'a str,
    algorithm: DkimAlgorithm,
    state: DkimState,
    #[serde(serialize_with = "iso::serialize")]
    created_at: Timestamp,
}

#[derive(Serialize)]
struct RecordView<'a> {
    purpose: RecordPurpose,
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    value: String,
    required: bool,
    status: RecordStatus,
    found: &'a [String],
}

impl<'a> DomainView<'a> {
    pub(in crate::http) fn new(id: DomainId, row: &'a DomainRow, settings: &Settings) -> Self {
        let records = expected_records(row, settings);
        Self {
            id,
            name: row.name.as_str(),
            stream: row.stream,
            status: row.status,
            verified_at: row.verified_at,
            last_checked_at: row.last_checked_at,
            next_check_at: row.next_check_at,
            dkim_rotation_days: row.rotation.days,
            next_rotation_at: row.rotation.next_at,
            dkim: row.dkim.iter().map(DkimView::new).collect(),
            records: records.into_iter().map(|record| RecordView::new(record, row)).collect(),
            created_at: row.created_at,
        }
    }
}

impl<'a> DkimView<'a> {
    fn new(key: &'a DkimKeyRow) -> Self {
        Self { selector: &key.selector, algorithm: key.algorithm, state: key.state, created_at: key.created_at }
    }
}

impl<'a> RecordView<'a> {
    fn new(record: ExpectedRecord, row: &'a DomainRow) -> Self {
        let finding = finding_of(row, &record);
        Self {
            status: finding.map_or(RecordStatus::Unchecked, |finding| finding.status),
            found: finding.map_or(&[], |finding| &finding.found),
            purpose: record.purpose,
            kind: record.kind.as_str(),
            name: record.name,
            value: record.value,
            required: record.required,
        }
    }
}

describe! {
    DomainView<'_> as "Domain", "A sending domain, with its keys and the DNS records to publish."
    {
        id: "The domain's identifier.",
        name: "The domain's name, as lower-case A-labels." => |schema| schema.example("example.com"),
        stream: "The domain's stream, which is the stream of all its messages.",
        status: "Whether mail may be sent from it.",
        verified_at: "Time of the last verification." => |schema| schema.example(()),
        last_checked_at: "Time of the last DNS check." => |schema| schema.example(()),
        next_check_at: "Time of the next DNS check.",
        dkim_rotation_days: "Days between rotations of its DKIM keys; 0 without a schedule."
            => |schema| schema.example(0),
        next_rotation_at: "Time of the next rotation; null without a schedule." => |schema| schema.example(()),
        dkim: "The domain's DKIM keys.",
        records: "The DNS records to publish.",
        created_at: "Creation time.",
    }
}

describe! {
    DkimView<'_> as "DkimKey", "A DKIM key of a domain."
    {
        selector: "The key's selector." => |schema| schema.example("pr1a2b3c"),
        algorithm: "Signature algorithm.",
        state: "The key's state: pending, standby, active or retiring.",
        created_at: "Creation time.",
    }
}

describe! {
    RecordView<'_> as "DnsRecord", "A DNS record that a domain should publish, and the value found."
    {
        purpose: "The purpose of the record.",
        kind = "type": "The record's type."
            => |_| Schema::words([RecordType::Txt, RecordType::Cname].map(|kind| kind.as_str().into())),
        name: "The record's name in DNS." => |schema| schema.example("pr1a2b3c._domainkey.example.com"),
        value: "The value to publish." => |schema| schema.example("v=DKIM1; k=rsa; p=MIIBIjANBgkq…"),
        required: "Whether it is required for sending." => |schema| schema.example(true),
        status: "State of the record." => |schema| schema.example("unchecked"),
        found: "The published values, unchanged." => |schema| schema.example(serde_json::json!([])),
    }
}
