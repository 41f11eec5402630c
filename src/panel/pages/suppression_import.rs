//! Import and export of suppression lists. An import is all or nothing, and can be checked first.

use std::sync::Arc;

use askama::Template;
use bytes::Bytes;
use hyper::StatusCode;

use crate::engine::suppressions::Imported;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::suppression_list::{FaultyLine, FaultyList, Form as Written};
use crate::http::handlers::suppressions::{exported, list_of, not_imported};
use crate::panel::components::FormErrors;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::paging::address;
use crate::panel::record_card::curl;
use crate::panel::upload::Upload;
use crate::panel::wording::line_sentences;

const PATH: &str = "/suppressions/import";
/// Maximum size, in bytes, of a list that the form repeats. Longer lists must be uploaded again.
const SHOWN_BYTES: usize = 64 * 1024;
/// Maximum number of invalid lines shown.
const SHOWN_LINES: usize = 100;

#[derive(Template)]
#[template(path = "import.html")]
struct ImportPage {
    frame: PageFrame,
    /// Text that was pasted or uploaded.
    text: String,
    is_too_long: bool,
    outcome: Outcome,
    curl: String,
}

/// Result of an import.
enum Outcome {
    /// The page was opened without a list.
    None,
    /// The list was imported.
    Imported { imported: String, skipped: String },
    /// The list was only checked.
    Checked(Imported),
    /// The list can't be read.
    Unreadable(String),
    /// The list has invalid lines.
    Faulty { lines: Vec<FaultyLine>, more: usize },
}

/// `GET /suppressions/import`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let query = Form::of_query(&visit.call);
    let count = |name: &str| query.text(name).parse::<u64>().ok().map(|count| count.to_string());
    let outcome = match (count("imported"), count("skipped")) {
        (Some(imported), Some(skipped)) => Outcome::Imported { imported, skipped },
        (None, _) | (_, None) => Outcome::None,
    };
    written(&visit, StatusCode::OK, &Bytes::new(), outcome)
}

fn written(visit: &Visit<'_>, status: StatusCode, list: &Bytes, outcome: Outcome) -> Result<Answer, PageError> {
    let is_too_long = list.len() > SHOWN_BYTES;
    let page = ImportPage {
        frame: PageFrame::new(visit, "Import suppressions", "/suppressions")?,
        text: if is_too_long { String::new() } else { String::from_utf8_lossy(list).into_owned() },
        is_too_long,
        outcome,
        curl: format!(
            "{} -H \"Content-Type: text/csv\" --data-binary @list.csv",
            curl(visit, "/v1/suppressions/import?dry_run=true")
        ),
    };
    html::page(status, &page)
}

/// `POST /suppressions/import`: imports the list, or only checks it, depending on `act`.
pub(in crate::panel) async fn import(mut visit: Visit<'_>) -> Result<Answer, PageError> {
    let upload = Upload::of(&visit.call);
    drop(visit.call.take_body());
    let list = upload.bytes("file").or_else(|| upload.bytes("list")).unwrap_or_default();
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let suppressions = match list_of(visit.api, visit.account_id(), list.clone(), form_of(&list)).await? {
        Ok(suppressions) => suppressions,
        Err(FaultyList::Unreadable(ApiError::Invalid(violations))) => {
            let sentences = FormErrors::from(violations).all();
            return written(&visit, unprocessable, &list, Outcome::Unreadable(sentences.join(" ")));
        }
        Err(FaultyList::Unreadable(error)) => return Err(error.into()),
        Err(FaultyList::Lines(_, mut lines)) => {
            let more = lines.len().saturating_sub(SHOWN_LINES);
            lines.truncate(SHOWN_LINES);
            lines.iter_mut().for_each(|line| line.message = line_sentences(&line.message));
            return written(&visit, unprocessable, &list, Outcome::Faulty { lines, more });
        }
    };
    if upload.text("act") != "import" {
        let would =
            visit.api.engine.preview_import(visit.account_id(), Arc::new(suppressions)).await.map_err(not_imported)?;
        return written(&visit, StatusCode::OK, &list, Outcome::Checked(would));
    }
    // Frees the upload: the import keeps its own copy of the list.
    drop((upload, list));
    let Imported { imported, skipped } =
        visit.api.engine.import_suppressions(visit.on(), Arc::new(suppressions)).await.map_err(not_imported)?;
    let (imported, skipped) = (imported.to_string(), skipped.to_string());
    Ok(html::redirect(&address(PATH, &[("imported", imported.as_str()), ("skipped", skipped.as_str())])))
}

/// Detects the format: a JSON object begins with a brace, and no CSV column name does.
fn form_of(list: &[u8]) -> Written {
    let first = list.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{') { Written::JsonLines } else { Written::Csv }
}

/// `GET /suppressions/export`: the list as a file that the import accepts.
pub(in crate::panel) async fn export(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (engine, session, account) = (Arc::clone(&visit.api.engine), visit.visitor.key, visit.account_id());
    Ok(exported(visit.api, account, move || engine.still_sees(session, account).unwrap_or(false)).await?)
}
