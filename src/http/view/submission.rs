//! SMTP submission as JSON: how a message was submitted, the addresses of the listeners, and refused submissions.

use serde::Serialize;

use crate::base::id::{self, MessageId};
use crate::base::time::{Timestamp, iso};
use crate::engine::settings::{SMTP_USERNAME, SmtpAddress};
use crate::engine::smtp_submission::{SmtpRefusal, SubmissionStage};
use crate::http::openapi::shape::describe;
use crate::store::row::message::SmtpFacts;

/// The SMTP submission of a message.
#[derive(Serialize)]
pub(in crate::http) struct SubmissionView<'a> {
    mail_from: &'a str,
    client_name: &'a str,
    client_address: &'a str,
    tls_version: Option<&'a str>,
    key_prefix: &'a str,
    original_message_id: Option<&'a str>,
    recipients: u32,
    #[serde(serialize_with = "id::as_text")]
    first_id: MessageId,
}

impl<'a> SubmissionView<'a> {
    pub(in crate::http) fn new(facts: &'a SmtpFacts) -> Self {
        Self {
            mail_from: &facts.mail_from,
            client_name: &facts.client_name,
            client_address: &facts.client_address,
            tls_version: facts.tls_version.as_deref(),
            key_prefix: &facts.key_prefix,
            original_message_id: facts.original_message_id.as_deref(),
            recipients: facts.recipients,
            first_id: facts.first_id,
        }
    }
}

/// Addresses of SMTP submission for programs.
#[derive(Serialize)]
pub(in crate::http) struct SmtpView<'a> {
    host: &'a str,
    port: Option<u16>,
    tls_port: Option<u16>,
    username: &'static str,
}

impl<'a> SmtpView<'a> {
    pub(in crate::http) fn new(address: &'a SmtpAddress) -> Self {
        Self { host: &address.host, port: address.port, tls_port: address.tls_port, username: SMTP_USERNAME }
    }
}

/// One refusal.
#[derive(Serialize)]
pub(in crate::http) struct RefusalView<'a> {
    #[serde(serialize_with = "iso::serialize")]
    at: Timestamp,
    stage: SubmissionStage,
    reply: &'a str,
    key_prefix: &'a str,
    client_address: &'a str,
    client_name: &'a str,
    mail_from: &'a str,
    to: Option<&'a str>,
    from: Option<&'a str>,
}

impl<'a> RefusalView<'a> {
    pub(in crate::http) fn new(refusal: &'a SmtpRefusal) -> Self {
        let given = |text: &'a String| Some(text.as_str()).filter(|text| !text.is_empty());
        Self {
            at: refusal.at,
            stage: refusal.stage,
            reply: &refusal.reply,
            key_prefix: &refusal.key_prefix,
            client_address: &refusal.client_address,
            client_name: &refusal.client_name,
            mail_from: &refusal.mail_from,
            to: given(&refusal.to),
            from: given(&refusal.from),
        }
    }
}

describe! {
    SubmissionView<'_> as "Submission", "Facts about an SMTP submission."
    {
        mail_from: "The path of MAIL FROM; empty for `<>`." => |schema| schema.example("wordpress@blog.example.test"),
        client_name: "The name that the client gave in EHLO or HELO." => |schema| schema.example("blog.example.test"),
        client_address: "The client's IP address." => |schema| schema.example("192.0.2.17"),
        tls_version: "The TLS version; null without TLS." => |schema| schema.example("TLSv1.3"),
        key_prefix: "The first 16 characters of the key's secret." => |schema| schema.example("pr_live_4mZ7Qq2T"),
        original_message_id: "The client's Message-ID; null without one."
            => |schema| schema.example("<order-1001@blog.example.test>"),
        recipients: "Number of messages accepted together, including this one." => |schema| schema.example(1),
        first_id: "The first identifier of the messages that were accepted together."
            => |schema| schema.example("msg_01M7XS2DXANT70XBRCN1YAAC4B"),
    }
}

describe! {
    SmtpView<'_> as "SmtpAddress", "The SMTP submission service."
    {
        host: "The host." => |schema| schema.example("mail.example.test"),
        port: "The port for STARTTLS; null if it is not offered." => |schema| schema.example(587),
        tls_port: "The port for implicit TLS; null if it is not offered." => |schema| schema.example(465),
        username: "The user name. The password is an API key with the scope `send`."
            => |schema| schema.example(SMTP_USERNAME),
    }
}

describe! {
    RefusalView<'_> as "SubmissionRefusal", "A refusal of SMTP submission. Each text is cut at 256 bytes."
    {
        at: "Time of the answer.",
        stage: "The stage of the session.",
        reply: "The answer with its codes." => |schema| schema.example("550 5.7.1 <gone@example.org> is suppressed"),
        key_prefix: "The first 16 characters of the secret of the key that was presented."
            => |schema| schema.example("pr_live_4mZ7Qq2T"),
        client_address: "The client's IP address." => |schema| schema.example("192.0.2.17"),
        client_name: "The name given in EHLO or HELO." => |schema| schema.example("blog.example.test"),
        mail_from: "The path of MAIL FROM; empty for `<>`, and before MAIL."
            => |schema| schema.example("wordpress@blog.example.test"),
        to: "The recipient; null if the refusal does not concern a single recipient."
            => |schema| schema.example("gone@example.org"),
        from: "The From header; null if no message was read." => |schema| schema.example(()),
    }
}
