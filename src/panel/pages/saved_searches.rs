//! Searches that the visitor has saved: their links above the list of messages, and the forms that save and remove one.

use hyper::StatusCode;

use super::messages;
use crate::domain::saved_search::{SEARCHES_COUNT, SavedSearch};
use crate::domain::violation::Violations;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::panel::components::{Choice, FormErrors};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::paging;
use crate::panel::search::Search;
use crate::store::error::{OpError, StoreError};
use crate::store::op::NotFound;
use crate::store::op::saved_search::SaveRefusal;

/// Saved searches on the page of messages.
pub(super) struct SavedSearches {
    /// Links to the searches.
    pub(super) links: Vec<Choice>,
    /// Name of the saved search on display, if it can be removed.
    pub(super) here: Option<String>,
    /// Whether the search on display can be saved.
    pub(super) may_save: bool,
    /// Entered name, if the input was refused.
    pub(super) name: String,
    /// Errors of the form.
    pub(super) faults: FormErrors,
}

impl SavedSearches {
    /// Returns the visitor's searches beside the search on display. An operator's view has none.
    pub(super) fn new(visit: &Visit<'_>, search: &Search, refused: RefusedName) -> Result<Self, StoreError> {
        let RefusedName { name, faults } = refused;
        if visit.view().is_some() {
            return Ok(Self { links: Vec::new(), here: None, may_save: false, name, faults });
        }
        let saved = visit.api.engine.saved_searches(visit.own_account_id(), visit.user().id)?;
        let links: Vec<_> = saved.iter().map(|saved| link(saved, search)).collect();
        let here = links.iter().find(|link| link.is_here).map(|link| link.words.clone());
        if visit.api.engine.suspension(visit.own_account_id())?.is_some() {
            return Ok(Self { links, here: None, may_save: false, name, faults });
        }
        let may_save = here.is_none() && !search.is_empty() && search.faults.is_empty();
        Ok(Self { links, here, may_save, name, faults })
    }
}

/// A name that was refused, and the reasons.
pub(super) struct RefusedName {
    name: String,
    faults: FormErrors,
}

impl RefusedName {
    /// Returns the form's state without a refusal.
    pub(super) fn nothing() -> Self {
        Self { name: String::new(), faults: FormErrors::none() }
    }
}

fn link(saved: &SavedSearch, search: &Search) -> Choice {
    let SavedSearch { name, text, status, stream } = saved;
    Choice {
        words: name.to_string(),
        path: paging::address("/messages", &[("q", text), ("status", status), ("stream", stream)]),
        is_here: (text, status, stream) == (&search.text, &search.status, &search.stream),
    }
}

/// Returns the page of a search, with the result of a form.
fn back(search: &Search, done: &str) -> Answer {
    let (text, status, stream) = (search.text.as_str(), search.status.as_str(), search.stream.as_str());
    html::redirect(&paging::address(
        "/messages",
        &[("q", text), ("status", status), ("stream", stream), ("done", done)],
    ))
}

/// `POST /messages`: saves a search under a name.
pub(in crate::panel) async fn save(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let search = messages::search_of(&form, &visit.account.time_zone.zone());
    let (mut violations, mut of_search) = (Violations::new(), Violations::new());
    search.filter(&mut of_search);
    if search.is_empty() || !search.faults.is_empty() || !of_search.is_empty() {
        // The page of the search shows its errors.
        return Ok(back(&search, ""));
    }
    if let Some(name) = violations.check("name", form.text("name").parse()) {
        let (text, status, stream) = (search.text.clone(), search.status.clone(), search.stream.clone());
        let saved = SavedSearch { name, text, status, stream };
        match visit.api.engine.save_search(visit.own_account_id(), visit.user().id, saved).await {
            Ok(()) => return Ok(back(&search, "saved")),
            Err(OpError::Refused(SaveRefusal::TooMany)) => {
                violations.add("name", format!("You have {SEARCHES_COUNT} saved searches. Remove one first."));
            }
            Err(OpError::Refused(SaveRefusal::NotFound)) => return Err(ApiError::NotFound.into()),
            Err(OpError::Failed(error)) => return Err(error.into()),
        }
    }
    let refused = RefusedName { name: form.text("name").to_owned(), faults: violations.into() };
    messages::written(&visit, StatusCode::UNPROCESSABLE_ENTITY, &form, refused).await
}

/// `POST /messages/remove-search`. Removing a search that does not exist is not an error.
pub(in crate::panel) async fn remove(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let name = form.text("name").parse().map_err(|_| ApiError::NotFound)?;
    match visit.api.engine.remove_search(visit.own_account_id(), visit.user().id, name).await {
        Ok(()) | Err(OpError::Refused(NotFound)) => Ok(html::redirect("/messages?done=removed")),
        Err(OpError::Failed(error)) => Err(error.into()),
    }
}
