//! A captured message, decoded for tests of `dev` users: all header fields, the texts, the files with their content,
//! and the links in it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mail_parser::{MessageParser, MimeHeaders as _, PartType};
use serde::Serialize;

use super::links::links;
use super::read::{self, ListFields};
use super::section;

/// The decoded content of a message.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Decoded {
    /// The plain text.
    pub text: Option<String>,
    /// The HTML.
    pub html: Option<String>,
    /// All fields by name and decoded value, in the order of the message.
    pub headers: Vec<(String, String)>,
    /// The files.
    pub attachments: Vec<DecodedFile>,
    /// The URLs of the HTML, then those of the text, without duplicates.
    pub links: Vec<String>,
}

/// A file in a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DecodedFile {
    /// File name, if the part has one.
    pub filename: Option<String>,
    /// Media type without parameters.
    pub content_type: String,
    /// Content-ID without angle brackets, if the part has one.
    pub content_id: Option<String>,
    /// Size of the decoded content in bytes.
    pub size: usize,
    /// The decoded content in base64.
    pub content: String,
}

/// Decodes `message`. Unreadable parts are skipped.
pub fn decoded(message: &[u8]) -> Decoded {
    let (fields, _) = section::split(message);
    let named = fields.iter().filter(|field| field.value.is_some());
    let headers = named.map(|field| (String::from_utf8_lossy(field.name).into_owned(), read::decoded(field))).collect();
    let read::ReadParts { text, html, .. } = read::parts_of(message, ListFields::Callers);
    let links = links(html.as_deref().unwrap_or_default(), text.as_deref().unwrap_or_default());
    Decoded { text, html, headers, attachments: files(message), links }
}

fn files(message: &[u8]) -> Vec<DecodedFile> {
    let Some(parsed) = MessageParser::default().parse(message) else { return Vec::new() };
    let bodies = read::BodyParts::of(&parsed);
    let parts = parsed.parts.iter().enumerate();
    let files = parts.filter(|(place, part)| !matches!(part.body, PartType::Multipart(_)) && !bodies.has(*place, part));
    files
        .map(|(_, part)| {
            let bytes = match &part.body {
                PartType::Message(inner) => inner.raw_message(),
                _ => part.contents(),
            };
            let kind = part.content_type();
            DecodedFile {
                filename: part.attachment_name().map(str::to_owned),
                content_type: kind.map_or_else(
                    || "text/plain".to_owned(),
                    |kind| format!("{}/{}", kind.ctype(), kind.subtype().unwrap_or_default()).to_ascii_lowercase(),
                ),
                content_id: part.content_id().map(str::to_owned),
                size: bytes.len(),
                content: STANDARD.encode(bytes),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_fields_texts_files_and_links() {
        let message = "From: =?UTF-8?Q?Gr=C3=BC=C3=9Fe?= <a@example.test>\r\nSubject: Hi\r\nX-Twice: 1\r\nX-Twice: 2\r\n\
            MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n\
            --b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nSee https://example.test/t.\r\n\
            --b\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<a href=\"https://example.test/h\">go</a>\r\n\
            --b\r\nContent-Type: image/png; name=\"a.png\"\r\nContent-Disposition: attachment; filename=\"a.png\"\r\n\
            Content-ID: <logo@example.test>\r\nContent-Transfer-Encoding: base64\r\n\r\nAAEC\r\n--b--\r\n";
        let decoded = decoded(message.as_bytes());
        let values = |name: &str| {
            let fields = decoded.headers.iter().filter(|(known, _)| known == name);
            fields.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(values("From"), ["Grüße <a@example.test>"]);
        assert_eq!(values("X-Twice"), ["1", "2"]);
        assert_eq!(decoded.links, ["https://example.test/h", "https://example.test/t"]);
        let [file] = decoded.attachments.as_slice() else { panic!("{:?}", decoded.attachments) };
        assert_eq!((file.filename.as_deref(), file.content_type.as_str()), (Some("a.png"), "image/png"));
        assert_eq!((file.content_id.as_deref(), file.size), (Some("logo@example.test"), 3));
        assert_eq!(file.content, "AAEC");
    }
}
