//! SMTP submission: settings for other programs, and the latest refusals.

use askama::Template;
use hyper::StatusCode;

use crate::engine::settings::{SMTP_USERNAME, SmtpAddress};
use crate::engine::smtp_submission::SmtpRefusal;
use crate::http::answer::Answer;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::record_card::curl;
use crate::panel::timestamp::Moment;

#[derive(Template)]
#[template(path = "smtp.html")]
struct SmtpPage {
    frame: PageFrame,
    /// Name, value and element ID of each setting. `None` if SMTP submission is not configured.
    settings: Option<Vec<(&'static str, String, &'static str)>>,
    refusals: Vec<RefusalLine>,
    curl: String,
}

/// A refusal in the list.
struct RefusalLine {
    at: Moment,
    stage: &'static str,
    reply: String,
    from: String,
    to: String,
    client: String,
    key_prefix: String,
    key_path: String,
}

impl RefusalLine {
    fn new(visit: &Visit<'_>, refusal: SmtpRefusal) -> Self {
        let client = match refusal.client_name.as_str() {
            "" => refusal.client_address,
            name => format!("{name} [{}]", refusal.client_address),
        };
        Self {
            at: visit.moment(refusal.at),
            stage: refusal.stage.as_str(),
            reply: refusal.reply,
            from: if refusal.from.is_empty() { refusal.mail_from } else { refusal.from },
            to: refusal.to,
            client,
            key_prefix: refusal.key_prefix,
            key_path: format!("/keys/{}", refusal.key),
        }
    }
}

fn settings(address: &SmtpAddress) -> Vec<(&'static str, String, &'static str)> {
    let mut settings = vec![("Host", address.host.clone(), "copy-host")];
    let name = if address.offers_starttls { "Port with STARTTLS" } else { "Port without encryption" };
    settings.extend(address.port.map(|port| (name, port.to_string(), "copy-port")));
    settings.extend(address.tls_port.map(|port| ("Port with SSL/TLS", port.to_string(), "copy-tls-port")));
    settings.push(("User name", SMTP_USERNAME.to_owned(), "copy-user"));
    settings
}

/// `GET /smtp`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let engine = &visit.api.engine;
    let refusals = engine.smtp_refusals.of(visit.account_id(), None);
    let page = SmtpPage {
        frame: PageFrame::new(&visit, "SMTP", "/smtp")?,
        settings: engine.settings.smtp.get().map(settings),
        refusals: refusals.into_iter().map(|refusal| RefusalLine::new(&visit, refusal)).collect(),
        curl: curl(&visit, "/v1/submission-refusals"),
    };
    html::page(StatusCode::OK, &page)
}
