//! Confirmation page of a permanent deletion. It names the consequences and asks for the name.

use askama::Template;
use hyper::StatusCode;

use crate::http::answer::Answer;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;

/// The object to delete.
pub(super) struct Deletion {
    /// Title of the page.
    pub(super) title: String,
    /// Consequences of the deletion.
    pub(super) consequences: &'static str,
    /// Name that the user must type.
    pub(super) name: String,
    /// Path that the form posts to.
    pub(super) action: String,
    /// Label of the button.
    pub(super) button: &'static str,
    /// Page of the object.
    pub(super) back: String,
}

#[derive(Template)]
#[template(path = "delete.html")]
struct DeletePage {
    frame: PageFrame,
    deletion: Deletion,
    /// Whether the typed name did not match.
    is_wrong: bool,
}

/// Shows the confirmation page.
///
/// # Errors
/// Store errors.
pub(super) fn show(visit: &Visit<'_>, place: &str, deletion: Deletion) -> Result<Answer, PageError> {
    written(visit, StatusCode::OK, place, deletion, false)
}

/// Shows the page again if the typed name does not match. Returns `None` if it matches.
///
/// # Errors
/// Store errors.
pub(super) fn refused(visit: &Visit<'_>, place: &str, deletion: Deletion) -> Result<Option<Answer>, PageError> {
    let form = Form::of(&visit.call)?;
    if form.text("name").eq_ignore_ascii_case(deletion.name.trim()) {
        return Ok(None);
    }
    written(visit, StatusCode::UNPROCESSABLE_ENTITY, place, deletion, true).map(Some)
}

fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    place: &str,
    deletion: Deletion,
    is_wrong: bool,
) -> Result<Answer, PageError> {
    let frame = PageFrame::new(visit, deletion.title.as_str(), place)?;
    html::page(status, &DeletePage { frame, deletion, is_wrong })
}
