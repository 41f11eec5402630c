//! Digest of a message for idempotency: the From mailbox, the decoded Subject, and the decoded leaf parts. Date,
//! Message-ID, boundaries and transfer encodings are excluded, because clients change them on each attempt.

use mail_parser::{Message, MessageParser, PartType};
use sha2::{Digest as _, Sha256};

use crate::domain::address::Address;

/// Maximum depth of enclosed messages that are hashed in decoded form; nesting was limited before.
const DEPTH_MAX: usize = 20;

/// Returns the digest of a message.
pub(super) fn of(message: &[u8], from: &Address, subject: Option<&str>) -> [u8; 32] {
    let mut hash = Sha256::new();
    add(&mut hash, b'f', from.match_key().as_bytes());
    add(&mut hash, b's', subject.unwrap_or_default().as_bytes());
    match MessageParser::default().parse(message) {
        Some(parsed) => add_leaves(&mut hash, &parsed, DEPTH_MAX),
        None => add(&mut hash, b'b', message),
    }
    hash.finalize().into()
}

fn add_leaves(hash: &mut Sha256, message: &Message<'_>, depth: usize) {
    for part in &message.parts {
        match &part.body {
            PartType::Multipart(_) => {}
            PartType::Text(text) => add(hash, b't', plain(text).as_bytes()),
            PartType::Html(html) => add(hash, b'h', plain(html).as_bytes()),
            PartType::Binary(bytes) | PartType::InlineBinary(bytes) => add(hash, b'b', bytes),
            PartType::Message(inner) if depth > 0 => {
                add(hash, b'm', inner.subject().unwrap_or_default().as_bytes());
                add_leaves(hash, inner, depth - 1);
            }
            PartType::Message(inner) => add(hash, b'b', &inner.raw_message),
        }
    }
}

/// Removes the differences between transfer encodings: the kind of line ends, and line ends at the end.
fn plain(text: &str) -> String {
    text.replace("\r\n", "\n").trim_end_matches('\n').to_owned()
}

/// Adds a kind, a length and the bytes, so that no two sequences have the same encoding.
fn add(hash: &mut Sha256, kind: u8, bytes: &[u8]) {
    hash.update([kind]);
    hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
    hash.update(bytes);
}
