//! Frame of every page: navigation rail, search field, visitor, banner of an operator's view, and notices. The strip of
//! notices appears only when something needs attention.

use hyper::Method;

use super::assets::{Assets, assets};
use super::components::Icon;
use super::cookie::{Shortcuts, Theme};
use super::notice::{Notice, notices};
use super::page_error::PageError;
use super::page_guard::{Need, Visit};
use super::timestamp::Moment;
use crate::domain::sending_domain::DomainStatus;
use crate::engine::listing::PageRequest;
use crate::machine::endpoint::State;
use crate::store::error::StoreError;

/// Maximum number of rows that a rail count reads for each kind.
const COUNTED_MAX: usize = 100;

/// A page in the rail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Path of the page.
    pub(super) path: &'static str,
    /// Name of the page.
    pub(super) name: &'static str,
    icon: &'static str,
    /// Right that the page requires. Visitors without the right don't see the page in the rail.
    need: Need,
}

impl Place {
    const fn new(path: &'static str, name: &'static str, icon: &'static str, need: Need) -> Self {
        Self { path, name, icon, need }
    }
}

/// A group of pages in the rail.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    name: &'static str,
    places: &'static [Place],
}

/// Captured mail. The page exists only in `dev`.
const CAPTURED: &str = "/captured";

/// The rail, in order. Every page in it must exist.
const RAIL: &[Group] = &[
    Group {
        name: "Mail",
        places: &[
            Place::new("/", "Overview", "gauge", Need::Look),
            Place::new("/messages", "Messages", "mail", Need::Look),
            Place::new("/events", "Events", "list", Need::Look),
            Place::new("/queue", "Queue", "queue", Need::Look),
            Place::new("/providers", "Providers", "flag", Need::Look),
            Place::new("/explain", "Explain headers", "page", Need::Look),
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

/// The documentation. It needs no session.
const DOCS: Place = Place::new("/docs", "Documentation", "help", Need::Look);

/// Returns the pages that the visitor sees in the rail.
pub(super) fn places<'p>(visit: &'p Visit<'_>) -> impl Iterator<Item = &'static Place> + 'p {
    RAIL.iter().flat_map(|group| group.places).filter(|place| is_found(visit, place))
}

fn is_found(visit: &Visit<'_>, place: &Place) -> bool {
    visit.may(place.need, &Method::GET) && (place.path != CAPTURED || visit.api.dev.is_some())
}

/// A line of the rail.
#[derive(Debug)]
pub(super) struct RailLine {
    /// Path of the page.
    pub(super) path: &'static str,
    /// Name of the page.
    pub(super) name: &'static str,
    /// Icon of the page.
    pub(super) icon: Icon,
    /// Whether the current page belongs to this line.
    pub(super) is_here: bool,
    /// Number beside the name.
    pub(super) count: Option<Count>,
}

/// A number beside a name in the rail.
#[derive(Debug)]
pub(super) struct Count {
    /// The number.
    pub(super) number: String,
    /// Meaning of the number, for screen readers.
    pub(super) words: &'static str,
    /// Whether the number reports a problem.
    pub(super) is_problem: bool,
}

/// A group of the rail.
#[derive(Debug)]
pub(super) struct RailGroup {
    /// Name of the group.
    pub(super) name: &'static str,
    /// Lines of the group.
    pub(super) lines: Vec<RailLine>,
}

/// Common parts of every page, signed in or not.
#[derive(Debug)]
pub(super) struct BasePage {
    /// Title of the page.
    pub(super) title: String,
    /// Colour theme.
    pub(super) theme: Theme,
    /// Assets that the page loads.
    pub(super) assets: &'static Assets,
}

impl BasePage {
    /// Creates the frame of a page with this title.
    pub(super) fn new(title: impl Into<String>, theme: Theme) -> Self {
        Self { title: title.into(), theme, assets: assets() }
    }
}

/// The banner of an operator's view.
#[derive(Debug)]
pub(super) struct ViewBanner {
    /// End of the view.
    pub(super) until: Moment,
    /// The operator's reason.
    pub(super) reason: String,
}

/// Form that undoes the last action.
#[derive(Debug)]
pub(super) struct Undo {
    /// Path that the form posts to.
    pub(super) action: String,
    /// Name and value of the form's field.
    pub(super) field: Option<(&'static str, String)>,
}

/// Frame of a page for a signed-in user.
#[derive(Debug)]
pub(super) struct PageFrame {
    /// Common page parts.
    pub(super) base: BasePage,
    /// Name of the account.
    pub(super) account: String,
    /// Email address of the visitor.
    pub(super) email: String,
    /// Role of the visitor.
    pub(super) role: &'static str,
    /// Whether the account is suspended. Its forms are then refused, so pages don't show them.
    pub(super) is_suspended: bool,
    /// Whether the visitor may change settings.
    pub(super) may_change: bool,
    /// Whether the visitor may handle mail.
    pub(super) may_handle_mail: bool,
    /// Whether the visitor may see whole records and download files.
    pub(super) sees_all: bool,
    /// Navigation rail.
    pub(super) rail: Vec<RailGroup>,
    /// Link to the documentation.
    pub(super) docs: RailLine,
    /// Name of the time zone of the page's times.
    pub(super) zone_name: String,
    /// Name of the rail line that the page belongs to.
    pub(super) section: &'static str,
    /// Banner of the current operator view.
    pub(super) view: Option<ViewBanner>,
    /// Notices that need attention.
    pub(super) notices: Vec<Notice>,
    /// Content of the search field.
    pub(super) search: String,
    /// Number of the page for its forms whose answer shows a secret ([`super::sent_once`]).
    pub(super) once: String,
    /// Whether single-key shortcuts are active.
    pub(super) shortcuts: Shortcuts,
    /// Result of the last action, in one sentence.
    pub(super) done: Option<String>,
    /// Whether the result of the last action needs attention.
    pub(super) needs_attention: bool,
    /// Form that undoes the last action, if one step can.
    pub(super) undo: Option<Undo>,
}

impl PageFrame {
    /// Creates the frame of a page that belongs to the rail line `place`.
    ///
    /// # Errors
    /// Store errors.
    pub(super) fn new(visit: &Visit<'_>, title: impl Into<String>, place: &str) -> Result<Self, PageError> {
        let base = BasePage::new(title, Theme::of(&visit.call.headers));
        let user = visit.user();
        let view = visit
            .view()
            .map(|view| ViewBanner { until: visit.moment(view.until), reason: view.reason.as_str().to_owned() });
        let is_suspended = visit.api.engine.suspension(visit.account_id())?.is_some();
        Ok(Self {
            base,
            is_suspended,
            account: visit.account.name.as_str().to_owned(),
            email: user.email.as_given().to_owned(),
            role: if view.is_some() { "operator" } else { user.role.as_str() },
            may_change: !is_suspended && visit.may_send(Need::Change),
            may_handle_mail: !is_suspended && visit.may_send(Need::Handle),
            sees_all: visit.may(Need::Private, &Method::GET),
            rail: rail(visit, place)?,
            docs: line(&DOCS, place, None),
            zone_name: visit.moment(visit.now).zone_name(),
            section: places(visit).find(|known| known.path == place).map_or("Postrider", |known| known.name),
            view,
            notices: notices(visit, place)?,
            search: String::new(),
            once: visit.api.sent_forms.number(&*visit.api.engine.entropy),
            shortcuts: Shortcuts::of(&visit.call.headers),
            done: None,
            needs_attention: false,
            undo: None,
        })
    }

    /// Returns the themes to choose from.
    pub(super) const fn themes(&self) -> &'static [Theme; 3] {
        &Theme::ALL
    }

    /// Returns the shortcut settings to choose from.
    pub(super) const fn shortcut_choices(&self) -> &'static [Shortcuts; 2] {
        &Shortcuts::ALL
    }

    /// Adds a sentence about the finished action.
    #[must_use]
    pub(super) fn with_done<S: Into<String>>(mut self, done: Option<S>) -> Self {
        self.done = done.map(Into::into);
        self
    }

    /// Sets whether the result of the finished action needs attention.
    #[must_use]
    pub(super) const fn with_attention(mut self, needs_attention: bool) -> Self {
        self.needs_attention = needs_attention;
        self
    }

    /// Adds a form that undoes the finished action.
    #[must_use]
    pub(super) fn with_undo(mut self, undo: Option<Undo>) -> Self {
        self.undo = undo;
        self
    }

    /// Adds the content of the search field.
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

/// Returns the number beside a page: waiting messages, open alerts, unverified domains, failing webhooks. Zero is not
/// shown.
fn count(visit: &Visit<'_>, path: &str) -> Result<Option<Count>, StoreError> {
    let (engine, account) = (&visit.api.engine, visit.account_id());
    let page = PageRequest { before: None, limit: COUNTED_MAX };
    let (number, words, is_problem) = match path {
        "/queue" => (engine.waiting_count(account, COUNTED_MAX)?, "waiting", false),
        "/alerts" => (engine.open_alerts(visit.alerts())?.count, "open", true),
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
    Ok((number > 0).then(|| Count { number: rail_number(number), words, is_problem }))
}

/// Formats a number as the rail shows it.
pub(super) fn rail_number(number: usize) -> String {
    if number >= COUNTED_MAX { format!("{}+", COUNTED_MAX - 1) } else { number.to_string() }
}

/// Returns the path if the rail has a page there.
pub(super) fn link_to(path: &str) -> Option<String> {
    let section = |path: &str| path.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default().to_owned();
    let is_place = RAIL.iter().flat_map(|group| group.places).any(|place| section(place.path) == section(path));
    is_place.then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rail_links_lead_to_existing_pages() {
        assert_eq!(link_to("/messages/x").as_deref(), Some("/messages/x"));
        assert_eq!(link_to("/messages?status=queued").as_deref(), Some("/messages?status=queued"));
        assert_eq!(link_to("/nowhere/x"), None);
    }

    #[test]
    fn every_rail_page_is_a_route_with_the_same_path() {
        let routes = crate::panel::routes();
        for place in RAIL.iter().flat_map(|group| group.places).chain([&DOCS]) {
            assert!(routes.iter().any(|route| route.path == place.path), "{}", place.path);
        }
    }
}
