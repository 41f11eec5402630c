//! First steps of an account that has not sent anything. Steps are ticked automatically, and a form sends a test
//! message.

use super::components::Choice;
use super::form::Form;
use super::page_error::PageError;
use super::page_guard::Visit;
use crate::domain::sending_domain::DomainStatus;
use crate::domain::stream::Stream;
use crate::engine::listing::PageRequest;

/// Maximum number of rows read for each kind.
const LOOKED_AT: usize = 100;

/// State of the first steps.
pub(super) struct FirstSteps {
    /// Whether a domain is verified.
    pub(super) has_domain: bool,
    /// Whether an active key exists.
    pub(super) has_key: bool,
    /// Whether a webhook exists.
    pub(super) has_webhook: bool,
    /// Sender of the test message. `None` before a domain is verified.
    pub(super) sender: Option<Sender>,
    /// The recipient of the test message: the visitor's own address.
    pub(super) to: String,
    /// Why the test message was refused; empty if it was not.
    pub(super) fault: String,
    /// The languages of the example.
    pub(super) languages: Vec<Choice>,
    /// Code example.
    pub(super) example: String,
}

/// Sender of a test message.
pub(super) struct Sender {
    /// Address of the sender.
    pub(super) address: String,
    /// Stream of the sender's domain.
    pub(super) stream: Stream,
}

/// Language of the code example.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Curl,
    Node,
    Python,
    Php,
}

impl Language {
    const ALL: [Self; 4] = [Self::Curl, Self::Node, Self::Python, Self::Php];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Node => "node",
            Self::Python => "python",
            Self::Php => "php",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Node => "Node.js",
            Self::Python => "Python",
            Self::Php => "PHP",
        }
    }

    fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|language| language.as_str() == name).unwrap_or(Self::Curl)
    }

    /// Returns a program that sends one message with the language's standard library alone.
    fn example(self, url: &str, from: &str) -> String {
        let json = format!(
            "{{\"from\": \"{from}\", \"to\": \"you@example.org\", \"subject\": \"Hello\", \"text\": \"It works.\"}}"
        );
        match self {
            Self::Curl => format!(
                "curl {url}/v1/messages \\\n  -H \"Authorization: Bearer $POSTRIDER_API_KEY\" \
                 -H 'Content-Type: application/json' \\\n  -d '{json}'"
            ),
            Self::Node => format!(
                "await fetch(\"{url}/v1/messages\", {{\n  method: \"POST\",\n  headers: {{\n    \
                 \"Authorization\": `Bearer ${{process.env.POSTRIDER_API_KEY}}`,\n    \
                 \"Content-Type\": \"application/json\",\n  }},\n  body: JSON.stringify({json}),\n}});"
            ),
            Self::Python => format!(
                "import json, os, urllib.request\n\nurllib.request.urlopen(urllib.request.Request(\n    \
                 \"{url}/v1/messages\",\n    json.dumps({json}).encode(),\n    \
                 {{\"Authorization\": \"Bearer \" + os.environ[\"POSTRIDER_API_KEY\"],\n     \
                 \"Content-Type\": \"application/json\"}},\n))"
            ),
            Self::Php => format!(
                "<?php\necho file_get_contents('{url}/v1/messages', false, stream_context_create(['http' => [\n    \
                 'method' => 'POST',\n    'header' => \"Authorization: Bearer \" . \
                 getenv('POSTRIDER_API_KEY') . \"\\r\\nContent-Type: application/json\",\n    \
                 'content' => '{json}',\n]]));"
            ),
        }
    }
}

impl FirstSteps {
    /// The steps of the account, with the reason if the test message was refused.
    ///
    /// # Errors
    /// Store errors.
    pub(super) fn of(visit: &Visit<'_>, fault: String) -> Result<Self, PageError> {
        let (engine, account) = (&visit.api.engine, visit.account_id());
        let some = PageRequest { before: None, limit: LOOKED_AT };
        let sender = sender(visit)?;
        let url = engine.settings.public_url.get().map_or("", |url| url.trim_end_matches('/'));
        let from = sender.as_ref().map_or("hello@your-domain.example", |sender| sender.address.as_str());
        let language = Language::named(Form::of_query(&visit.call).text("code"));
        let choice = |known: Language| Choice {
            words: known.words().to_owned(),
            path: format!("/?code={}#first-code", known.as_str()),
            is_here: known == language,
        };
        Ok(Self {
            has_domain: sender.is_some(),
            has_key: engine.keys(account, some)?.rows.iter().any(|key| key.is_live(visit.now)),
            has_webhook: !engine.endpoints(account, some)?.rows.is_empty(),
            to: visit.user().email.as_given().to_owned(),
            fault,
            languages: Language::ALL.map(choice).into(),
            example: language.example(url, from),
            sender,
        })
    }
}

/// Returns the sender of a test message: an address at the oldest verified domain, preferably a transactional one.
///
/// # Errors
/// Store errors.
pub(super) fn sender(visit: &Visit<'_>) -> Result<Option<Sender>, PageError> {
    let page = PageRequest { before: None, limit: LOOKED_AT };
    let domains = visit.api.engine.domains(visit.account_id(), page)?.rows;
    let verified = domains.into_iter().rev().filter(|(_, row)| row.status == DomainStatus::Verified);
    let chosen = verified.min_by_key(|(_, row)| row.stream != Stream::Transactional);
    Ok(chosen.map(|(_, row)| Sender { address: format!("hello@{}", row.name), stream: row.stream }))
}
