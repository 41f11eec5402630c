//! Views of an account, its keys, and `GET /v1/me` (contract 2, contract 8 `account show`).

use serde::Serialize;

use crate::base::id::{self, AccountId, KeyId};
use crate::base::time::{Timestamp, iso};
use crate::domain::account::{Account, RetentionDays};
use crate::domain::api_key::{ApiKey, Scope};
use crate::domain::limits;
use crate::domain::stream::Stream;
use crate::engine::reputation::Reputation;
use crate::engine::settings::Settings;
use crate::http::openapi::schema::Schema;
use crate::http::openapi::shape::describe;
use crate::http::view::reputation::ReputationView;
use crate::http::view::submission::SmtpView;
use crate::machine::quota::QuotaView;
use crate::machine::rate::RateView;
use crate::store::op::event::ENDPOINTS_MAX;
use crate::store::row::suspension::SuspensionRow;

/// An account as its operator sees it.
#[derive(Serialize)]
pub(in crate::http) struct AccountView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: AccountId,
    name: &'a str,
    time_zone: &'a str,
    content_retention_days: u16,
    hosted_unsubscribe: bool,
    quota: crate::domain::account::QuotaLimits,
    #[serde(serialize_with = "iso::serialize")]
    created_at: Timestamp,
    /// Omitted unless the account is suspended: contract 8 lists the members of an account.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspended: Option<SuspensionView>,
}

impl<'a> AccountView<'a> {
    pub(in crate::http) fn new(account: &'a Account, suspension: Option<SuspensionRow>) -> Self {
        Self {
            suspended: suspension.map(SuspensionView::new),
            id: account.id,
            name: account.name.as_str(),
            time_zone: account.time_zone.as_str(),
            content_retention_days: account.content_retention_days.get(),
            hosted_unsubscribe: account.hosted_unsubscribe,
            quota: account.quota,
            created_at: account.created_at,
        }
    }
}

/// The suspension of an account.
#[derive(Serialize)]
struct SuspensionView {
    reason: String,
    #[serde(serialize_with = "iso::serialize")]
    since: Timestamp,
}

impl SuspensionView {
    fn new(suspension: SuspensionRow) -> Self {
        Self { reason: suspension.reason.as_str().to_owned(), since: suspension.since }
    }
}

/// An account's settings, as its own keys see and change them.
#[derive(Serialize)]
pub(in crate::http) struct SettingsView<'a> {
    name: &'a str,
    time_zone: &'a str,
    content_retention_days: u16,
    hosted_unsubscribe: bool,
    keep_message_id: bool,
}

impl<'a> SettingsView<'a> {
    pub(in crate::http) fn new(account: &'a Account) -> Self {
        Self {
            name: account.name.as_str(),
            time_zone: account.time_zone.as_str(),
            content_retention_days: account.content_retention_days.get(),
            hosted_unsubscribe: account.hosted_unsubscribe,
            keep_message_id: account.keep_message_id,
        }
    }
}

/// An API key; its secret is only in the answer that creates it.
#[derive(Serialize)]
pub(in crate::http) struct KeyView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: KeyId,
    name: &'a str,
    prefix: &'a str,
    stream: Option<Stream>,
    scopes: Vec<Scope>,
    #[serde(serialize_with = "iso::serialize")]
    created_at: Timestamp,
    #[serde(serialize_with = "iso::option::serialize")]
    last_used_at: Option<Timestamp>,
    #[serde(serialize_with = "iso::option::serialize")]
    expires_at: Option<Timestamp>,
    #[serde(serialize_with = "iso::option::serialize")]
    revoked_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

impl<'a> KeyView<'a> {
    pub(in crate::http) fn new(key: &'a ApiKey) -> Self {
        Self {
            id: key.id,
            name: &key.name,
            prefix: &key.prefix,
            stream: key.stream,
            scopes: key.scopes.as_list(),
            created_at: key.created_at,
            last_used_at: key.last_used_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
            key: None,
        }
    }

    pub(in crate::http) fn with_secret(key: &'a ApiKey, secret: &'a str) -> Self {
        Self { key: Some(secret), ..Self::new(key) }
    }
}

/// Answer of `GET /v1/me`.
#[derive(Serialize)]
pub(in crate::http) struct MeView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: AccountId,
    name: &'a str,
    time_zone: &'a str,
    content_retention_days: u16,
    key: Option<OwnKeyView<'a>>,
    quota: QuotaView,
    rate_limit: RateLimitView,
    storage: StorageView,
    reputation: ReputationView,
    limits: LimitsView,
    smtp: Option<SmtpView<'a>>,
    suspended: Option<SuspensionView>,
    version: &'static str,
}

/// The account's stored message content.
#[derive(Serialize)]
pub(in crate::http) struct StorageView {
    used_bytes: u64,
    limit_bytes: Option<u64>,
}

impl StorageView {
    /// Creates the view of `used_bytes` under a limit; 0 means no limit.
    pub(in crate::http) fn new(used_bytes: u64, limit_bytes: u64) -> Self {
        Self { used_bytes, limit_bytes: Some(limit_bytes).filter(|limit| *limit > 0) }
    }
}

/// The key of the request; null for the operator.
#[derive(Serialize)]
struct OwnKeyView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: KeyId,
    name: &'a str,
    prefix: &'a str,
    stream: Option<Stream>,
    scopes: Vec<Scope>,
}

/// The key's request rate.
#[derive(Serialize)]
struct RateLimitView {
    limit: u32,
    remaining: u32,
    /// Seconds since the epoch.
    reset: u64,
}

/// Limits that matter to a client before it sends.
#[derive(Serialize)]
struct LimitsView {
    request_bytes: usize,
    message_bytes: usize,
    body_bytes: usize,
    subject_characters: usize,
    headers: usize,
    attachments: usize,
    metadata_pairs: usize,
    queue_lifetime_seconds: u64,
    webhooks: usize,
}

impl<'a> MeView<'a> {
    #[expect(clippy::too_many_arguments, reason = "the record joins everything that is known of an account")]
    pub(in crate::http) fn new(
        account: &'a Account,
        suspension: Option<SuspensionRow>,
        key: Option<&'a ApiKey>,
        quota: QuotaView,
        rate: RateView,
        storage: StorageView,
        reputation: &Reputation,
        now: Timestamp,
        settings: &'a Settings,
        request_bytes: usize,
    ) -> Self {
        let key = key.map(|key| OwnKeyView {
            id: key.id,
            name: &key.name,
            prefix: &key.prefix,
            stream: key.stream,
            scopes: key.scopes.as_list(),
        });
        Self {
            id: account.id,
            name: account.name.as_str(),
            time_zone: account.time_zone.as_str(),
            content_retention_days: account.content_retention_days.get(),
            key,
            quota,
            rate_limit: RateLimitView {
                limit: rate.limit,
                remaining: rate.remaining,
                reset: now.as_millis().div_ceil(1000) + rate.reset_secs,
            },
            storage,
            reputation: ReputationView::new(reputation),
            limits: LimitsView {
                request_bytes,
                message_bytes: limits::MESSAGE_BYTES,
                body_bytes: limits::BODY_BYTES,
                subject_characters: limits::SUBJECT_CHARACTERS,
                headers: limits::HEADERS_COUNT,
                attachments: limits::ATTACHMENTS_COUNT,
                metadata_pairs: limits::METADATA_COUNT,
                queue_lifetime_seconds: settings.queue_lifetime.as_secs(),
                webhooks: ENDPOINTS_MAX,
            },
            smtp: settings.smtp.get().map(SmtpView::new),
            suspended: suspension.map(SuspensionView::new),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

describe! {
    SettingsView<'_> as "Settings", "The account's settings."
    {
        name: "The account's name." => |schema| schema.example("Example Ltd"),
        time_zone: "The IANA zone in which the panel shows times." => |schema| schema.example("Europe/Vienna"),
        content_retention_days: "Days for which a new message's content is kept."
            => |schema| schema.within(1, RetentionDays::MAX.into()).example(30),
        hosted_unsubscribe: "Whether the list headers name a hosted link instead of the message's `unsubscribe_url`."
            => |schema| schema.example(false),
        keep_message_id: "Whether messages submitted by SMTP keep a valid Message-ID."
            => |schema| schema.example(false),
    }
}

describe! {
    KeyView<'_> as "ApiKey", "An API key. Revoked keys stay listed."
    {
        id: "The key's identifier.",
        name: "The name given by its owner." => |schema| schema.example("web shop"),
        prefix: "The first 16 characters of its secret."
            => |schema| schema.pattern("^pr_live_[0-9A-Za-z]{8}$").example("pr_live_4mZ7Qq2T"),
        stream: "The only stream that it may use; null if it is not limited." => |schema| schema.example(()),
        scopes: "The key's scopes.",
        created_at: "Creation time.",
        last_used_at: "Time of the last use, to within 60 seconds.",
        expires_at: "Expiry time." => |schema| schema.example(()),
        revoked_at: "Revocation time." => |schema| schema.example(()),
    }
    whole "NewApiKey", "A new API key with its secret, which is shown only once."
    {
        key: "The secret."
            => |_| Schema::string()
                .pattern("^pr_live_[0-9A-Za-z]{43}$")
                .example("pr_live_4mZ7Qq2TbXc0Vn5sLk9JhGf3DdSa8PoIuYtReWqMxNz"),
    }
}

describe! {
    MeView<'_> as "Me", "The account, the key of this request, and their remaining limits."
    {
        id: "The account's identifier.",
        name: "The account's name." => |schema| schema.example("Example Ltd"),
        time_zone: "The IANA zone in which the panel shows times." => |schema| schema.example("Europe/Vienna"),
        content_retention_days: "Days for which a new message's content is kept." => |schema| schema.example(30),
        key: "The key of the request.",
        quota: "The account's quota, which all of its keys share.",
        rate_limit: "The key's request rate.",
        storage: "The account's stored message content.",
        reputation: "The account's bounce and complaint rates, compared with receivers' limits.",
        limits: "Limits and features of the service.",
        smtp: "The SMTP submission service; null if it is not configured.",
        suspended: "The operator's suspension; null unless the account is suspended." => |schema| schema.example(()),
        version: "The service's version." => |schema| schema.example(env!("CARGO_PKG_VERSION")),
    }
}

describe! {
    SuspensionView as "Suspension", "The reason and time of the account's suspension."
    {
        reason: "The operator's reason." => |schema| schema.example("unpaid invoices"),
        since: "Time of the suspension.",
    }
}

describe! {
    OwnKeyView<'_> as "OwnKey", "The key of the request."
    {
        id: "The key's identifier.",
        name: "The name given by its owner." => |schema| schema.example("web shop"),
        prefix: "The first 16 characters of its secret." => |schema| schema.example("pr_live_4mZ7Qq2T"),
        stream: "The only stream that it may use; null if it is not limited." => |schema| schema.example(()),
        scopes: "The key's scopes.",
    }
}

describe! {
    RateLimitView as "RateLimit", "The request rate of a key, in any 60 seconds."
    {
        limit: "Limit of requests in 60 seconds." => |schema| schema.example(600),
        remaining: "Requests left." => |schema| schema.example(599),
        reset: "Time at which one more request is available, in seconds since the epoch." =>
            |schema| schema.example(1_795_187_105),
    }
}

describe! {
    StorageView as "Storage", "The account's stored message content, until its retention ends."
    {
        used_bytes: "Bytes stored on disk, compressed." => |schema| schema.example(48_213_004),
        limit_bytes: "Maximum bytes stored; null without a limit." => |schema| schema.example(()),
    }
}

describe! {
    LimitsView as "Limits", "Configured limits of this service."
    {
        request_bytes: "Maximum bytes of a `POST /v1/messages` body." => |schema| schema.example(26_214_400),
        message_bytes: "Maximum bytes of an assembled message." => |schema| schema.example(limits::MESSAGE_BYTES),
        body_bytes: "Maximum bytes of `text`, and of `html`." => |schema| schema.example(limits::BODY_BYTES),
        subject_characters: "Maximum characters of a subject." => |schema| schema.example(limits::SUBJECT_CHARACTERS),
        headers: "Maximum number of custom headers per message." => |schema| schema.example(limits::HEADERS_COUNT),
        attachments: "Maximum number of attachments per message." => |schema| schema.example(limits::ATTACHMENTS_COUNT),
        metadata_pairs: "Maximum number of metadata pairs." => |schema| schema.example(limits::METADATA_COUNT),
        queue_lifetime_seconds: "Time for which delivery is attempted, in seconds." => |schema| schema.example(172_800),
        webhooks: "Maximum number of webhook endpoints." => |schema| schema.example(ENDPOINTS_MAX),
    }
}
