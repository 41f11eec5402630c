//! Safe message preview: the HTML in a sandboxed frame, remote images only on request, and text, headers and
//! attachments as text.

use super::components::{Choice, Excerpt, byte_size};
use super::form::Form;
use super::html::{self, Remote};
use super::page_error::PageError;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::mail::read::{AttachedFile, ReadParts};

/// Widths of the frame: name in the address, label, and CSS class.
const WIDTHS: [(&str, &str, &str); 3] =
    [("390", "Phone", "preview w390"), ("768", "Tablet", "preview w768"), ("full", "Full", "preview")];

/// Length of HTML below which the frame is low.
const SHORT_BYTES: usize = 600;
/// Parts that can be shown alone.
const PARTS: [&str; 3] = ["html", "text", "attachments"];

/// Message content as its page shows it.
pub(super) struct Preview {
    /// URL of the frame's document. `None` if there is no HTML.
    pub(super) frame: Option<String>,
    /// Whether the HTML is so short that the frame can be low.
    pub(super) is_short: bool,
    /// CSS class of the frame.
    pub(super) class: &'static str,
    /// URL that loads remote images, if there are any and they are blocked.
    pub(super) with_images: Option<String>,
    /// Frame widths to choose from.
    pub(super) widths: Vec<Choice>,
    /// The plain text.
    pub(super) text: Option<Excerpt>,
    /// Custom headers. They are shown only together with the other parts.
    pub(super) headers: Vec<(String, String)>,
    /// Descriptions of the attachments.
    pub(super) files: Vec<String>,
    /// The only part to show. `None` shows all parts.
    pub(super) part: Option<&'static str>,
}

impl Preview {
    /// Creates the preview of `parts` on the page at `path`. The frame's document is at `path`/preview.
    pub(super) fn new(parts: ReadParts, path: &str, query: &Form) -> Self {
        let wants_images = wants_images(query);
        let [.., full] = WIDTHS;
        let (width, _, class) = WIDTHS.into_iter().find(|(name, ..)| *name == query.text("width")).unwrap_or(full);
        let has_remote = parts.html.as_deref().is_some_and(has_remote_images);
        let images = if wants_images { "?images=remote" } else { "" };
        let address = |width: &str, images: bool| {
            let images = if images { "&images=remote" } else { "" };
            format!("{path}?width={width}{images}#content")
        };
        let choice = |(name, words, _): (&str, &str, _)| Choice {
            words: words.to_owned(),
            path: address(name, wants_images),
            is_here: name == width,
        };
        Self {
            frame: parts.html.is_some().then(|| format!("{path}/preview{images}")),
            is_short: parts.html.as_deref().is_some_and(|html| html.len() < SHORT_BYTES),
            class,
            with_images: (has_remote && !wants_images).then(|| address(width, true)),
            widths: WIDTHS.map(choice).into(),
            text: parts.text.as_deref().map(Excerpt::of),
            headers: parts.headers.into_iter().collect(),
            files: parts.attachments.iter().map(file).collect(),
            part: None,
        }
    }

    /// Shows only the part of a tab. Without a known tab it is the HTML, or the text if there is no HTML.
    pub(super) fn with_tab(self, tab: &str) -> Self {
        let first = if self.frame.is_some() { "html" } else { "text" };
        let part = PARTS.into_iter().find(|name| *name == tab).unwrap_or(first);
        Self { part: Some(part), ..self }
    }

    /// Whether the page shows this part.
    pub(super) fn shows(&self, part: &str) -> bool {
        self.part.is_none_or(|only| only == part)
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
pub(super) fn document(parts: ReadParts, query: &Form) -> Result<Answer, PageError> {
    let html = parts.html.ok_or(ApiError::NotFound)?;
    Ok(html::preview(html, if wants_images(query) { Remote::Images } else { Remote::Blocked }))
}
