//! Quick open: one field that accepts an identifier, address, domain or page name and redirects to its page. Other text
//! becomes a message search. It is an ordinary form, so it works without scripts.

use askama::Template;
use hyper::StatusCode;

use crate::base::id::{
    AccountId, AlertId, DeliveryId, DomainId, EndpointId, EventId, KeyId, MessageId, SuppressionId, UserId,
};
use crate::domain::hostname::DomainName;
use crate::engine::alerts::record::Alert;
use crate::engine::listing::{Page, PageRequest};
use crate::engine::messages::MessageFilter;
use crate::http::answer::Answer;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::{PageFrame, places};
use crate::panel::page_error::PageError;
use crate::panel::page_guard::{Need, Visit};
use crate::panel::paging;
use crate::store::op::suppression::Name;

#[derive(Template)]
#[template(path = "open.html")]
struct OpenPage {
    frame: PageFrame,
    /// An identifier that belongs to nothing the visitor may see.
    missing: Option<String>,
    /// Pages that can be opened by name.
    places: Vec<(&'static str, &'static str)>,
}

/// Destination for a text.
enum Target {
    /// A path of the panel.
    Page(String),
    /// An identifier that belongs to nothing the visitor may see.
    Missing,
}

/// `GET /open?q=`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    let text = query.text("q");
    if text.is_empty() {
        return written(&visit, StatusCode::OK, None);
    }
    match target(&visit, text).await? {
        Target::Page(path) => Ok(html::redirect(&path)),
        Target::Missing => written(&visit, StatusCode::NOT_FOUND, Some(text.to_owned())),
    }
}

fn written(visit: &Visit<'_>, status: StatusCode, missing: Option<String>) -> Result<Answer, PageError> {
    let frame = PageFrame::new(visit, "Search", "/open")?.with_search(missing.as_deref().unwrap_or_default());
    let places = places(visit).map(|place| (place.name, place.path)).collect();
    html::page(status, &OpenPage { frame, missing, places })
}

async fn target(visit: &Visit<'_>, text: &str) -> Result<Target, PageError> {
    if let Some(target) = by_id(visit, text)? {
        return Ok(target);
    }
    let name = text.trim_start_matches('/').to_lowercase();
    let is_named = |path: &str, known: &str| known.to_lowercase() == name || path.trim_start_matches('/') == name;
    if let Some(place) = places(visit).find(|place| is_named(place.path, place.name)) {
        return Ok(Target::Page(place.path.to_owned()));
    }
    if let Ok(domain) = text.parse::<DomainName>() {
        if let Some(id) = visit.api.engine.domain_named(visit.account_id(), domain.as_str())? {
            return Ok(Target::Page(format!("/domains/{id}")));
        }
        if has_mail(visit, &domain).await? {
            return Ok(Target::Page(paging::address("/messages", &[("q", &format!("domain:{domain}"))])));
        }
    }
    Ok(Target::Page(paging::address("/messages", &[("q", text)])))
}

/// Whether the account has mail of this domain, or so much that a search does not read all of it. Other text can have
/// the form of a domain too: the beginning of an address, a file name, a version.
async fn has_mail(visit: &Visit<'_>, domain: &DomainName) -> Result<bool, PageError> {
    let filter = MessageFilter { domain: Some(domain.clone()), ..MessageFilter::default() };
    let page = PageRequest { before: None, limit: 1 };
    let Page { rows, next } = visit.api.engine.messages(visit.account_id(), filter, page).await?;
    Ok(!rows.is_empty() || next.is_some())
}

/// Returns the path of an alert in the list: open ones are at its beginning.
fn alert_path(id: AlertId, alert: &Alert) -> String {
    let behind = AlertId(id.0.next()).to_string();
    let older = alert.row.resolved_at.map_or("", |_| behind.as_str());
    format!("{}#{id}", paging::address("/alerts", &[("older", older)]))
}

/// Returns the page of the object with this identifier, in upper or lower case. `None` if the text is not an
/// identifier.
fn by_id(visit: &Visit<'_>, text: &str) -> Result<Option<Target>, PageError> {
    let (engine, account) = (&visit.api.engine, visit.account_id());
    let Some((prefix, rest)) = text.split_once('_') else { return Ok(None) };
    let prefix = prefix.to_ascii_lowercase();
    let text = format!("{prefix}_{}", rest.to_ascii_uppercase());
    let path = match prefix.as_str() {
        MessageId::PREFIX => match text.parse() {
            Ok(id) => engine.message(account, id)?.map(|_| format!("/messages/{id}")),
            Err(_) => None,
        },
        EventId::PREFIX => match text.parse() {
            Ok(id) => engine.message_of_event(account, id)?.map(|message| format!("/messages/{message}")),
            Err(_) => None,
        },
        DomainId::PREFIX => match text.parse() {
            Ok(id) => engine.domain(account, id)?.map(|_| format!("/domains/{id}")),
            Err(_) => None,
        },
        EndpointId::PREFIX => match text.parse() {
            Ok(id) => engine.endpoint(account, id)?.map(|_| format!("/webhooks/{id}")),
            Err(_) => None,
        },
        DeliveryId::PREFIX => match text.parse() {
            Ok(id) => {
                let found = engine.delivery(account, id)?;
                found.map(|(record, _)| format!("/webhooks/{}/deliveries/{id}", record.row.endpoint))
            }
            Err(_) => None,
        },
        KeyId::PREFIX => match text.parse() {
            Ok(id) => engine.key(account, id)?.map(|_| format!("/keys/{id}")),
            Err(_) => None,
        },
        SuppressionId::PREFIX => match text.parse() {
            Ok(id) => engine.suppression(account, &Name::Id(id))?.map(|_| format!("/suppressions/{id}")),
            Err(_) => None,
        },
        UserId::PREFIX => match text.parse() {
            Ok(id) => engine.user(account, id)?.map(|_| format!("/users/{id}")),
            Err(_) => None,
        },
        AlertId::PREFIX => match text.parse::<AlertId>() {
            Ok(id) => engine.alert(visit.alerts(), id)?.map(|alert| alert_path(id, &alert)),
            Err(_) => None,
        },
        AccountId::PREFIX => match text.parse::<AccountId>() {
            Ok(id) if visit.may(Need::Operate, &hyper::Method::GET) => {
                engine.account(id)?.map(|_| format!("/accounts/{id}"))
            }
            Ok(id) if id == account => Some("/settings".to_owned()),
            Ok(_) | Err(_) => None,
        },
        _ => return Ok(None),
    };
    Ok(Some(path.map_or(Target::Missing, Target::Page)))
}
