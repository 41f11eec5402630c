//! The shapes of lower floors' types that the API shows unchanged: enumerations, and the event record with its data
//! (contract 4).

use super::schema::Schema;
use super::shape::{Shape, describe, words};
use crate::domain::alert::{self, Condition, NoticeKind, Severity, SubjectKind};
use crate::domain::api_key::Scope;
use crate::domain::event::{
    AttemptFacts, Authenticated, Bounce, BounceKind, BounceSource, Complaint, EventRecord, EventType, TlsFacts,
    TlsPolicy,
};
use crate::domain::sending_domain::{DkimAlgorithm, DkimState, DomainStatus, RecordPurpose, RecordStatus};
use crate::domain::stream::Stream;
use crate::engine::messages::Via;
use crate::engine::ports::PostError;
use crate::engine::smtp_submission::SubmissionStage;
use crate::engine::submit::Answer;
use crate::engine::wait_reason::WaitReason;
use crate::machine::quota::{QuotaView, WindowView};
use crate::machine::reputation::Level;
use crate::machine::{checklist, delivery, transfer};
use crate::mail::explain::FindingLevel;
use crate::mail::read::AttachedFile;
use crate::store::row::alert::{Channel, NoticeStatus};
use crate::store::row::suppression::SuppressionReason;

words! {
    Stream as "Stream", "The stream of a sending domain and of all its messages.": Transactional Marketing;
    Via as "Via", "The submission protocol: HTTP or SMTP.": Api Smtp;
    SubmissionStage as "SubmissionStage", "A stage of an SMTP session.": Auth Mail Rcpt Data;
    Scope as "Scope",
        "A right of a key: `send` allows POST /v1/messages, `read` every GET and POST /v1/explain, `manage` the rest.":
        Send Read Manage;
    EventType as "EventType", "The type of an event.":
        Queued Deferred Delivered Bounced Failed Complained Suppressed Unsubscribed Canceled;
    transfer::Status as "MessageStatus", "The status of a message.":
        Queued Deferred Delivered Bounced Failed Suppressed Canceled Complained;
    WaitReason as "WaitReason",
        "The reason why a message waits. `backoff`: the last attempt failed, and the next one is due at `until`. \
         `throttled`: the receiving site asked to slow down, can't be reached, or accepts no more messages per \
         minute. `paused`: the account has paused mail for the site. `dns`: the mail servers of the domain are being \
         looked up, or could not be. `relay`: the relay can't be used, or has reached its daily limit. `busy`: all \
         connections are in use, or the message is being sent. `held`: the store was restored, and the operator has \
         not released its queue. `unconfirmed`: a replica has not confirmed the message yet.":
        Backoff Throttled Paused Dns Relay Busy Held Unconfirmed;
    delivery::Status as "DeliveryStatus",
        "The status of a webhook delivery. `held` waits until its endpoint is enabled; `failed` is never attempted \
         again.":
        Pending Held Delivered Failed;
    DomainStatus as "DomainStatus",
        "Whether mail may be sent from a domain; `failing` counts as verified for 72 hours.": Pending Verified Failing;
    DkimAlgorithm as "DkimAlgorithm", "A DKIM signature algorithm (RFC 6376, RFC 8463).": RsaSha256 Ed25519Sha256;
    DkimState as "DkimState",
        "Only `active` keys sign. A `standby` key is published in DNS and waits for the next rotation.":
        Pending Active Retiring Standby;
    RecordPurpose as "RecordPurpose", "The purpose of a DNS record.": Dkim ReturnPath Spf Dmarc;
    RecordStatus as "RecordStatus", "State of a DNS record.": Ok Missing Mismatch Unchecked;
    Authenticated as "TlsAuthentication", "The authentication of a mail server.": None Pkix Dane;
    TlsPolicy as "TlsPolicy", "The policy under which a connection was secured.": Opportunistic MtaSts Dane;
    BounceKind as "BounceKind", "The kind of bounce: permanent, temporary, or a block of the sender.": Hard Soft
        Block Undetermined;
    BounceSource as "BounceSource", "The source of a failure report.": Smtp Dsn Dns Local;
    Level as "ReputationLevel",
        "The level of a rate. Bounces: `warn` from 2 %, `alarm` from 5 %; complaints: from 0.1 % and 0.3 %.":
        Ok Warn Alarm;
    checklist::ItemId as "ChecklistItemId", "The subject of a checklist item.":
        Spf Dkim Dmarc Alignment DmarcReports DmarcObserved OneClick ReverseDns Tls Complaints Bounces Replies Bimi;
    checklist::Status as "ChecklistStatus",
        "The outcome of a checklist item. `unknown`: not enough data; `na`: the item does not apply.":
        Pass Warn Fail Unknown Na;
    checklist::Receiver as "BulkReceiver", "A receiver with requirements for bulk senders.": Google Yahoo Microsoft;
    FindingLevel as "FindingLevel", "Severity of a finding. `fail`: large receivers reject such mail.": Ok Warn Fail;
    Severity as "AlertSeverity", "The severity of an alert.": Info Warning Critical;
    alert::Scope as "AlertScope", "The scope of an alert.": Account System;
    SubjectKind as "AlertSubjectKind", "Kind of an alert's subject.":
        Address Relay Stream Provider Webhook Domain User;
    NoticeKind as "AlertNoticeKind", "A change of an alert, which a notice reports.":
        Opened Worse Reminder Resolved Test;
    Channel as "AlertChannel", "The channel of a notice.": Email Webhook;
    NoticeStatus as "AlertNoticeStatus",
        "The status of a notice. A notice fails after a day without success; this raises no further alert.":
        Pending Sent Failed;
    SuppressionReason as "SuppressionReason", "The reason of a suppression.":
        Bounce Complaint Unsubscribe Manual Import;
}

/// The names of conditions.
impl Shape for Condition {
    fn schema() -> Schema {
        let words = Self::ALL.iter().map(|condition| serde_json::json!(condition.as_str()));
        Schema::words(words).named("AlertCondition", "A condition that raises an alert; see the page on alerts.")
    }
}

describe! {
    EventRecord<'_> as "Event",
    "A message event, with the same bytes in lists, timelines and webhooks. Missing facts are null."
    {
        id: "The event ID.",
        kind = "type": "The type of the event." => |schema| schema.example("delivered"),
        message_id: "The message of the event.",
        message_id_header: "The Message-ID of the event's message, in angle brackets."
            => |schema| schema.example("<msg_01M7XS2DXANT70XBRCN1YAAC4B@example.test>"),
        stream: "The stream of the event's message.",
        from: "The sender, as given." => |schema| schema.example("hello@example.test"),
        to: "The recipient, as given." => |schema| schema.example("you@example.org"),
        subject: "The subject, as given." => |schema| schema.example("Hello"),
        metadata: "The metadata, as given." => |schema| schema.example(serde_json::json!({"order": "1001"})),
        created_at: "Time of recording.",
        next_attempt_at: "Time of the next attempt." => |schema| schema.example(()),
        bounce: "The meaning of a failure." => |schema| schema.example(()),
        complaint: "Facts of a complaint." => |schema| schema.example(()),
    }
    flat { facts }
}

describe! {
    Answer<'_> as "Accepted", "A message that is durable and queued."
    {
        id: "The message ID. Webhooks contain it; quote it to support.",
        message_id_header: "The message's Message-ID, in angle brackets."
            => |schema| schema.example("<msg_01M7XS2DXANT70XBRCN1YAAC4B@example.test>"),
        status: "The message's status: `queued`." => |schema| schema.example("queued"),
        stream: "The message's stream, which is the stream of its domain.",
        from: "The sender, as sent." => |schema| schema.example("hello@example.test"),
        to: "The recipient, as sent." => |schema| schema.example("you@example.org"),
        subject: "The subject, as sent." => |schema| schema.example("Hello"),
        created_at: "Time of acceptance.",
    }
}

describe! {
    AttemptFacts as "AttemptFacts", "The facts of an attempt."
    {
        attempt: "The attempt's number, from 1." => |schema| schema.example(1),
        smtp_code: "Reply code of the receiver's server." => |schema| schema.example(250),
        smtp_enhanced_code: "Enhanced code of the reply (RFC 3463)." => |schema| schema.example("2.0.0"),
        smtp_response: "The full reply as received, at most 4 KiB."
            => |schema| schema.example("250 2.0.0 Ok: queued as 4XyZ12"),
        mx_host: "The contacted mail server." => |schema| schema.example("mx1.example.org"),
        mx_ip: "IP address of the mail server." => |schema| schema.example("192.0.2.25"),
        relay: "The relay used." => |schema| schema.example("direct"),
        tls: "TLS of the connection; null without TLS.",
        duration_ms: "Duration of the attempt in milliseconds." => |schema| schema.example(312),
    }
}

describe! {
    TlsFacts as "Tls", "The transport security of an attempt."
    {
        version: "The protocol's version." => |schema| schema.example("TLSv1.3"),
        cipher: "The cipher suite by its IANA name." => |schema| schema.example("TLS_AES_256_GCM_SHA384"),
        authenticated: "The authentication of the server.",
        policy: "The policy that applied.",
    }
}

describe! {
    Bounce as "Bounce", "The meaning of a failure, and the evidence."
    {
        kind: "The kind of bounce.",
        category: "The category of the bounce." => |schema| schema.example("invalid_recipient"),
        status: "The effective enhanced status code: the server's, or ours if no server answered."
            => |schema| schema.example("5.1.1"),
        source: "The source of the report.",
        rule: "The rule that matched." => |schema| schema.example("enhanced-5.1.1"),
        advice: "Advice, in one sentence." => |schema| schema.example("Remove the address from your list."),
        suppressed: "Whether the address was suppressed because of it.",
    }
}

describe! {
    Complaint as "Complaint", "Facts of a complaint report (RFC 5965)."
    {
        feedback_type: "The report's Feedback-Type." => |schema| schema.example("abuse"),
        reporter: "The reporter." => |schema| schema.example("mx1.example.org"),
    }
}

describe! {
    AttachedFile as "AttachedFile", "A file in a message."
    {
        filename: "The file name, if there is one." => |schema| schema.example("invoice.pdf"),
        content_type: "The media type, with parameters." => |schema| schema.example("application/pdf"),
        size: "The number of bytes, decoded." => |schema| schema.example(48_213),
    }
}

describe! {
    QuotaView as "Quota", "Both windows of the account's quota."
    {
        hour: "The current UTC hour.",
        day: "The current UTC day.",
    }
}

describe! {
    WindowView as "QuotaWindow", "One window of the account's quota."
    {
        limit: "Limit of the window, in messages." => |schema| schema.example(10_000),
        used: "Messages accepted in the window." => |schema| schema.example(12),
        remaining: "Messages left in the window." => |schema| schema.example(9_988),
        reset: "End time, in seconds since the epoch." => |schema| schema.example(1_795_190_400),
    }
}

/// Returns the event types of webhook deliveries: those of the log, and the test's.
pub(in crate::http) fn delivered_type() -> Schema {
    let types = EventType::ALL.map(EventType::as_str).into_iter().chain([crate::domain::event::TEST_TYPE]);
    let says = "The type of an event in a webhook. Only tests of the endpoint send `test`.";
    Schema::words(types.map(Into::into)).named("DeliveredType", says)
}

/// Returns the reasons of a failed attempt of a webhook delivery.
pub(in crate::http) fn attempt_error() -> Schema {
    use PostError::{Blocked, Connect, Dns, Protocol, Reset, Status, Timeout, Tls};
    let _every_variant = |error: PostError| match error {
        Dns | Connect | Tls | Timeout | Reset | Protocol | Blocked | Status => (),
    };
    let errors = [Dns, Connect, Tls, Timeout, Reset, Protocol, Blocked, Status].map(PostError::as_str);
    let says = "The reason why an attempt failed: `blocked` means an address that must not be reached, `status` an \
        answer other than 2xx.";
    Schema::words(errors.map(Into::into)).named("AttemptError", says)
}

/// Returns the schema of a page of a list of `row`.
pub(super) fn page(name: &str, row: Schema) -> Schema {
    let says = "The `cursor` of the next page; null on the last.";
    let cursor = <Option<String>>::schema().says(says).example(());
    let object =
        Schema::object().member("data", Schema::array(row).says("Newest first.")).member("next_cursor", cursor);
    object.named(name, "One page of a list, newest first.")
}
