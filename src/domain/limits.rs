//! Limits on callers' input. The last word of a name is the unit, and the comment names the source of the rule.

/// Length of a mailbox address in bytes (RFC 5321 4.5.3.1.3, without the angle brackets; contract 3).
pub const ADDRESS_BYTES: usize = 254;
/// Bytes of a local part (RFC 5321 4.5.3.1.1).
pub const LOCAL_PART_BYTES: usize = 64;
/// Characters of `from_name` (contract 3).
pub const FROM_NAME_CHARACTERS: usize = 255;
/// Characters of `subject` (contract 3).
pub const SUBJECT_CHARACTERS: usize = 998;
/// Bytes of `text`, and of `html` (contract 3): 5 MiB.
pub const BODY_BYTES: usize = 5 << 20;
/// Number of custom headers of one message (contract 3).
pub const HEADERS_COUNT: usize = 50;
/// Characters of a custom header's name (contract 3).
pub const HEADER_NAME_CHARACTERS: usize = 76;
/// Characters of a custom header's value (contract 3).
pub const HEADER_VALUE_CHARACTERS: usize = 998;
/// Bytes of all custom headers' names and values together (contract 3): 16 KiB.
pub const HEADERS_BYTES: usize = 16 << 10;
/// Characters of `unsubscribe_url` (contract 3).
pub const UNSUBSCRIBE_URL_CHARACTERS: usize = 2048;
/// Number of attachments of one message (contract 3).
pub const ATTACHMENTS_COUNT: usize = 20;
/// Characters of an attachment's file name: the limit of common file systems.
pub const FILENAME_CHARACTERS: usize = 255;
/// Characters of an attachment's content type: type and subtype (RFC 6838 4.2: 127 each) and space for parameters.
pub const CONTENT_TYPE_CHARACTERS: usize = 512;
/// Characters of an attachment's content ID: it must fit on one unfolded header line (RFC 5322 2.1.1).
pub const CONTENT_ID_CHARACTERS: usize = 255;
/// Number of pairs in `metadata` (contract 3).
pub const METADATA_COUNT: usize = 10;
/// Characters of a metadata key (contract 3).
pub const METADATA_KEY_CHARACTERS: usize = 40;
/// Characters of a metadata value (contract 3).
pub const METADATA_VALUE_CHARACTERS: usize = 500;
/// Minimum distance of `expires_at` from now (contract 3).
pub const EXPIRES_AHEAD_SECONDS: u64 = 60;

/// Number of active API keys of one account: not revoked and not expired.
pub const ACTIVE_KEYS_COUNT: usize = 100;
/// Number of revoked or expired API keys of one account that stay listed: the newest ones.
pub const INACTIVE_KEYS_COUNT: usize = 1_000;
/// Number of lines in the audit log of one account: the newest ones.
pub const AUDIT_LINES_COUNT: u64 = 100_000;
/// Number of sending domains of one account.
pub const DOMAINS_COUNT: usize = 100;
/// Days between scheduled rotations of a domain's DKIM keys.
pub const ROTATION_DAYS: std::ops::RangeInclusive<u16> = 30..=730;
/// Number of panel users of one account.
pub const USERS_COUNT: usize = 50;
/// Number of suppressions of one account. Only bounces, complaints and unsubscriptions may exceed it.
pub const SUPPRESSIONS_COUNT: u64 = 1_000_000;
/// Number of pending and held deliveries of one endpoint. Only new events may exceed it.
pub const OUTSTANDING_DELIVERIES_COUNT: u64 = 100_000;

/// Bytes of an assembled message (contract 3): 20 MiB.
pub const MESSAGE_BYTES: usize = 20 << 20;
/// Bytes of a line without its CRLF (RFC 5322 2.1.1).
pub const LINE_BYTES: usize = 998;
/// Bytes of the header section of `raw` (contract 3): 64 KiB.
pub const RAW_HEADER_SECTION_BYTES: usize = 64 << 10;
/// Depth of nested multiparts in `raw` (contract 3).
pub const MIME_DEPTH_COUNT: usize = 20;
/// Number of MIME parts of a message that a client composed. Each costs memory whenever the message is read.
pub const MIME_PARTS_COUNT: usize = 10_000;
/// Number of parameters in one field of a MIME part of such a message. Readers need a time that grows with its square.
pub const MIME_PARAMETERS_COUNT: usize = 100;
/// Number of trace headers above which a message counts as looping (RFC 5321 6.3 asks for a generous number).
pub const RECEIVED_HEADERS_COUNT: usize = 50;
