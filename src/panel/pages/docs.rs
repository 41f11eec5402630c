//! Documentation of this version: `docs/*.md`, rendered as pages that need no session. The source tree has the same
//! files. Only the API reference is generated, from the API description.

use std::sync::LazyLock;

use askama::Template;
use hyper::StatusCode;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, html};

use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::openapi;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::panel::cookie::Theme;
use crate::panel::html as answers;
use crate::panel::layout::BasePage;
use crate::panel::page_error::PageError;

/// Start page of the documentation.
const FRONT: &str = "index";

/// Lists the files by name, in navigation order.
macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../../docs/", $name, ".md")))),+]
    };
}

/// Every file except `api`, which would duplicate the API description.
static FILES: [(&str, &str); 24] = files![
    "index",
    "install",
    "first-message",
    "testing",
    "domains",
    "dmarc",
    "providers",
    "webhooks",
    "smtp",
    "search",
    "errors",
    "clients",
    "compat",
    "moving",
    "proxy",
    "smarthost",
    "oidc",
    "backup",
    "replication",
    "upgrade",
    "metrics",
    "alerts",
    "troubleshooting",
    "dependencies",
];

/// A documentation page, ready to render.
#[derive(Debug)]
struct Page {
    name: &'static str,
    title: String,
    body: String,
}

/// Position of the API reference among the files.
const API_PLACE: usize = 9;

static PAGES: LazyLock<Vec<Page>> = LazyLock::new(|| {
    let (before, after) = FILES.split_at(API_PLACE);
    let file = |(name, markdown): &(&'static str, &str)| Page::of(name, markdown);
    let api = Page::of("api", &openapi::for_people());
    before.iter().map(file).chain([api]).chain(after.iter().map(file)).collect()
});

#[derive(Template)]
#[template(path = "docs.html")]
struct DocsPage<'a> {
    base: BasePage,
    here: &'a str,
    body: &'a str,
    pages: &'a [Page],
}

impl Page {
    fn of(name: &'static str, markdown: &str) -> Self {
        let title = markdown.lines().next().unwrap_or_default().trim_start_matches("# ").to_owned();
        Self { name, title, body: written(markdown) }
    }

    /// Returns the path of the page.
    fn path(&self) -> String {
        if self.name == FRONT { "/docs".to_owned() } else { format!("/docs/{}", self.name) }
    }
}

/// `GET /docs`.
pub(in crate::panel) async fn front(_: &Api, call: Call<()>) -> Result<Answer, PageError> {
    show(&call, FRONT)
}

/// `GET /docs/{name}`.
pub(in crate::panel) async fn page(_: &Api, call: Call<()>) -> Result<Answer, PageError> {
    show(&call, call.param("name"))
}

fn show(call: &Call<()>, name: &str) -> Result<Answer, PageError> {
    let page = PAGES.iter().find(|page| page.name == name).ok_or(ApiError::NotFound)?;
    let base = BasePage::new(page.title.clone(), Theme::of(&call.headers));
    answers::page(StatusCode::OK, &DocsPage { base, here: page.name, body: &page.body, pages: &PAGES })
}

/// Renders Markdown as HTML. Headings get anchors, and links to other files lead to their pages.
fn written(markdown: &str) -> String {
    let events = Parser::new_ext(markdown, Options::ENABLE_TABLES).collect::<Vec<_>>();
    let mut out = String::new();
    html::push_html(&mut out, linked(events).into_iter());
    out
}

fn linked(mut events: Vec<Event<'_>>) -> Vec<Event<'_>> {
    for at in 0..events.len() {
        let text = match &events[at] {
            Event::Start(Tag::Heading { level: HeadingLevel::H2 | HeadingLevel::H3, .. }) => text_behind(&events[at..]),
            _ => String::new(),
        };
        match &mut events[at] {
            Event::Start(Tag::Heading { id, .. }) if !text.is_empty() => *id = Some(anchor(&text).into()),
            Event::Start(Tag::Link { dest_url, .. }) => {
                if let Some(path) = path_of(dest_url) {
                    *dest_url = CowStr::from(path);
                }
            }
            _ => {}
        }
    }
    events
}

/// Returns the text of the heading at the start of `events`.
fn text_behind(events: &[Event<'_>]) -> String {
    let inside = events.iter().take_while(|event| !matches!(event, Event::End(_)));
    inside
        .filter_map(|event| if let Event::Text(text) | Event::Code(text) = event { Some(&**text) } else { None })
        .collect()
}

/// Returns the anchor of a heading, in the format of Git forges.
fn anchor(heading: &str) -> String {
    let kept = heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .collect::<String>();
    kept.replace(' ', "-")
}

/// Converts a link to another file to its page. Returns `None` for other links.
fn path_of(link: &str) -> Option<String> {
    let (file, fragment) = link.split_once('#').map_or((link, None), |(file, fragment)| (file, Some(fragment)));
    let name = file.strip_suffix(".md")?;
    let page = if name == FRONT { "/docs".to_owned() } else { format!("/docs/{name}") };
    Some(fragment.map_or(page.clone(), |fragment| format!("{page}#{fragment}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_rendered_with_heading_anchors_and_page_links() {
        let page =
            written("# Title\n\n## What `it` is\n\n[there](other.md#part) and [out](https://example.org/x.md)\n");
        assert!(page.contains(r#"<h2 id="what-it-is">"#), "{page}");
        assert!(page.contains(r#"href="/docs/other#part""#), "{page}");
        assert!(page.contains("<h1>Title</h1>"), "{page}");
    }

    #[test]
    fn every_file_is_listed_and_links_between_files_resolve() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(name) = name.strip_suffix(".md") {
                assert!(PAGES.iter().any(|page| page.name == name), "docs/{name}.md is not served");
            }
        }
        for page in PAGES.iter() {
            for (at, _) in page.body.match_indices("href=\"/docs") {
                let link = page.body[at + 6..].split('"').next().unwrap();
                let (path, fragment) = link.split_once('#').map_or((link, None), |(path, id)| (path, Some(id)));
                let target = PAGES.iter().find(|page| page.path() == path);
                let target = target.unwrap_or_else(|| panic!("{}: {link} leads nowhere", page.name));
                let is_there = fragment.is_none_or(|id| target.body.contains(&format!("id=\"{id}\"")));
                assert!(is_there, "{}: {link} leads to no heading", page.name);
            }
        }
    }

    #[test]
    fn every_error_code_has_a_heading_in_the_error_reference() {
        let (_, errors) = FILES.iter().find(|(name, _)| *name == "errors").unwrap();
        let described = include_str!("../../../docs/openapi.json");
        let described: serde_json::Value = serde_json::from_str(described).unwrap();
        let codes = &described["components"]["schemas"]["ErrorCode"]["enum"];
        let mut codes: Vec<_> = codes.as_array().unwrap().iter().filter_map(|code| code.as_str()).collect();
        codes.sort_unstable();
        let mut listed: Vec<_> = errors.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        listed.sort_unstable();
        assert_eq!(listed, codes);
    }
}
