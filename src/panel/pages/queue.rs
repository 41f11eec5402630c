//! Queue of the account by site: number of waiting messages, next attempt, and the site's last response.

use askama::Template;
use hyper::StatusCode;

use super::queue_changes;
use crate::base::id::MessageId;
use crate::base::time::Timestamp;
use crate::domain::hostname::DomainName;
use crate::domain::site_name::SiteName;
use crate::engine::queue::{AccountSite, PausedDomain};
use crate::http::answer::Answer;
use crate::panel::components::{Badge, FormErrors, grouped};
use crate::panel::event::Event;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::paging;
use crate::panel::timestamp::ShortTime;
use crate::panel::wording::{counted, provider};
use crate::smtp::category::Category;

/// Maximum number of waiting messages read.
const LOOKED_AT: usize = 2_000;
/// Maximum number of sites shown.
const SITES: usize = 200;
/// Maximum number of recipients' domains named for a site.
const DOMAINS: usize = 3;

#[derive(Template)]
#[template(path = "queue.html")]
struct QueuePage {
    frame: PageFrame,
    lines: Vec<SiteLine>,
    /// Paused sites without waiting mail.
    pauses: Vec<PausedLine>,
    is_cut: bool,
    looked_at: String,
    /// Maximum time for which a message is retried, in hours.
    hours: u64,
    /// Domain to pause as typed, if the input was refused.
    domain: String,
    faults: FormErrors,
    live: &'static str,
}

/// One site.
struct SiteLine {
    site: String,
    /// The site's name for people.
    name: String,
    /// The recipients' domains and the relay.
    hint: String,
    waiting: String,
    /// Link to the waiting messages.
    waiting_path: Option<String>,
    in_flight: String,
    oldest_at: Option<ShortTime>,
    next_at: Option<ShortTime>,
    held_until: Option<ShortTime>,
    badge: Badge,
    is_paused: bool,
    paused_since: Option<ShortTime>,
    /// Name and name for people of the site or domain whose pause stops all of the mail, if it is a single one.
    paused_by: Option<(String, String)>,
    paused_domains: Vec<PausedLine>,
    /// Whether the destination and a domain of its recipients are paused. Each button then names what it resumes.
    is_paused_twice: bool,
    message: MessageId,
    answer: String,
    what_to_do: String,
}

/// Whether all mail of the account is on hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// The mail is not on hold.
    None,
    /// The account is suspended.
    Suspended,
}

/// A pause for a site or a domain of recipients.
struct PausedLine {
    site: SiteName,
    /// The site's name for people.
    name: String,
    since: ShortTime,
    /// Number of messages that wait for it at one site.
    waiting: String,
}

impl PausedLine {
    fn new(visit: &Visit<'_>, site: SiteName, since: Timestamp, waiting: u64) -> Self {
        let (since, waiting) =
            (visit.moment(since).short(visit.now), counted(waiting, "message waits", "messages wait"));
        Self { name: provider(site.as_str()).to_owned(), site, since, waiting }
    }
}

/// `GET /queue`. The parameter `domain` fills the form that pauses a domain.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    written(&visit, StatusCode::OK, query.text("domain"), FormErrors::none()).await
}

/// Renders the page, with a domain that was refused.
pub(super) async fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    domain: &str,
    faults: FormErrors,
) -> Result<Answer, PageError> {
    let mut queue = visit.api.engine.queue_of(visit.account_id(), LOOKED_AT).await?;
    queue.sites.sort_by_key(|site| std::cmp::Reverse(site.waiting));
    let is_cut = queue.is_cut || queue.sites.len() > SITES;
    let query = Form::of_query(&visit.call);
    let (done, undo) = (queue_changes::done(&query), queue_changes::undo(visit, &query));
    let pauses = queue.pauses.into_iter().map(|(site, since)| PausedLine::new(visit, site, since, 0));
    let frame = PageFrame::new(visit, "Queue", "/queue")?.with_done(done).with_undo(undo);
    let hold = if frame.is_suspended { Hold::Suspended } else { Hold::None };
    let lines = queue.sites.into_iter().take(SITES).map(|site| line(visit, site, hold));
    let page = QueuePage {
        pauses: pauses.collect(),
        lines: lines.collect::<Result<_, PageError>>()?,
        frame,
        is_cut,
        looked_at: grouped(LOOKED_AT as u64),
        hours: hours(visit),
        domain: domain.to_owned(),
        faults,
        live: "/events/stream",
    };
    html::page(status, &page)
}

/// Returns the time for which a message is retried, in hours.
fn hours(visit: &Visit<'_>) -> u64 {
    visit.api.engine.settings.queue_lifetime.as_secs() / 3600
}

fn line(visit: &Visit<'_>, site: AccountSite, hold: Hold) -> Result<SiteLine, PageError> {
    let events = visit.api.engine.timeline(visit.account_id(), site.last_tried)?;
    let last = events.last().and_then(|bytes| Event::read(bytes));
    let moment = |at: Timestamp| visit.moment(at).short(visit.now);
    let paused = |of: PausedDomain| PausedLine::new(visit, of.name, of.since, of.waiting);
    Ok(SiteLine {
        paused_by: paused_by(&site).map(|name| (name.to_owned(), provider(name).to_owned())),
        is_paused_twice: is_paused_twice(&site),
        hint: hint(&site),
        badge: badge(&site, last.as_ref(), hold),
        what_to_do: what_to_do(&site, last.as_ref(), hold, hours(visit)),
        waiting: grouped(site.waiting),
        waiting_path: waiting_path(&site),
        in_flight: grouped(site.in_flight),
        next_at: site.next_at.filter(|at| *at > visit.now).map(moment),
        held_until: site.held_until.map(moment),
        is_paused: site.is_paused(),
        paused_since: site.paused_since.map(moment),
        paused_domains: site.paused_domains.into_iter().map(paused).collect(),
        message: site.last_tried,
        answer: last.map(|event| event.smtp_response.unwrap_or_default()).unwrap_or_default(),
        oldest_at: site.oldest_at.map(moment),
        name: provider(&site.site).to_owned(),
        site: site.site,
    })
}

/// Returns the link to the site's waiting messages, if they go to a single domain.
fn waiting_path(site: &AccountSite) -> Option<String> {
    let [domain] = site.domains.as_slice() else { return None };
    let search = format!("domain:{domain}");
    Some(paging::address("/messages", &[("q", &search), ("status", "waiting")])).filter(|_| site.waiting > 0)
}

/// Returns the domains of a site's mail, as far as they fit into a line, and its relay.
fn hint(site: &AccountSite) -> String {
    let names = site.domains.iter().map(DomainName::as_str).filter(|name| *name != site.site);
    let mut names: Vec<_> = names.collect();
    let more = match names.len().saturating_sub(DOMAINS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(DOMAINS);
    match names.as_slice() {
        [] => route(&site.relay),
        names => format!("{}{more} · {}", names.join(", "), route(&site.relay)),
    }
}

/// Returns the relay in words. `direct` is delivery without one.
fn route(relay: &str) -> String {
    if relay == "direct" { "sent directly".to_owned() } else { format!("via {relay}") }
}

/// Returns the name of the site or domain whose pause stops all of the site's mail, if it is a single one.
fn paused_by(site: &AccountSite) -> Option<&str> {
    match (site.paused_since, site.paused_domains.as_slice()) {
        (Some(_), _) => Some(&site.site),
        (None, [only]) if site.is_paused() => Some(only.name.as_str()),
        (None, _) => None,
    }
}

fn is_paused_twice(site: &AccountSite) -> bool {
    site.paused_since.is_some() && !site.paused_domains.is_empty()
}

/// Whether no server answered at the last attempt.
fn is_unreachable(last: Option<&Event>) -> bool {
    let bounce = last.and_then(|event| event.bounce.as_ref());
    bounce.is_some_and(|bounce| bounce.category == Category::ConnectionFailed.as_str())
}

fn badge(site: &AccountSite, last: Option<&Event>, hold: Hold) -> Badge {
    match (site.held_until.is_some(), site.in_flight > 0) {
        _ if hold == Hold::Suspended => Badge::new("on hold", "wait", "lock"),
        _ if site.is_paused() => Badge::new("paused", "wait", "lock"),
        _ if !site.paused_domains.is_empty() => Badge::new("partly paused", "wait", "lock"),
        (true, _) if is_unreachable(last) => Badge::new("unreachable", "wait", "clock"),
        (true, _) => Badge::new("throttled", "wait", "clock"),
        (false, true) => Badge::new("sending", "good", "check"),
        (false, false) => Badge::new("waiting", "calm", "clock"),
    }
}

/// Returns the remedy for a site, or the statement that none is needed.
fn what_to_do(site: &AccountSite, last: Option<&Event>, hold: Hold, hours: u64) -> String {
    if hold == Hold::Suspended {
        return format!(
            "The account is suspended. Queued mail stays on hold and still expires {hours} hours after its acceptance."
        );
    }
    if site.is_paused() {
        return format!("Resume when ready. Messages still expire {hours} hours after their acceptance.");
    }
    let advice = last.and_then(|event| event.bounce.as_ref()).map(|bounce| bounce.advice.as_str());
    match (advice.filter(|advice| !advice.is_empty()), site.held_until.is_some()) {
        (Some(advice), _) => advice.to_owned(),
        (None, true) => "Throttled or unreachable; retries are automatic.".to_owned(),
        (None, false) => "Nothing to do.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(waiting: u64, paused: &[(&str, u64)]) -> AccountSite {
        let domain = |(name, waiting): &(&str, u64)| PausedDomain {
            name: name.parse().unwrap(),
            since: Timestamp::ZERO,
            waiting: *waiting,
        };
        AccountSite {
            paused_domains: paused.iter().map(domain).collect(),
            ..AccountSite::of_waiting("mx.example.com", waiting)
        }
    }

    #[test]
    fn a_row_resumes_the_single_pause_that_stops_all_of_its_mail() {
        let (one, some) = (site(2, &[("a.test", 2)]), site(3, &[("a.test", 2)]));
        assert_eq!([paused_by(&one), paused_by(&some)], [Some("a.test"), None]);
        let both = site(3, &[("a.test", 2), ("b.test", 1)]);
        assert!(both.is_paused() && paused_by(&both).is_none(), "each has its own button");
        let twice = AccountSite { paused_since: Some(Timestamp::ZERO), ..site(2, &[("a.test", 2)]) };
        assert!(is_paused_twice(&twice) && !is_paused_twice(&one) && !is_paused_twice(&both));
        assert_eq!(paused_by(&AccountSite { paused_since: Some(Timestamp::ZERO), ..both }), Some("mx.example.com"));
        assert_eq!(paused_by(&site(1, &[])), None);
    }

    #[test]
    fn the_waiting_messages_of_a_single_domain_are_linked() {
        let to = |names: &[&str], waiting| {
            let domains = names.iter().map(|name| name.parse().unwrap()).collect();
            waiting_path(&AccountSite { domains, ..site(waiting, &[]) })
        };
        assert_eq!(to(&["gmail.com"], 4).as_deref(), Some("/messages?q=domain%3Agmail.com&status=waiting"));
        assert_eq!([to(&["a.test", "b.test"], 4), to(&["a.test"], 0)], [None, None]);
    }

    #[test]
    fn a_site_with_a_paused_domain_is_partly_paused() {
        let word = |site: &AccountSite| badge(site, None, Hold::None).to_string();
        assert!(word(&site(2, &[("a.test", 2)])).contains(">Paused<"));
        assert!(word(&site(3, &[("a.test", 2)])).contains(">Partly paused<"));
        assert!(word(&site(3, &[])).contains(">Waiting<"));
    }

    #[test]
    fn a_site_without_an_answer_is_unreachable_and_not_throttled() {
        let event = |category: &str| {
            let bounce = serde_json::json!({
                "kind": "soft", "category": category, "status": null, "source": "local", "rule": "x", "advice": "",
                "suppressed": false,
            });
            let event = serde_json::json!({
                "id": "", "type": "deferred", "message_id": "", "to": "", "created_at": "", "bounce": bounce,
            });
            Event::read(event.to_string().as_bytes()).unwrap()
        };
        let held = AccountSite { held_until: Some(Timestamp::ZERO), ..site(1, &[]) };
        for (category, word) in [("connection_failed", "Unreachable"), ("rate_limited", "Throttled")] {
            let badge = badge(&held, Some(&event(category)), Hold::None).to_string();
            assert!(badge.contains(word), "{badge}");
        }
        assert!(badge(&held, None, Hold::None).to_string().contains("Throttled"));
    }
}
