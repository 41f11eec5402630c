//! A form that can carry a file: `multipart/form-data` (RFC 7578). Parts are slices of the bounded body. Callers check
//! their content.

use bytes::Bytes;
use hyper::header::CONTENT_TYPE;

use crate::http::route::Call;

/// Maximum number of parts in a form.
const PARTS_MAX: usize = 20;
/// Maximum number of bytes in a part's header.
const HEADER_BYTES_MAX: usize = 4_096;

/// Parts of one form, by name.
pub(super) struct Upload(Vec<(String, Bytes)>);

impl Upload {
    /// Reads the form in a request's body. An unreadable form has no parts.
    pub(super) fn of(call: &Call<()>) -> Self {
        let boundary = call.header(&CONTENT_TYPE).and_then(boundary);
        Self(boundary.map_or_else(Vec::new, |boundary| parts(call.body(), boundary)))
    }

    /// Returns the bytes of a part. `None` if it is missing or empty; browsers send an empty part if no file was
    /// chosen.
    pub(super) fn bytes(&self, name: &str) -> Option<Bytes> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, bytes)| bytes.clone()).filter(|bytes| !bytes.is_empty())
    }

    /// Returns the text of a part. Empty if the part is missing or not valid text.
    pub(super) fn text(&self, name: &str) -> String {
        self.bytes(name).and_then(|bytes| String::from_utf8(bytes.into()).ok()).unwrap_or_default()
    }
}

/// Returns the boundary from a content type (RFC 2046 5.1.1).
fn boundary(content_type: &str) -> Option<&str> {
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.trim().split_once('='));
    let found = parameters.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("boundary"));
    found.map(|(_, value)| value.trim_matches('"')).filter(|boundary| (1..=70).contains(&boundary.len()))
}

fn parts(body: &Bytes, boundary: &str) -> Vec<(String, Bytes)> {
    let (first, delimiter) = (format!("--{boundary}"), format!("\r\n--{boundary}"));
    let mut parts = Vec::new();
    let Some(mut at) = find(body, first.as_bytes()).map(|at| at + first.len()) else { return parts };
    // A delimiter is followed by a line end, or by two hyphens after the last part.
    while parts.len() < PARTS_MAX && body[at..].starts_with(b"\r\n") {
        let Some(length) = find(&body[at..], delimiter.as_bytes()) else { break };
        parts.extend(part(body, at + 2, at + length));
        at += length + delimiter.len();
    }
    parts
}

/// Parses the part whose header begins at `from` and whose content ends at `to`.
fn part(body: &Bytes, from: usize, to: usize) -> Option<(String, Bytes)> {
    let part = body.get(from..to)?;
    let head = &part[..part.len().min(HEADER_BYTES_MAX)];
    let end = find(head, b"\r\n\r\n")?;
    let name = name(std::str::from_utf8(&part[..end]).ok()?)?;
    Some((name.to_owned(), body.slice(from + end + 4..to)))
}

/// Returns the name in a part's header (RFC 7578 4.2).
fn name(header: &str) -> Option<&str> {
    let line = header.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let (_, rest) = line.split_once(" name=\"")?;
    rest.split_once('"').map(|(name, _)| name)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut at = 0;
    while let Some(next) = text[at..].iter().position(|byte| *byte == first) {
        at += next;
        if text[at..].starts_with(wanted) {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Upload {
        Upload(parts(&Bytes::from(body.to_owned()), "b0"))
    }

    #[test]
    fn parts_are_found_by_name_with_unchanged_content() {
        let form = read(
            "--b0\r\nContent-Disposition: form-data; name=\"act\"\r\n\r\ncheck\r\n\
             --b0\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\nContent-Type: text/csv\r\n\r\n\
             email\r\na@b.test\r\n\r\n--b0\r\nContent-Disposition: form-data; name=\"list\"\r\n\r\n\r\n--b0--\r\n",
        );
        assert_eq!((form.text("act"), form.text("file")), ("check".to_owned(), "email\r\na@b.test\r\n".to_owned()));
        assert_eq!((form.bytes("list"), form.bytes("none")), (None, None));
    }

    #[test]
    fn an_invalid_form_has_no_parts() {
        for body in
            ["", "--b0", "--b0--", "--b0\r\n", "--b0\r\n\r\n--b0", "--b1\r\n\r\nx\r\n--b1--", "--b0\r\nx\r\n--b0--"]
        {
            assert!(read(body).0.is_empty(), "{body:?}");
        }
        let many = "--b0\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n".repeat(100);
        assert_eq!(read(&format!("{many}--b0--")).0.len(), PARTS_MAX);
    }

    #[test]
    fn a_boundary_may_be_quoted() {
        assert_eq!(boundary("multipart/form-data; boundary=\"a b\""), Some("a b"));
        assert_eq!(boundary("multipart/form-data; charset=x; BOUNDARY=abc"), Some("abc"));
        assert_eq!(boundary("multipart/form-data"), None);
        assert_eq!(boundary("multipart/form-data; boundary="), None);
    }
}
