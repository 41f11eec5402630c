//! Changes of mail that waits for a site: pausing, resuming and retrying it now.

use crate::domain::site_name::SiteName;
use crate::engine::pauses::Tried;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::queue::too_many;
use crate::panel::door::Visit;
use crate::panel::fault::Fault;
use crate::panel::form::Form;
use crate::panel::html;
use crate::store::error::Stop;
use crate::store::op::NotThere;

/// The site that a form names. What is no name is as unknown as any other.
fn site(visit: &Visit<'_>) -> Result<SiteName, Fault> {
    Form::of(&visit.call)?.text("site").parse().map_err(|_| ApiError::NotFound.into())
}

fn back(done: &str) -> Answer {
    html::redirect(&format!("/queue?done={done}"))
}

/// Returns the queue page's text for a finished change.
pub(super) fn done(what: &str) -> Option<&'static str> {
    match what {
        "paused" => Some("Paused; mail in transit will finish."),
        "resumed" => Some("Resumed."),
        "tried" => Some("Retrying."),
        "tried-part" => Some("Retrying the first of them; retry again for more."),
        "probed" => Some("Nothing to retry; probing again."),
        _ => None,
    }
}

/// `POST /queue/pause`.
pub(in crate::panel) async fn pause(visit: Visit<'_>) -> Result<Answer, Fault> {
    visit.api.engine.pause_site(visit.on(), site(&visit)?).await.map_err(too_many)?;
    Ok(back("paused"))
}

/// `POST /queue/resume`: what is not paused goes on anyway.
pub(in crate::panel) async fn resume(visit: Visit<'_>) -> Result<Answer, Fault> {
    match visit.api.engine.resume_site(visit.on(), site(&visit)?).await {
        Ok(()) | Err(Stop::Refused(NotThere)) => Ok(back("resumed")),
        Err(Stop::Failed(error)) => Err(error.into()),
    }
}

/// `POST /queue/try`.
pub(in crate::panel) async fn try_now(visit: Visit<'_>) -> Result<Answer, Fault> {
    let tried = visit.api.engine.try_site(visit.on(), site(&visit)?).await?;
    Ok(back(match tried {
        Tried { is_cut: true, .. } => "tried-part",
        Tried { messages: 0, .. } => "probed",
        Tried { .. } => "tried",
    }))
}
