//! The frame of every page: the rail, the field that searches and opens, the visitor, the banner of an operator's view,
//! and the strip of notices, which appears only when something needs attention.

use hyper::Method;

use super::assets::{Assets, assets};
use super::components::Icon;
use super::cookie::{Shortcuts, Theme};
use super::notice::{Notice, notices};
use super::page_error::Fault;
use super::page_guard::{Need, Visit};
use super::timestamp::Moment;
use crate::domain::sending_domain::DomainStatus;
use crate::engine::listing::PageRequest;
use crate::machine::endpoint::State;
use crate::store::error::StoreError;

/// Rows of each kind that the rail's counts look at.
const COUNTED_MAX: usize = 100;

/// A place of the panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Its address.
    pub(super) path: &'static str,
    /// Its name.
    pub(super) name: &'static str,
    icon: &'static str,
    /// The right that the page demands. Visitors without it do not find the place in the rail.
    need: Need,
}

impl Place {
    const fn new(path: &'static str, name: &'static str, icon: &'static str, need: Need) -> Self {
        Self { path, name, icon, need }
    }
}

/// A group of places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    name: &'static str,
    places: &'static [Place],
}

/// Mail that was captured: a place in `dev` alone.
const CAPTURED: &str = "/captured";

/// The rail, in its order. A place is listed when its page exists.
const RAIL: &[Group] = &[
    Group {
        name: "Mail",
        places: &[
            Place::new("/", "Overview", "gauge", Need::Look),
            Place::new("/messages", "Messages", "mail", Need::Look),
            Place::new("/events", "Events", "list", Need::Look),
            Place::new("/queue", "Queue", "queue", Need::Look),
            Place::new("/providers", "Providers", "flag", Need::Look),
            Place::new("/alerts", "Alerts", "bell", Need::Look),
            Place::new(CAPTURED, "Captured mail", "inbox", Need::Private),
        ],
    },
    Group {
        name: "Setup",
        places: &[
            Place::new("/domains", "Domains", "globe", Need::Look),
            Place::new("/webhooks", "Webhooks", "hook", Need::Look),
            Place::new("/keys", "API keys", "key", Need::Look),
            Place::new("/smtp", "SMTP", "plug", Need::Look),
            Place::new("/suppressions", "Suppressions", "shield", Need::Look),
        ],
    },
    Group {
        name: "Account",
        places: &[
            Place::new("/users", "Users", "people", Need::Look),
            Place::new("/audit", "Audit log", "book", Need::Look),
            Place::new("/settings", "Settings", "sliders", Need::Look),
        ],
    },
    Group {
        name: "Operator",
        places: &[
            Place::new("/system", "System", "server", Need::Operate),
            Place::new("/accounts", "Accounts", "building", Need::Operate),
        ],
    },
];

/// The documentation, which needs no session.
const DOCS: Place = Place::new("/docs", "Documentation", "help", Need::Look);

/// The places that the visitor finds in the rail.
pub(super) fn places<'p>(visit: &'p Visit<'_>) -> impl Iterator<Item = &'static Place> + 'p {
    RAIL.iter().flat_map(|group| group.places).filter(|place| is_found(visit, place))
}

fn is_found(visit: &Visit<'_>, place: &Place) -> bool {
    visit.may(place.need, &Method::GET) && (place.path != CAPTURED || visit.api.dev.is_some())
}

/// A line of the rail.
#[derive(Debug)]
pub(super) struct RailLine {
    /// Its address.
    pub(super) path: &'static str,
    /// Its name.
    pub(super) name: &'static str,
    /// Its sign.
    pub(super) icon: Icon,
    /// Whether this page belongs to it.
    pub(super) is_here: bool,
    /// A number beside the name, and its meaning.
    pub(super) count: Option<Count>,
}

/// A number beside a name of the rail.
#[derive(Debug)]
pub(super) struct Count {
    /// The number.
    pub(super) number: String,
    /// Its meaning.
    pub(super) words: &'static str,
    /// Whether it tells of trouble.
    pub(super) is_trouble: bool,
}

/// A group of the rail.
#[derive(Debug)]
pub(super) struct RailGroup {
    /// Its name.
    pub(super) name: &'static str,
    /// Its lines.
    pub(super) lines: Vec<RailLine>,
}

/// Common parts of every page, signed in or not.
#[derive(Debug)]
pub(super) struct PageFrame {
    /// Its title.
    pub(super) title: String,
    /// Its colours.
    pub(super) theme: Theme,
    /// Assets that the page loads.
    pub(super) assets: &'static Assets,
}

impl PageFrame {
    /// A page of this title.
    pub(super) fn new(title: impl Into<String>, theme: Theme) -> Self {
        Self { title: title.into(), theme, assets: assets() }
    }
}

/// The banner of an operator's view.
#[derive(Debug)]
pub(super) struct ViewBanner {
    /// The end of the view.
    pub(super) until: Moment,
    /// The operator's reason.
    pub(super) reason: String,
}

/// The form that takes the last action back.
#[derive(Debug)]
pub(super) struct Undo {
    /// Where it goes.
    pub(super) action: String,
    /// The name and the value of its field.
    pub(super) field: Option<(&'static str, String)>,
}

/// Frame of a page for a signed-in user.
#[derive(Debug)]
pub(super) struct Frame {
    /// The page as such.
    pub(super) sheet: PageFrame,
    /// The account's name.
    pub(super) account: String,
    /// The visitor's address.
    pub(super) email: String,
    /// The visitor's role.
    pub(super) role: &'static str,
    /// Whether the visitor may change things.
    pub(super) may_change: bool,
    /// Whether the visitor may handle mail.
    pub(super) may_handle_mail: bool,
    /// Whether the visitor may see whole records and take files away.
    pub(super) sees_all: bool,
    /// The rail.
    pub(super) rail: Vec<RailGroup>,
    /// The documentation.
    pub(super) docs: RailLine,
    /// The name of the rail's line that the page belongs to.
    pub(super) section: &'static str,
    /// The operator's view that lasts.
    pub(super) view: Option<ViewBanner>,
    /// The notices.
    pub(super) notices: Vec<Notice>,
    /// The content of the search field.
    pub(super) search: String,
    /// Whether single keys do something.
    pub(super) shortcuts: Shortcuts,
    /// Result of the last action, in one sentence.
    pub(super) done: Option<String>,
    /// The form that takes it back, where that is one step.
    pub(super) undo: Option<Undo>,
}

impl Frame {
    /// The frame of a page that belongs to the rail's line `place`.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn new(visit: &Visit<'_>, title: impl Into<String>, place: &str) -> Result<Self, Fault> {
        let sheet = PageFrame::new(title, Theme::of(&visit.call.headers));
        let user = visit.user();
        let view = visit
            .view()
            .map(|view| ViewBanner { until: visit.moment(view.until), reason: view.reason.as_str().to_owned() });
        Ok(Self {
            sheet,
            account: visit.account.name.as_str().to_owned(),
            email: user.email.as_given().to_owned(),
            role: if view.is_some() { "operator" } else { user.role.as_str() },
            may_change: visit.may_send(Need::Change),
            may_handle_mail: visit.may_send(Need::Handle),
            sees_all: visit.may(Need::Private, &Method::GET),
            rail: rail(visit, place)?,
            docs: line(&DOCS, place, None),
            section: places(visit).find(|known| known.path == place).map_or("Postrider", |known| known.name),
            view,
            notices: notices(visit, place)?,
            search: String::new(),
            shortcuts: Shortcuts::of(&visit.call.headers),
            done: None,
            undo: None,
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
    pub(super) fn with_done<S: Into<String>>(mut self, done: Option<S>) -> Self {
        self.done = done.map(Into::into);
        self
    }

    /// The frame with a form that takes back what just happened.
    #[must_use]
    pub(super) fn with_undo(mut self, undo: Option<Undo>) -> Self {
        self.undo = undo;
        self
    }

    /// The frame with what was searched for.
    #[must_use]
    pub(super) fn with_search(mut self, search: impl Into<String>) -> Self {
        self.search = search.into();
        self
    }
}

fn rail(visit: &Visit<'_>, here: &str) -> Result<Vec<RailGroup>, StoreError> {
    let mut groups = Vec::with_capacity(RAIL.len());
    for group in RAIL {
        let found = group.places.iter().filter(|place| is_found(visit, place));
        let lines = found.map(|place| Ok(line(place, here, count(visit, place.path)?)));
        let lines: Vec<_> = lines.collect::<Result<_, StoreError>>()?;
        if !lines.is_empty() {
            groups.push(RailGroup { name: group.name, lines });
        }
    }
    Ok(groups)
}

fn line(place: &Place, here: &str, count: Option<Count>) -> RailLine {
    RailLine { path: place.path, name: place.name, icon: Icon(place.icon), is_here: place.path == here, count }
}

/// The number beside a place: waiting messages, domains that are not verified, webhooks that fail. Zero is not shown.
fn count(visit: &Visit<'_>, path: &str) -> Result<Option<Count>, StoreError> {
    let (engine, account) = (&visit.api.engine, visit.account_id());
    let page = PageRequest { before: None, limit: COUNTED_MAX };
    let (number, words, is_trouble) = match path {
        "/queue" => (engine.waiting_count(account, COUNTED_MAX)?, "waiting", false),
        "/domains" => {
            let domains = engine.domains(account, page)?.rows;
            (domains.iter().filter(|(_, row)| row.status != DomainStatus::Verified).count(), "not verified", true)
        }
        "/webhooks" => {
            let endpoints = engine.endpoints(account, page)?.rows;
            let fails = |state: &State| state.consecutive_failures() > 0 || state.disabled_at().is_some();
            (endpoints.iter().filter(|(_, row)| fails(&row.state)).count(), "failing", true)
        }
        _ => return Ok(None),
    };
    let text = if number >= COUNTED_MAX { format!("{}+", COUNTED_MAX - 1) } else { number.to_string() };
    Ok((number > 0).then_some(Count { number: text, words, is_trouble }))
}

/// A link to a place that exists.
pub(super) fn link_to(path: &str) -> Option<String> {
    let section = |path: &str| path.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default().to_owned();
    let is_place = RAIL.iter().flat_map(|group| group.places).any(|place| section(place.path) == section(path));
    is_place.then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_leads_to_a_page_that_is_not_there() {
        assert_eq!(link_to("/messages/x").as_deref(), Some("/messages/x"));
        assert_eq!(link_to("/messages?status=queued").as_deref(), Some("/messages?status=queued"));
        assert_eq!(link_to("/nowhere/x"), None);
    }

    #[test]
    fn every_place_is_a_row_of_the_table_with_the_same_address() {
        let routes = crate::panel::routes();
        for place in RAIL.iter().flat_map(|group| group.places).chain([&DOCS]) {
            assert!(routes.iter().any(|route| route.path == place.path), "{}", place.path);
        }
    }
}
