//! Light, dark, or as the system has it, and whether single keys do something: kept in cookies, so that the page is
//! written right at once.

use hyper::header::{REFERER, SET_COOKIE};
use url::Url;

use crate::http::answer::Answer;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::panel::cookie::{Shortcuts, Theme};
use crate::panel::form::{Form, own_address};
use crate::panel::html;
use crate::panel::page_error::Fault;

/// `POST /appearance`: keeps the choice, and goes back to where it was made.
pub(in crate::panel) async fn choose(api: &Api, call: Call<()>) -> Result<Answer, Fault> {
    let form = Form::of(&call)?;
    let chosen = match Shortcuts::named(form.text("shortcuts")) {
        Some(shortcuts) => shortcuts.cookie(api),
        None => Theme::named(form.text("theme")).cookie(api),
    };
    let back = call.header(&REFERER).and_then(|text| Url::parse(text).ok());
    let back =
        back.map_or_else(|| "/".to_owned(), |url| url[url::Position::BeforePath..url::Position::AfterQuery].to_owned());
    Ok(html::redirect(own_address(&back)).with_header(SET_COOKIE, &chosen))
}
