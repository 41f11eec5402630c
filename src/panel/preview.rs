//! Safe message preview: the HTML in a sandboxed frame, remote images only on request, and text, headers and
//! attachments as text.

use super::components::{Excerpt, byte_size};
use super::form::Form;
use super::html::{self, Remote};
use super::page_error::Fault;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::mail::read::{AttachedFile, ReadParts};

/// Message content as its page shows it.
pub(super) struct Preview {
    /// URL of the frame's document. `None` if there is no HTML.
    pub(super) frame: Option<String>,
    /// CSS class of the frame.
    pub(super) class: &'static str,
    /// URL that loads remote images, if there are any and they are blocked.
    pub(super) with_images: Option<String>,
    /// The same page with the other frame width.
    pub(super) other_width: String,
    /// Label of the link to the other width.
    pub(super) other_width_words: &'static str,
    /// The plain text.
    pub(super) text: Option<Excerpt>,
    /// Custom headers.
    pub(super) headers: Vec<(String, String)>,
    /// Descriptions of the attachments.
    pub(super) files: Vec<String>,
}

impl Preview {
    /// Creates the preview of `parts` on the page at `path`. The frame's document is at `path`/preview.
    pub(super) fn new(parts: ReadParts, path: &str, query: &Form) -> Self {
        let (wants_images, is_narrow) = (wants_images(query), query.text("width") == "narrow");
        let has_remote = parts.html.as_deref().is_some_and(has_remote_images);
        let images = if wants_images { "?images=remote" } else { "" };
        let address = |width: &str, images: bool| {
            let images = if images { "&images=remote" } else { "" };
            format!("{path}?width={width}{images}#content")
        };
        let (width, other) = if is_narrow { ("narrow", "wide") } else { ("wide", "narrow") };
        Self {
            frame: parts.html.is_some().then(|| format!("{path}/preview{images}")),
            class: if is_narrow { "preview narrow" } else { "preview" },
            with_images: (has_remote && !wants_images).then(|| address(width, true)),
            other_width: address(other, wants_images),
            other_width_words: if is_narrow { "As wide as the page" } else { "As narrow as a phone" },
            text: parts.text.as_deref().map(Excerpt::of),
            headers: parts.headers.into_iter().collect(),
            files: parts.attachments.iter().map(file).collect(),
        }
    }
}

fn wants_images(query: &Form) -> bool {
    query.text("images") == "remote"
}

/// Describes an attachment: name, type and size.
fn file(file: &AttachedFile) -> String {
    let name = file.filename.as_deref().unwrap_or("no name");
    format!("{name} ({}, {})", file.content_type, byte_size(file.size as u64))
}

/// Whether the HTML refers to remote resources. This guess only controls a link; the policy blocks them in any case.
fn has_remote_images(html: &str) -> bool {
    let html = html.to_ascii_lowercase();
    ["src=\"http", "src='http", "src=http", "url(http", "url('http", "url(\"http"]
        .iter()
        .any(|sign| html.contains(sign))
}

/// Returns the HTML for the sandboxed frame.
pub(super) fn document(parts: ReadParts, query: &Form) -> Result<Answer, Fault> {
    let html = parts.html.ok_or(ApiError::NotFound)?;
    Ok(html::preview(html, if wants_images(query) { Remote::Images } else { Remote::Blocked }))
}
