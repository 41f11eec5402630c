//! Keyboard shortcuts. `panel.js` implements them and opens this page at `?`.

use askama::Template;
use hyper::StatusCode;

use crate::http::answer::Answer;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;

/// A group of shortcuts: its name, and the keys and meaning of each.
type Group = (&'static str, &'static [(&'static [&'static str], &'static str)]);

/// Shortcuts with their keys, by the place where they work.
const GROUPS: [Group; 4] = [
    (
        "Anywhere",
        &[
            (&["Ctrl", "K"], "Search or open (also without single-key shortcuts)"),
            (&["/"], "Search or open"),
            (&["r"], "Reload the page"),
            (&["Esc"], "Leave a field"),
            (&["?"], "This page"),
        ],
    ),
    (
        "In a list",
        &[
            (&["j"], "Next row"),
            (&["k"], "Previous row"),
            (&["Enter"], "Open the row"),
            (&["["], "Newer page"),
            (&["]"], "Older page"),
        ],
    ),
    ("On a detail page", &[(&["u"], "Up to the list"), (&["c"], "Copy the ID")]),
    (
        "Go to a page",
        &[
            (&["g", "o"], "Overview"),
            (&["g", "m"], "Messages"),
            (&["g", "e"], "Events"),
            (&["g", "q"], "Queue"),
            (&["g", "d"], "Domains"),
            (&["g", "w"], "Webhooks"),
            (&["g", "k"], "API keys"),
            (&["g", "p"], "Suppressions"),
            (&["g", "s"], "Settings"),
        ],
    ),
];

#[derive(Template)]
#[template(path = "shortcuts.html")]
struct ShortcutsPage {
    frame: PageFrame,
    groups: &'static [Group],
}

/// `GET /shortcuts`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let frame = PageFrame::new(&visit, "Keyboard shortcuts", "/shortcuts")?;
    html::page(StatusCode::OK, &ShortcutsPage { frame, groups: &GROUPS })
}
