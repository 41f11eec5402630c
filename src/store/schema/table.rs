//! Names of the tables. A name is never changed and never reused.

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

            /// Returns the name in the file, which is never changed and never reused.
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
    /// hint of the account, account → nothing: finds the accounts to which a return path may belong.
    AccountsByHint = "accounts_by_hint";
    /// account, key → API key.
    Keys = "keys";
    /// SHA-256 of the secret → account, key.
    KeysByHash = "keys_by_hash";
    /// account, domain → sending domain with its sealed DKIM keys.
    Domains = "domains";
    /// account, name → domain.
    DomainsByName = "domains_by_name";
    /// name → account and domain that have it verified.
    DomainOwners = "domain_owners";
    /// account, message → accepted message; written once.
    Messages = "messages";
    /// account, message → state of its transfer.
    Transfers = "transfers";
    /// account, last message of a block → search terms of the block's messages.
    MessageIndex = "message_index";
    /// account, digest of the client's Message-ID, message → nothing.
    MessagesByOriginalId = "messages_by_original_id";
    /// account, message, event → the event's JSON bytes; written once, kept with the message.
    Timeline = "timeline";
    /// account, message, event → transcript of the failed attempt: text, kept as long as the event log's event.
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
    /// account, endpoint, event → latest delivery, if the event was delivered again.
    Redelivered = "redelivered";
    /// account, endpoint, due, delivery → nothing: deliveries parked for a disabled endpoint.
    Parked = "parked";
    /// account, endpoint → number of its deliveries that are pending or held; account → number of requested ones.
    Outstanding = "outstanding";
    /// account → its API keys that are not revoked and not expired.
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
    /// account → number of its suppressions.
    SuppressionCounts = "suppression_counts";
    /// account → its unfinished import of suppressions.
    SuppressionImports = "suppression_imports";
    /// relay, site → number of messages sent on the latest day with any, for relays in warm-up.
    WarmUps = "warm_ups";
    /// account, address in matching form, NUL, message → nothing: the queued messages.
    Waiting = "waiting";
    /// account, site or domain → start of the pause of the account's mail for it.
    Pauses = "pauses";
    /// account → start and reason of its suspension.
    Suspensions = "suspensions";
    /// account, user → panel user.
    Users = "users";
    /// address in matching form → account, user.
    UsersByEmail = "users_by_email";
    /// account, user → OpenID Connect identity for signing in.
    Identities = "identities";
    /// digest of an identity → account, user.
    UsersByIdentity = "users_by_identity";
    /// SHA-256 of the token → browser session.
    Sessions = "sessions";
    /// account, user, SHA-256 of the token → nothing: the sessions of a user.
    SessionsByUser = "sessions_by_user";
    /// account, line → change made through the panel.
    AuditLog = "audit_log";
    /// account → number of lines in its audit log.
    AuditLines = "audit_lines";
    /// digest of a receiving domain → its MTA-STS policy.
    StsPolicies = "sts_policies";
    /// day, digest of a receiving domain, kind of policy → results of TLS sessions.
    TlsReports = "tls_reports";
    /// day → number of the day's rows in [`Self::TlsReports`].
    TlsReportDays = "tls_report_days";
    /// account, hour, stream, sending domain, provider → outcomes of the messages accepted in that hour.
    Outcomes = "outcomes";
    /// account, domain, report → an aggregate report, or the part of one for the domain.
    DmarcReports = "dmarc_reports";
    /// account, domain, day on which a report begins, digest → nothing: the counted reports.
    DmarcSeen = "dmarc_seen";
    /// account, domain, day → reporters of the day, and its totals.
    DmarcDays = "dmarc_days";
    /// account, domain, day, network, reporter → messages by the receivers' results.
    DmarcCounts = "dmarc_counts";
    /// account, domain, network → days on which reports named it, and whether the account has confirmed it as its own.
    DmarcSources = "dmarc_sources";
    /// account, domain, digest of the name → a reporter, and whether it is ignored.
    DmarcReporters = "dmarc_reporters";
    /// account → last evaluation of its bounces and complaints.
    Reputations = "reputations";
    /// account, alert → alert; the account is zero for alerts of the service.
    Alerts = "alerts";
    /// account, condition, subject → state of its alert.
    AlertStates = "alert_states";
    /// account, alert → condition and severity of an open alert.
    OpenAlerts = "open_alerts";
    /// alert → account.
    AlertOwners = "alert_owners";
    /// notice → mail or webhook request to send.
    Notices = "notices";
    /// address in matching form → the notices to it.
    NoticeAddresses = "notice_addresses";
    /// address in matching form → time from which it may get notices.
    ProvenAddresses = "proven_addresses";
    /// account → its invitations of the last day.
    Invitations = "invitations";
    /// number → doubt about the wall clock: its beginning and its result.
    ClockDoubts = "clock_doubts";
    /// due, kind, account, identifier → nothing: the timers. Later timers are only here; the next ones are also in the
    /// timer cache.
    Timers = "timers";
    /// account, domain, first day → sums of the rows of [`Self::DmarcCounts`] of some days, which save reading them.
    DmarcSums = "dmarc_sums";
    /// account, user → the user's saved searches.
    SavedSearches = "saved_searches";
    /// account, domain, network → whether the account has confirmed the source as its own: the few marked rows of
    /// [`Self::DmarcSources`].
    DmarcMarks = "dmarc_marks";
}

impl Table {
    /// Returns the definition of the table for redb.
    pub(in crate::store) const fn definition(self) -> Definition {
        TableDefinition::new(self.name())
    }
}
