//! What stands around every page: the rail, the search box, who looks, and the strip that appears only when something
//! needs a person.

use super::assets::{Assets, assets};
use super::cookie::{Shortcuts, Theme};
use super::door::Visit;
use super::fault::Fault;
use super::moment::Moment;
use super::parts::Icon;
use crate::base::time::Timestamp;
use crate::domain::account::Account;
use crate::domain::sending_domain::DomainStatus;
use crate::engine::Engine;
use crate::engine::listing::PageRequest;
use crate::http::state::Api;
use crate::machine::quota::WindowView;
use crate::store::error::StoreError;
use crate::store::row::restored::HoldCause;

/// Sending domains that the strip looks at.
const DOMAINS_LOOKED_AT: usize = 100;

/// A place of the panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Where it is.
    pub(super) path: &'static str,
    /// Its name.
    pub(super) name: &'static str,
    icon: &'static str,
}

/// The rail, in its order. A place is listed when its page exists.
const RAIL: &[Place] = &[
    Place { path: "/", name: "Overview", icon: "gauge" },
    Place { path: "/messages", name: "Messages", icon: "mail" },
    Place { path: "/events", name: "Events", icon: "list" },
    Place { path: "/queue", name: "Queue", icon: "queue" },
    Place { path: "/domains", name: "Domains", icon: "globe" },
    Place { path: "/providers", name: "Providers", icon: "flag" },
    Place { path: "/webhooks", name: "Webhooks", icon: "hook" },
    Place { path: "/suppressions", name: "Suppressions", icon: "shield" },
    Place { path: "/keys", name: "API keys", icon: "key" },
    Place { path: "/smtp", name: "SMTP", icon: "inbox" },
    Place { path: "/settings", name: "Settings", icon: "sliders" },
    Place { path: "/users", name: "Users", icon: "people" },
    Place { path: "/audit", name: "Audit log", icon: "book" },
];

/// The mail that was captured: a place in `dev` alone.
const CAPTURED: Place = Place { path: "/captured", name: "Captured mail", icon: "inbox" };

/// The documentation, which needs no session.
const DOCS: Place = Place { path: "/docs", name: "Documentation", icon: "help" };

/// A line of the rail.
#[derive(Debug)]
pub(super) struct RailLine {
    /// Where it leads.
    pub(super) path: &'static str,
    /// Its name.
    pub(super) name: &'static str,
    /// Its sign.
    pub(super) icon: Icon,
    /// Whether this page belongs to it.
    pub(super) is_here: bool,
}

/// Something that needs a person.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// What it is.
    pub(super) sentence: String,
    /// What to do, and where.
    pub(super) action: &'static str,
    /// Where to do it; a page that does not exist yet gets no link.
    pub(super) path: Option<String>,
}

/// What every page has, signed in or not.
#[derive(Debug)]
pub(super) struct Sheet {
    /// Its title.
    pub(super) title: String,
    /// Its colours.
    pub(super) theme: Theme,
    /// What it loads.
    pub(super) assets: &'static Assets,
}

impl Sheet {
    /// A page of this title.
    pub(super) fn new(title: impl Into<String>, theme: Theme) -> Self {
        Self { title: title.into(), theme, assets: assets() }
    }
}

/// What stands around the page of somebody who is signed in.
#[derive(Debug)]
pub(super) struct Frame {
    /// The page as such.
    pub(super) sheet: Sheet,
    /// The account's name.
    pub(super) account: String,
    /// Who looks.
    pub(super) email: String,
    /// What they are.
    pub(super) role: &'static str,
    /// Whether they may change things.
    pub(super) may_change: bool,
    /// Whether the visitor may handle mail.
    pub(super) may_handle_mail: bool,
    /// The rail.
    pub(super) rail: Vec<RailLine>,
    /// What needs a person.
    pub(super) notices: Vec<Notice>,
    /// What the search box holds.
    pub(super) search: String,
    /// Whether single keys do something.
    pub(super) shortcuts: Shortcuts,
    /// What just happened, in one sentence.
    pub(super) done: Option<&'static str>,
}

impl Frame {
    /// The frame of a page that belongs to the rail's line `place`.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn new(visit: &Visit<'_>, title: impl Into<String>, place: &str) -> Result<Self, Fault> {
        let sheet = Sheet::new(title, Theme::of(&visit.call.headers));
        let user = visit.user();
        let line = |line: &Place| RailLine {
            path: line.path,
            name: line.name,
            icon: Icon(line.icon),
            is_here: line.path == place,
        };
        Ok(Self {
            sheet,
            account: visit.account.name.as_str().to_owned(),
            email: user.email.as_given().to_owned(),
            role: user.role.as_str(),
            may_change: user.role.may_change(),
            may_handle_mail: user.role.may_handle_mail(),
            rail: RAIL.iter().chain(visit.api.dev.as_ref().map(|_| &CAPTURED)).chain([&DOCS]).map(line).collect(),
            notices: notices(visit.api, &visit.account, visit.now)?,
            search: String::new(),
            shortcuts: Shortcuts::of(&visit.call.headers),
            done: None,
        })
    }

    /// The themes to choose from.
    pub(super) const fn themes(&self) -> &'static [Theme; 3] {
        &Theme::ALL
    }

    /// Whether single keys may do something, to choose from.
    pub(super) const fn shortcut_choices(&self) -> &'static [Shortcuts; 2] {
        &Shortcuts::ALL
    }

    /// The frame with a sentence about what just happened.
    #[must_use]
    pub(super) fn with_done(mut self, done: Option<&'static str>) -> Self {
        self.done = done;
        self
    }

    /// The frame with what was searched for.
    #[must_use]
    pub(super) fn with_search(mut self, search: impl Into<String>) -> Self {
        self.search = search.into();
        self
    }
}

/// A link to a place that exists.
fn link_to(path: &str) -> Option<String> {
    let first = path[1..].split('/').next().unwrap_or_default();
    RAIL.iter().any(|place| &place.path[1..] == first).then(|| path.to_owned())
}

fn notices(api: &Api, account: &Account, now: Timestamp) -> Result<Vec<Notice>, StoreError> {
    let engine = &api.engine;
    let mut notices = Vec::new();
    if let Some(suspension) = engine.suspension(account.id)? {
        let since = Moment::new(suspension.since, account.time_zone.zone()).text();
        notices.push(Notice {
            sentence: format!(
                "This account has been suspended since {since} ({}). It sends and changes nothing.",
                suspension.reason.as_str()
            ),
            action: "Ask the operator of this service",
            path: None,
        });
    }
    if let Some(restored) = engine.store.standstill()? {
        let at = Moment::new(restored.backup_at, account.time_zone.zone()).text();
        let sentence = match restored.cause {
            HoldCause::Restored => format!(
                "This service was restored from its backup of {at}. What waited then stands still, for it may have \
                 been sent since."
            ),
            HoldCause::JournalDamaged { .. } => format!(
                "This service was started on a damaged journal at {at}. Messages that were queued then are on hold, \
                 because they may have been sent already."
            ),
        };
        notices.push(Notice {
            sentence,
            action: "To send it all the same, run “postrider queue release” on the server",
            path: None,
        });
    }
    notices.extend(webhook_notices(engine, account)?);
    notices.extend(domain_notices(engine, account)?);
    notices.extend(pause_notice(engine.paused_sites(account.id)?));
    let quota = engine.quota(account)?;
    let windows = [("hour", quota.hour), ("day", quota.day)];
    notices.extend(windows.into_iter().filter_map(|(name, window)| quota_notice(name, window, now)));
    if engine.store.free_octets()? < engine.settings.min_free_octets.saturating_mul(4) {
        notices.push(Notice {
            sentence: "The disk is nearly full; below the limit no message is accepted.".to_owned(),
            action: "Make room on the server",
            path: None,
        });
    }
    Ok(notices)
}

fn webhook_notices(engine: &Engine, account: &Account) -> Result<Vec<Notice>, StoreError> {
    let endpoints = engine.endpoints(account.id, PageRequest { before: None, limit: 10 })?.rows;
    let disabled = endpoints.into_iter().filter(|(_, row)| row.state.disabled_at().is_some());
    Ok(disabled
        .map(|(id, row)| Notice {
            sentence: format!("The webhook {} was disabled after repeated failures.", row.url),
            action: "See why",
            path: link_to(&format!("/webhooks/{id}")),
        })
        .collect())
}

fn domain_notices(engine: &Engine, account: &Account) -> Result<Vec<Notice>, StoreError> {
    let domains = engine.domains(account.id, PageRequest { before: None, limit: DOMAINS_LOOKED_AT })?.rows;
    let failing = domains.into_iter().filter(|(_, row)| row.status == DomainStatus::Failing);
    Ok(failing
        .map(|(id, row)| Notice {
            sentence: format!("The DKIM record of {} has vanished; sending ends 72 hours after it was seen.", row.name),
            action: "See the record",
            path: link_to(&format!("/domains/{id}")),
        })
        .collect())
}

fn pause_notice(sites: usize) -> Option<Notice> {
    let what = match sites {
        0 => return None,
        1 => "one site".to_owned(),
        many => format!("{many} sites"),
    };
    let sentence = format!("Mail for {what} is paused.");
    Some(Notice { sentence, action: "Look at the queue", path: link_to("/queue") })
}

fn quota_notice(name: &str, window: WindowView, now: Timestamp) -> Option<Notice> {
    let is_tight = window.limit > 0 && window.used.saturating_mul(5) >= window.limit.saturating_mul(4);
    let minutes = window.reset.saturating_sub(now.as_secs()).div_ceil(60);
    is_tight.then(|| Notice {
        sentence: format!(
            "{} of {} messages of this {name} are sent; it ends in {minutes} min.",
            window.used, window.limit
        ),
        action: "See the quota",
        path: Some("/".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_needs_a_person_from_four_fifths_on() {
        let window = |used| WindowView { limit: 10, used, remaining: 10 - used, reset: 120 };
        assert_eq!(quota_notice("hour", window(7), Timestamp::ZERO), None);
        let notice = quota_notice("hour", window(8), Timestamp::ZERO).unwrap();
        assert_eq!(notice.sentence, "8 of 10 messages of this hour are sent; it ends in 2 min.");
    }

    #[test]
    fn no_link_leads_to_a_page_that_is_not_there() {
        assert_eq!(link_to("/messages/x").as_deref(), Some("/messages/x"));
        assert_eq!(link_to("/nowhere/x"), None);
    }
}
