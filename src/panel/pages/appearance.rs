//! Colour theme and single-key shortcuts. Cookies keep the choice, so that the first byte of a page already reflects
//! it.

use hyper::header::{REFERER, SET_COOKIE};
use url::Url;

use crate::http::answer::Answer;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::panel::cookie::{Shortcuts, Theme};
use crate::panel::form::{Form, own_address};
use crate::panel::html;
use crate::panel::page_error::PageError;

/// `POST /appearance`: saves the choice and returns to the previous page.
pub(in crate::panel) async fn choose(api: &Api, call: Call<()>) -> Result<Answer, PageError> {
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
