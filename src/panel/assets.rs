//! The style sheets, the script and the icon, embedded in the program. File names carry a hash of the content, so
//! browsers can cache them forever and still load a new version at once.

use std::io::Read as _;
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::GzEncoder;
use hyper::StatusCode;
use hyper::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, VARY};
use sha2::{Digest as _, Sha256};

use super::page_error::PageError;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;

/// An embedded file and its URL path.
#[derive(Debug)]
pub(super) struct Asset {
    /// URL path, including the hash.
    pub(super) path: String,
    content_type: &'static str,
    bytes: Bytes,
    /// The same in gzip. Unlike pages, these files hold no secrets that their compressed size could betray.
    compressed: Bytes,
}

/// All embedded files.
#[derive(Debug)]
pub(super) struct Assets {
    /// Style sheet of every page.
    pub(super) style: Asset,
    /// Additional style sheet of the documentation.
    pub(super) docs_style: Asset,
    /// The script. Pages work without it.
    pub(super) script: Asset,
    /// The favicon.
    pub(super) icon: Asset,
}

static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
    style: Asset::new("panel", "css", "text/css; charset=utf-8", squeezed(include_str!("../../data/assets/panel.css"))),
    docs_style: Asset::new("docs", "css", "text/css; charset=utf-8", include_str!("../../data/assets/docs.css")),
    script: Asset::new(
        "panel",
        "js",
        "text/javascript; charset=utf-8",
        uncommented(include_str!("../../data/assets/panel.js")),
    ),
    icon: Asset::new("icon", "svg", "image/svg+xml", include_str!("../../data/assets/icon.svg")),
});

impl Asset {
    fn new(stem: &str, extension: &str, content_type: &'static str, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let hash = hex::encode(&Sha256::digest(&bytes)[..8]);
        let mut compressed = Vec::new();
        // Reading from memory does not fail.
        drop(GzEncoder::new(&bytes[..], Compression::best()).read_to_end(&mut compressed));
        let path = format!("/assets/{stem}-{hash}.{extension}");
        Self { path, content_type, bytes, compressed: compressed.into() }
    }
}

/// Minifies a style sheet: removes comments on lines of their own, line ends, and blanks around punctuation.
fn squeezed(style: &str) -> String {
    let lines = style.lines().map(str::trim).filter(|line| !line.starts_with("/*"));
    let signs = [
        (": ", ":"),
        ("; ", ";"),
        (", ", ","),
        (" {", "{"),
        ("{ ", "{"),
        (" }", "}"),
        (";}", "}"),
        (" > ", ">"),
        (" + ", "+"),
        (" ~ ", "~"),
        ("(> ", "(>"),
        (" / ", "/"),
    ];
    signs.iter().fold(lines.collect::<String>(), |style, (wide, narrow)| style.replace(wide, narrow))
}

/// Minifies a script: removes indents and comments on lines of their own. Line ends stay because they can end
/// statements.
fn uncommented(script: &str) -> String {
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the embedded files.
pub(super) fn assets() -> &'static Assets {
    &ASSETS
}

/// `GET /assets/{name}`.
pub(super) async fn show(_: &Api, call: Call<()>) -> Result<Answer, PageError> {
    let all = assets();
    let asset =
        [&all.style, &all.docs_style, &all.script, &all.icon].into_iter().find(|asset| asset.path == call.path());
    let asset = asset.ok_or(ApiError::NotFound)?;
    let answer = if call.header(&ACCEPT_ENCODING).is_some_and(accepts_gzip) {
        let answer = Answer::bytes(StatusCode::OK, asset.content_type, asset.compressed.clone());
        answer.with_header(CONTENT_ENCODING, "gzip")
    } else {
        Answer::bytes(StatusCode::OK, asset.content_type, asset.bytes.clone())
    };
    Ok(answer.with_header(VARY, "accept-encoding").with_header(CACHE_CONTROL, "public, max-age=31536000, immutable"))
}

/// Returns whether an `Accept-Encoding` header (RFC 9110, section 12.5.3) names gzip, without the weight 0.
fn accepts_gzip(header: &str) -> bool {
    header.split(',').any(|one| {
        let (coding, weight) = one.split_once(';').unwrap_or((one, ""));
        let refused = weight.trim().strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0));
        coding.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minifying_a_style_sheet_keeps_its_rules() {
        let style =
            "/* Comment. */\na > b + b, c:has(> d) { margin: 0 1px; }\n@media (x: 1) {\n  a:hover { top: 0; }\n}\n";
        assert_eq!(squeezed(style), "a>b+b,c:has(>d){margin:0 1px}@media (x:1){a:hover{top:0}}");
        let whole = squeezed(include_str!("../../data/assets/panel.css"));
        let has_sum = |rest: &str| rest.split(')').next().is_some_and(|term| term.contains('+'));
        assert!(!whole.split("calc(").skip(1).any(has_sum), "a sum needs its blanks");
        assert!(!whole.contains("/*") && whole.matches('{').count() == whole.matches('}').count());
    }

    #[test]
    fn embedded_files_stay_small() {
        let all = assets();
        assert!(all.script.bytes.len() < 10_000 && all.icon.bytes.len() < 2_000);
        // The style sheet is sent in gzip and cached for a year, so that its compressed size counts. Every visitor
        // waits for it before the first page: 8.5 kB fit into the first round trip of a new connection.
        assert!(all.style.compressed.len() < 8_500, "{} bytes", all.style.compressed.len());
    }

    #[test]
    fn gzip_is_sent_only_to_those_who_accept_it() {
        for header in ["gzip", "deflate, GZIP", "br;q=1.0, gzip;q=0.8", "gzip; q=0.001"] {
            assert!(accepts_gzip(header), "{header}");
        }
        for header in ["", "identity", "br", "x-gzip", "gzip;q=0", "br, gzip; q=0.0"] {
            assert!(!accepts_gzip(header), "{header}");
        }
    }
}
