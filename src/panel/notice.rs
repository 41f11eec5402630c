//! Notices about problems that need attention, one line each, ordered by severity. A notice is absent from the page
//! that it links to, except the one about open alerts: it is on every
//! page, and without a link on the one that shows them all.

use super::components::{grouped, shortened};
use super::form::Form;
use super::layout::{link_to, rail_number};
use super::page_guard::Visit;
use super::timestamp::Moment;
use super::wording::{joined, provider};
use crate::base::time::Timestamp;
use crate::domain::alert::Condition;
use crate::domain::sending_domain::DomainStatus;
use crate::domain::site_name::SiteName;
use crate::engine::Engine;
use crate::engine::alerts::listing::OpenAlerts;
use crate::engine::listing::PageRequest;
use crate::machine::quota::WindowView;
use crate::machine::verification::GRACE;
use crate::store::error::StoreError;
use crate::store::op::event::ENDPOINTS_MAX;
use crate::store::row::domain::DomainRow;
use crate::store::row::restored::HoldCause;

/// Path of the page of alerts.
const ALERTS: &str = "/alerts";
/// Maximum number of sending domains that are checked.
const DOMAINS_LOOKED_AT: usize = 100;

/// A problem that needs attention.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// The problem, in a sentence.
    pub(super) sentence: String,
    /// Label of the remedy.
    pub(super) action: &'static str,
    /// Page of the remedy, if there is one.
    pub(super) path: Option<String>,
}

impl Notice {
    fn new(sentence: impl Into<String>, action: &'static str, path: Option<&str>) -> Self {
        Self { sentence: sentence.into(), action, path: path.and_then(link_to) }
    }

    /// Whether the notice links to a page that belongs to the rail line `place`.
    fn leads_to(&self, place: &str) -> bool {
        let section = |path: &str| path.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default().to_owned();
        self.path.as_deref().is_some_and(|path| section(path) == section(place))
    }
}

/// Returns the notices of a page that belongs to the rail line `place`.
///
/// # Errors
/// Store errors.
pub(super) fn notices(visit: &Visit<'_>, place: &str) -> Result<Vec<Notice>, StoreError> {
    let mut notices = of_service(visit)?;
    notices.extend(of_account(visit, place)?);
    // On the page of alerts, only a list with a filter has a notice with a link.
    notices.retain(|notice| notice.path.as_deref() == Some(ALERTS) || !notice.leads_to(place));
    Ok(notices)
}

fn of_service(visit: &Visit<'_>) -> Result<Vec<Notice>, StoreError> {
    let engine = &visit.api.engine;
    let mut notices = Vec::new();
    if let Some(restored) = engine.store.restore_hold()? {
        let at = visit.moment(restored.backup_at).text();
        let sentence = match restored.cause {
            HoldCause::Restored => format!("Restored from the backup of {at}."),
            HoldCause::JournalDamaged { .. } => format!("Started on a damaged journal at {at}."),
        };
        let sentence = format!("{sentence} Queued mail is on hold: some may have been sent already.");
        notices.push(Notice::new(sentence, "Run `postrider queue release` on the server to send it", None));
    }
    if engine.store.free_bytes()? < engine.settings.min_free_bytes.saturating_mul(4) {
        notices.push(Notice::new("Disk almost full: new mail will be rejected.", "Free up space", None));
    }
    Ok(notices)
}

fn of_account(visit: &Visit<'_>, place: &str) -> Result<Vec<Notice>, StoreError> {
    let (engine, account) = (&visit.api.engine, &visit.account);
    let mut notices = Vec::new();
    if let Some(suspension) = engine.suspension(account.id)? {
        let since = visit.moment(suspension.since).text();
        let reason = suspension.reason.as_str();
        let sentence = format!("Suspended since {since} ({reason}). The account is read-only and sends no mail.");
        let action = match visit.view() {
            Some(_) => "End the view to resume it",
            None => "Ask the operator of this service",
        };
        notices.push(Notice::new(sentence, action, None));
    }
    let shows_alerts = place == ALERTS && Form::of_query(&visit.call).given("condition").is_none();
    let (webhooks, domains) = (webhooks(visit)?, domains(visit)?);
    // Alerts about problems with their own notices get no second one, except on the page that shows all alerts.
    let mut named = Vec::new();
    named.extend(webhooks.as_ref().filter(|_| !shows_alerts).map(|_| Condition::WebhookDisabled));
    named.extend(domains.as_ref().filter(|_| !shows_alerts).map(|_| Condition::DomainFailing));
    let unnamed = engine.open_alerts_except(visit.alerts(), &named)?;
    notices.extend(alerts(&engine.open_alerts(visit.alerts())?, unnamed, shows_alerts));
    notices.extend(webhooks);
    notices.extend(domains);
    notices.extend(pauses(&engine.paused_sites(account.id)?));
    let quota = engine.quota(account)?;
    let windows = [("hour", quota.hour), ("day", quota.day)];
    notices.extend(windows.into_iter().filter_map(|(name, window)| of_quota(name, window, visit.now)));
    Ok(notices)
}

/// Returns the notice about open alerts, for a page that shows all of them or for another. `unnamed` are the alerts
/// about problems without their own notices. Several of them are counted with all others, as in the rail.
fn alerts(open: &OpenAlerts, unnamed: OpenAlerts, shows_alerts: bool) -> Option<Notice> {
    let (severity, worst) = (unnamed.worst?.as_str(), open.worst?.as_str());
    let (sentence, action) = match (unnamed.count, unnamed.summary) {
        (1, Some(summary)) => (format!("{summary} ({severity} alert)."), "View alert"),
        (1, None) => (format!("An alert is open ({severity})."), "View alert"),
        _ => (format!("{} open alerts, the worst {worst}.", rail_number(open.count)), "View alerts"),
    };
    Some(match shows_alerts {
        true => Notice::new(sentence, "See below", None),
        false => Notice::new(sentence, action, Some(ALERTS)),
    })
}

fn webhooks(visit: &Visit<'_>) -> Result<Option<Notice>, StoreError> {
    let engine: &Engine = &visit.api.engine;
    let page = PageRequest { before: None, limit: ENDPOINTS_MAX };
    let endpoints = engine.endpoints(visit.account_id(), page)?.rows;
    let disabled: Vec<_> = endpoints.into_iter().filter(|(_, row)| row.state.disabled_at().is_some()).collect();
    Ok(match disabled.as_slice() {
        [] => None,
        [(id, _)] => {
            let sentence = "A webhook is disabled after repeated failures.";
            Some(Notice::new(sentence, "Review", Some(&format!("/webhooks/{id}"))))
        }
        many => Some(Notice::new(format!("{} webhooks are disabled.", many.len()), "Review", Some("/webhooks"))),
    })
}

fn domains(visit: &Visit<'_>) -> Result<Option<Notice>, StoreError> {
    let page = PageRequest { before: None, limit: DOMAINS_LOOKED_AT };
    let domains = visit.api.engine.domains(visit.account_id(), page)?.rows;
    let failing: Vec<_> = domains.into_iter().filter(|(_, row)| row.status == DomainStatus::Failing).collect();
    let ends = |row: &DomainRow| row.last_seen_at.unwrap_or(row.created_at) + GRACE;
    Ok(match failing.as_slice() {
        [] => None,
        [(id, row)] => {
            let at = Moment::new(ends(row), visit.account.time_zone.zone()).text();
            let sentence = format!("The DKIM record of {} is missing; sending stops {at}.", row.name);
            Some(Notice::new(sentence, "Fix DNS", Some(&format!("/domains/{id}"))))
        }
        many => {
            let sentence = format!("The DKIM records of {} domains are missing; sending will stop.", many.len());
            Some(Notice::new(sentence, "Fix DNS", Some("/domains")))
        }
    })
}

/// Names the paused destinations, the longest of which lists many mail servers.
fn pauses(sites: &[SiteName]) -> Option<Notice> {
    let names: Vec<_> = sites.iter().map(|site| shortened(provider(site.as_str()))).collect();
    let names = joined(&names.iter().map(String::as_str).collect::<Vec<_>>(), "destinations");
    (!names.is_empty()).then(|| Notice::new(format!("Sending to {names} is paused."), "Open queue", Some("/queue")))
}

fn of_quota(name: &str, window: WindowView, now: Timestamp) -> Option<Notice> {
    let is_tight = window.limit > 0 && window.used.saturating_mul(5) >= window.limit.saturating_mul(4);
    let minutes = window.reset.saturating_sub(now.as_secs()).div_ceil(60);
    let (used, limit) = (grouped(window.used), grouped(window.limit));
    let sentence = format!("{used} of {limit} messages of this {name} used; resets in {minutes} min.");
    is_tight.then(|| Notice::new(sentence, "See quota", Some("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::alert::Severity;

    #[test]
    fn a_quota_is_a_notice_from_80_percent() {
        let window = |used| WindowView { limit: 10, used, remaining: 10 - used, reset: 120 };
        assert_eq!(of_quota("hour", window(7), Timestamp::ZERO), None);
        let notice = of_quota("hour", window(8), Timestamp::ZERO).unwrap();
        assert_eq!(notice.sentence, "8 of 10 messages of this hour used; resets in 2 min.");
    }

    #[test]
    fn alerts_are_counted_as_in_the_rail() {
        let of = |count, unnamed, summary: &str| {
            let open = OpenAlerts { count, worst: Some(Severity::Critical), summary: None };
            let summary = Some(summary.to_owned()).filter(|summary| !summary.is_empty());
            let unnamed = OpenAlerts { count: unnamed, worst: Some(Severity::Warning), summary };
            alerts(&open, unnamed, false).map(|notice| notice.sentence).unwrap_or_default()
        };
        assert_eq!(of(4, 2, ""), "4 open alerts, the worst critical.");
        assert_eq!(of(4, 1, "Quota used up"), "Quota used up (warning alert).");
        assert_eq!(of(120, 120, ""), "99+ open alerts, the worst critical.");
        let open = OpenAlerts { count: 2, worst: Some(Severity::Critical), summary: None };
        assert_eq!(alerts(&open, OpenAlerts::default(), false), None, "each alert has its own notice");
    }

    #[test]
    fn a_pause_names_its_destinations() {
        let of = |names: &[&str]| {
            let names: Vec<SiteName> = names.iter().map(|name| name.parse().unwrap()).collect();
            pauses(&names).map(|notice| notice.sentence)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["google", "a.example"]).as_deref(), Some("Sending to Gmail and a.example is paused."));
        let many = of(&["google", "a.example", "b.example"]);
        assert_eq!(many.as_deref(), Some("Sending to Gmail and 2 other destinations is paused."));
    }

    #[test]
    fn a_notice_is_absent_from_the_page_it_links_to() {
        let notice = Notice::new("", "", Some("/webhooks/whk_x"));
        assert!(notice.leads_to("/webhooks") && !notice.leads_to("/") && !notice.leads_to("/domains"));
        assert!(Notice::new("", "", Some("/")).leads_to("/"));
    }
}
