//! The page before something is deleted for good: it names the consequences, and wants the name typed.

use askama::Template;
use hyper::StatusCode;

use crate::http::answer::Answer;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::Frame;
use crate::panel::page_error::Fault;
use crate::panel::page_guard::Visit;

/// The thing to delete.
pub(super) struct Deletion {
    /// The title of the page.
    pub(super) title: String,
    /// The consequences.
    pub(super) consequences: &'static str,
    /// The name that is to be typed.
    pub(super) name: String,
    /// The target of the form.
    pub(super) action: String,
    /// The name of its button.
    pub(super) button: &'static str,
    /// The page of what is to be deleted.
    pub(super) back: String,
}

#[derive(Template)]
#[template(path = "delete.html")]
struct DeletePage {
    frame: Frame,
    deletion: Deletion,
    /// Whether another name was typed.
    is_wrong: bool,
}

/// The page that asks.
///
/// # Errors
/// Those of the store.
pub(super) fn show(visit: &Visit<'_>, place: &str, deletion: Deletion) -> Result<Answer, Fault> {
    written(visit, StatusCode::OK, place, deletion, false)
}

/// The page once more, where the form does not have the name. None where it has.
///
/// # Errors
/// Those of the store.
pub(super) fn refused(visit: &Visit<'_>, place: &str, deletion: Deletion) -> Result<Option<Answer>, Fault> {
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
) -> Result<Answer, Fault> {
    let frame = Frame::new(visit, deletion.title.as_str(), place)?;
    html::page(status, &DeletePage { frame, deletion, is_wrong })
}
