//! Keys of the index of messages by the client's Message-ID over SMTP.

#[cfg(doc)]
use super::Table;
use super::owned;
use crate::base::id::{AccountId, MessageId};
use crate::base::signature::hmac_sha256;

/// Prefix of the keys of [`Table::MessagesByOriginalId`] for one Message-ID of a client.
pub fn messages_by_original_id(account: AccountId, original: &str) -> [u8; 32] {
    // Users and some clients omit the angle brackets.
    let bare = original.trim().trim_start_matches('<').trim_end_matches('>');
    let digest = hmac_sha256(b"original message id", &[bare.as_bytes()]);
    owned(account, &digest.first_chunk().copied().unwrap_or_default())
}

/// Key of [`Table::MessagesByOriginalId`].
pub fn message_by_original_id(account: AccountId, original: &str, message: MessageId) -> [u8; 48] {
    let mut key = [0; 48];
    key[..32].copy_from_slice(&messages_by_original_id(account, original));
    key[32..].copy_from_slice(message.as_bytes());
    key
}
