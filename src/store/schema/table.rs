//! The names of the tables. A name is never changed, and never used again for something else.

use redb::TableDefinition;

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// A table of the store.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Table {$($(#[$doc])* $name,)*}

        impl Table {
            /// Every table.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name in the file. Never changed, never used again for something else.
            pub const fn name(self) -> &'static str {
                match self {$(Self::$name => $text,)*}
            }
        }
    };
}

tables! {
    /// Facts about the store itself: format, last identifiers.
    Meta = "meta";
    /// account → settings and quota limits.
    Accounts = "accounts";
    /// hint of the account, account → nothing: whose a return path may be.
    AccountsByHint = "accounts_by_hint";
    /// account, key → API key.
    Keys = "keys";
    /// SHA-256 of the secret → account, key.
    KeysByHash = "keys_by_hash";
    /// account, domain → sending domain with its sealed DKIM keys.
    Domains = "domains";
    /// account, name → domain.
    DomainsByName = "domains_by_name";
    /// name → account and domain: who has it verified.
    DomainOwners = "domain_owners";
    /// account, message → what was accepted; written once.
    Messages = "messages";
    /// account, message → how far its transfer is.
    Transfers = "transfers";
    /// account, last message of a block → what the block's messages may be found by.
    MessageIndex = "message_index";
    /// account, digest of the client's Message-ID, message → nothing.
    MessagesByOriginalId = "messages_by_original_id";
    /// account, message, event → the event's JSON bytes; written once, kept with the message.
    Timeline = "timeline";
    /// account, message, event → what was said in the attempt that failed: text, kept as long as the event log's event.
    Transcripts = "transcripts";
    /// account, event → type and message: the customer's event log, kept 30 days.
    EventLog = "event_log";
    /// account, type, event → message: the event log by type.
    EventLogByType = "event_log_by_type";
    /// account, endpoint → webhook endpoint.
    Endpoints = "endpoints";
    /// account, delivery → one event owed to one endpoint.
    Deliveries = "deliveries";
    /// account, endpoint, delivery → nothing: the deliveries of an endpoint.
    DeliveriesByEndpoint = "deliveries_by_endpoint";
    /// account, delivery, attempt number → one attempt.
    Attempts = "attempts";
    /// account, endpoint, event → delivery: the latest one, where the event was owed more than once.
    Redelivered = "redelivered";
    /// account, endpoint, due, delivery → nothing: what waits for a disabled endpoint.
    Parked = "parked";
    /// account, endpoint → how many of its deliveries are pending or held; account → how many were requested.
    Outstanding = "outstanding";
    /// account → its API keys that are neither revoked nor expired.
    ActiveKeys = "active_keys";
    /// account → bytes of its messages' content in segments.
    StoredContent = "stored_content";
    /// bucket, account → bytes of the account's messages' content in segments of the bucket.
    StoredContentByBucket = "stored_content_by_bucket";
    /// account, hash of the key → answer and body hash.
    Idempotency = "idempotency";
    /// expiry, account, hash of the key → nothing.
    IdempotencyByExpiry = "idempotency_by_expiry";
    /// account → use of the two quota windows.
    Quotas = "quotas";
    /// account, address in matching form → suppression.
    Suppressions = "suppressions";
    /// account, suppression → address in matching form: the list, newest last.
    SuppressionsById = "suppressions_by_id";
    /// account → its import of suppressions that is not at its end.
    SuppressionImports = "suppression_imports";
    /// relay, site → how much the relay handed over there on the last day that it did: for relays that warm up.
    WarmUps = "warm_ups";
    /// account, address in matching form, NUL, message → nothing: the messages that wait.
    Waiting = "waiting";
    /// account, site or domain → since when the account's mail for it is paused.
    Pauses = "pauses";
    /// account → since when and why it is suspended.
    Suspensions = "suspensions";
    /// account, user → somebody who signs in to the panel.
    Users = "users";
    /// address in matching form → account, user.
    UsersByEmail = "users_by_email";
    /// account, user → the identity at a provider of OpenID Connect that they sign in with.
    Identities = "identities";
    /// digest of an identity → account, user.
    UsersByIdentity = "users_by_identity";
    /// SHA-256 of the token → a signed-in browser.
    Sessions = "sessions";
    /// account, user, SHA-256 of the token → nothing: the sessions of a user.
    SessionsByUser = "sessions_by_user";
    /// account, line → what somebody changed through the panel.
    AuditLog = "audit_log";
    /// account → how many lines its audit log has.
    AuditLines = "audit_lines";
    /// digest of a receiving domain → its MTA-STS policy.
    StsPolicies = "sts_policies";
    /// day, digest of a receiving domain, kind of policy → how TLS sessions went.
    TlsReports = "tls_reports";
    /// day → how many rows it has there.
    TlsReportDays = "tls_report_days";
    /// account, hour, stream, sending domain, provider → what became of the messages accepted in that hour.
    Outcomes = "outcomes";
    /// account, domain, report → an aggregate report, or the part of one that belongs to the domain.
    DmarcReports = "dmarc_reports";
    /// account, domain, day on which a report begins, digest → nothing: the reports that were counted.
    DmarcSeen = "dmarc_seen";
    /// account, domain, day → the reporters of the day, and how much it counts.
    DmarcDays = "dmarc_days";
    /// account, domain, day, network, reporter → messages by what receivers made of them.
    DmarcCounts = "dmarc_counts";
    /// account, domain, network → when reports named it, and whether the account calls it its own.
    DmarcSources = "dmarc_sources";
    /// account, domain, digest of the name → a reporter, and whether it is ignored.
    DmarcReporters = "dmarc_reporters";
    /// account → how its bounces and complaints were judged last.
    Reputations = "reputations";
    /// account, alert → an alert; the account is zero for the service's.
    Alerts = "alerts";
    /// account, condition, subject → how far the alert of it is.
    AlertStates = "alert_states";
    /// account, alert → condition and severity of an open alert.
    OpenAlerts = "open_alerts";
    /// alert → account.
    AlertOwners = "alert_owners";
    /// notice → a mail or webhook request that is to be sent.
    Notices = "notices";
    /// address in matching form → the notices to it.
    NoticeAddresses = "notice_addresses";
    /// address in matching form → since when it may get notices.
    ProvenAddresses = "proven_addresses";
    /// account → its invitations of the last day.
    Invitations = "invitations";
    /// number → a doubt about the wall clock: when it began, and what came of it.
    ClockDoubts = "clock_doubts";
    /// due, kind, account, identifier → nothing: what is to happen when. This table is the far timer wheel.
    Timers = "timers";
}

impl Table {
    /// The definition of the table for redb.
    pub(in crate::store) const fn definition(self) -> Definition {
        TableDefinition::new(self.name())
    }
}
