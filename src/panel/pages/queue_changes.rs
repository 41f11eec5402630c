//! Changes of a site's queue: pause, resume, and retry now.

use hyper::StatusCode;

use super::queue;
use crate::domain::hostname::DomainName;
use crate::domain::site_name::SiteName;
use crate::domain::violation::Violations;
use crate::engine::pauses::RetryResult;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::queue::too_many;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::Undo;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::{Need, Visit};
use crate::panel::paging;
use crate::panel::wording::provider;
use crate::store::error::OpError;
use crate::store::op::NotFound;

/// Returns the site in the form. An invalid name is treated as unknown.
fn site(visit: &Visit<'_>) -> Result<SiteName, PageError> {
    Form::of(&visit.call)?.text("site").parse().map_err(|_| ApiError::NotFound.into())
}

fn back(done: &str, site: &SiteName) -> Answer {
    html::redirect(&paging::address("/queue", &[("done", done), ("site", site.as_str())]))
}

/// Returns the queue page's text for a finished change, with the name of its site.
pub(super) fn done(query: &Form) -> Option<String> {
    let text = match query.text("done") {
        "paused" => "Paused; mail in transit will finish.",
        "resumed" => "Resumed.",
        "tried" => "Retrying.",
        "tried-part" => "Retrying the first messages; retry again for more.",
        "probed" => "Nothing to retry; probing again.",
        _ => return None,
    };
    Some(match query.text("site").parse::<SiteName>() {
        Ok(site) => format!("{}: {text}", provider(site.as_str())),
        Err(_) => text.to_owned(),
    })
}

/// Returns the form that resumes the site that was just paused.
pub(super) fn undo(visit: &Visit<'_>, query: &Form) -> Option<Undo> {
    let site: SiteName = query.text("site").parse().ok().filter(|_| query.text("done") == "paused")?;
    let undo = Undo { action: "/queue/resume".to_owned(), field: Some(("site", site.as_str().to_owned())) };
    visit.may_send(Need::Change).then_some(undo)
}

/// `POST /queue/pause`: pauses a site, or a domain of recipients that was typed.
pub(in crate::panel) async fn pause(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let site = match form.field("domain") {
        Some(domain) => match domain.parse::<DomainName>() {
            Ok(name) => name.as_str().parse().map_err(|_| ApiError::NotFound)?,
            Err(error) => {
                let faults = Violations::of("domain", error.to_string()).into();
                return queue::written(&visit, StatusCode::UNPROCESSABLE_ENTITY, domain, faults).await;
            }
        },
        None => site(&visit)?,
    };
    visit.api.engine.pause_site(visit.on(), site.clone()).await.map_err(too_many)?;
    Ok(back("paused", &site))
}

/// `POST /queue/resume`: resumes the site. Resuming a site that isn't paused is not an error.
pub(in crate::panel) async fn resume(visit: Visit<'_>) -> Result<Answer, PageError> {
    let site = site(&visit)?;
    match visit.api.engine.resume_site(visit.on(), site.clone()).await {
        Ok(()) | Err(OpError::Refused(NotFound)) => Ok(back("resumed", &site)),
        Err(OpError::Failed(error)) => Err(error.into()),
    }
}

/// `POST /queue/try`.
pub(in crate::panel) async fn try_now(visit: Visit<'_>) -> Result<Answer, PageError> {
    let site = site(&visit)?;
    let done = match visit.api.engine.try_site(visit.on(), site.clone()).await? {
        RetryResult { is_cut: true, .. } => "tried-part",
        RetryResult { messages: 0, .. } => "probed",
        RetryResult { .. } => "tried",
    };
    Ok(back(done, &site))
}
