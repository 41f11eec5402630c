//! Floor 3: messages as bytes. It composes, rewrites (RFC 5322, RFC 2045) and signs (RFC 6376) them. It has no sockets,
//! clock or storage: the output depends only on the input.

mod authentication_results;
pub mod compose;
mod content_type;
pub mod decoded;
pub mod dkim;
pub mod dkim_key;
pub mod dkim_verify;
pub mod dmarc;
mod encoded;
pub mod explain;
pub mod feedback;
mod field;
mod links;
mod mailbox;
pub mod notice;
mod order;
mod part;
pub mod raw;
pub mod read;
mod relaxed;
pub mod report;
mod section;
mod structure;
pub mod submitted;
pub mod tls_report;

#[cfg(test)]
mod tests;
