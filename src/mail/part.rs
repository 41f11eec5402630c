//! MIME parts (RFC 2045, 2046), built with lettre from checked texts and files.
//!
//! Two steps precede lettre. Line ends become CRLF, because lettre inserts them one by one, which takes minutes for
//! megabytes of empty lines, and leaves a lone CR. The transfer encoding is chosen.

use lettre::message::header::{ContentTransferEncoding, ContentType, Header, HeaderName, HeaderValue};
use lettre::message::{Body, MultiPart, SinglePart};
use memchr::{memchr_iter, memchr2};

use super::encoded;
use crate::domain::attachment::Attachment;
use crate::domain::limits::LINE_BYTES;

/// A part or a tree of parts.
pub(super) enum Node {
    /// One body.
    Single(SinglePart),
    /// Several parts.
    Multi(MultiPart),
}

impl Node {
    /// Returns the part's header fields, the empty line, and its body.
    pub(super) fn formatted(&self) -> Vec<u8> {
        match self {
            Self::Single(part) => part.formatted(),
            Self::Multi(part) => part.formatted(),
        }
    }

    /// Appends this part to the others of `parent`.
    pub(super) fn join(self, parent: MultiPart) -> MultiPart {
        match self {
            Self::Single(part) => parent.singlepart(part),
            Self::Multi(part) => parent.multipart(part),
        }
    }
}

/// A field of a part in its final form: it is checked, encoded and folded here.
macro_rules! written_fields {
    ($($(#[$doc:meta])* $field:ident = $name:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        struct $field(String);

        impl Header for $field {
            fn name() -> HeaderName {
                HeaderName::new_from_ascii_str($name)
            }

            fn parse(text: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
                Ok(Self(text.to_owned()))
            }

            fn display(&self) -> HeaderValue {
                HeaderValue::dangerous_new_pre_encoded(Self::name(), String::new(), self.0.clone())
            }
        }
    )*};
}

written_fields! {
    /// Any media type with parameters.
    WrittenType = "Content-Type";
    /// Disposition and file name (RFC 2183).
    WrittenDisposition = "Content-Disposition";
    /// Identifier for `cid:` links (RFC 2392).
    WrittenId = "Content-ID";
}

/// Returns the plain text part of a message.
pub(super) fn text(body: &str) -> Node {
    Node::Single(SinglePart::builder().header(ContentType::TEXT_PLAIN).body(encoded_text(body)))
}

/// Returns the HTML part of a message.
pub(super) fn html(body: &str) -> Node {
    Node::Single(SinglePart::builder().header(ContentType::TEXT_HTML).body(encoded_text(body)))
}

/// Returns the part of a file; inline if it has a content ID.
pub(super) fn file(attachment: &Attachment) -> Node {
    // Always base64: lettre would use 7bit for short ASCII lines and leave their lone LFs.
    let body = Body::new_with_encoding(attachment.content.clone(), ContentTransferEncoding::Base64)
        .unwrap_or_else(|_| unreachable!("base64 can encode any bytes"));
    let disposition = if attachment.content_id.is_some() { "inline" } else { "attachment" };
    let disposition = format!("{disposition}{}", encoded::parameter("filename", &attachment.filename));
    let mut part = SinglePart::builder()
        .header(WrittenType(attachment.content_type.as_str().to_owned()))
        .header(WrittenDisposition(disposition));
    if let Some(id) = &attachment.content_id {
        part = part.header(WrittenId(format!("<{}>", id.as_str())));
    }
    Node::Single(part.body(body))
}

/// Encodes a text with the smallest safe encoding: 7bit, quoted-printable or base64.
fn encoded_text(text: &str) -> Body {
    let text = with_crlf(text);
    let escaped = text.iter().filter(|c| !matches!(c, b'\t' | b'\r' | b'\n' | b' '..=b'~')).count();
    // 7bit is allowed for ASCII without control characters in lines of limited length (RFC 2045 2.7).
    if escaped == 0 && has_short_lines(&text) {
        return Body::dangerous_pre_encoded(text, ContentTransferEncoding::SevenBit);
    }
    // Quoted-printable adds two bytes per escape, base64 a third of the size.
    let encoding = if escaped * 6 <= text.len() {
        ContentTransferEncoding::QuotedPrintable
    } else {
        ContentTransferEncoding::Base64
    };
    Body::new_with_encoding(text, encoding).unwrap_or_else(|_| unreachable!("both encodings accept any bytes"))
}

/// Returns `text` with every LF, CR and CRLF as CRLF, without the last one, which the builder adds.
fn with_crlf(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut out = Vec::with_capacity(rest.len() + rest.len() / 32);
    while let Some(end) = memchr2(b'\r', b'\n', rest) {
        out.extend_from_slice(&rest[..end]);
        out.extend_from_slice(b"\r\n");
        rest = &rest[end + if rest[end..].starts_with(b"\r\n") { 2 } else { 1 }..];
    }
    out.extend_from_slice(rest);
    if out.ends_with(b"\r\n") {
        out.truncate(out.len() - 2);
    }
    out
}

/// Returns whether no line has more than 998 bytes.
fn has_short_lines(text: &[u8]) -> bool {
    let ends = memchr_iter(b'\n', text).chain([text.len()]);
    ends.scan(0, |start, end| Some(end - std::mem::replace(start, end + 1))).all(|length| length <= LINE_BYTES)
}
