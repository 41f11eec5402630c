//! Setup of the second factor: a secret as QR code and text, and a code that proves that the authenticator has it.

use std::fmt::Write as _;

use askama::Template;
use hyper::StatusCode;
use qrcode::{Color, QrCode};
use url::form_urlencoded;

use super::settings::change_own_user;
use crate::base::entropy;
use crate::base::secret::Secret;
use crate::base::totp::{self, SECRET_BYTES};
use crate::engine::ports::Clock as _;
use crate::engine::users::UserChange;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::net::clock::SystemClock;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;

/// Width of the quiet zone around the code, in modules (ISO 18004 5.3.8).
const QUIET: usize = 4;

#[derive(Template)]
#[template(path = "second_factor.html")]
struct SecondFactorPage {
    frame: PageFrame,
    uri: String,
    text: String,
    hidden: String,
    square: String,
    side: usize,
    refused: Option<&'static str>,
}

/// `GET /settings/totp`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let bytes = entropy::bytes::<SECRET_BYTES>(&*visit.api.engine.entropy);
    written(&visit, StatusCode::OK, &bytes, None)
}

fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    bytes: &[u8; SECRET_BYTES],
    refused: Option<&'static str>,
) -> Result<Answer, PageError> {
    let text = totp::base32(bytes);
    let uri = uri(visit, &text);
    let code = QrCode::new(&uri).map_err(|error| {
        tracing::error!(%error, "could not create a QR code; the page shows the secret alone");
        ApiError::Internal
    })?;
    let page = SecondFactorPage {
        frame: PageFrame::new(visit, "Two-factor authentication", "/settings")?,
        square: path_of(&code),
        side: code.width() + 2 * QUIET,
        uri,
        text,
        hidden: hex::encode(bytes),
        refused,
    };
    html::page(status, &page)
}

/// Returns the URI that authenticator apps read.
fn uri(visit: &Visit<'_>, secret: &str) -> String {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20");
    let (host, email) = (encoded(&visit.api.engine.settings.hostname), encoded(visit.user().email.as_given()));
    format!("otpauth://totp/{host}:{email}?secret={secret}&issuer={host}")
}

/// Draws the dark modules as an SVG path, one rectangle per run in a row.
fn path_of(code: &QrCode) -> String {
    let (width, colors, mut path) = (code.width(), code.to_colors(), String::new());
    for (y, row) in colors.chunks(width).enumerate() {
        let mut x = 0;
        for run in row.chunk_by(|one, next| one == next) {
            if run.first() == Some(&Color::Dark) {
                let _written = write!(path, "M{} {}h{length}v1h-{length}z", x + QUIET, y + QUIET, length = run.len());
            }
            x += run.len();
        }
    }
    path
}

/// `POST /settings/totp`.
pub(in crate::panel) async fn set_up(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let mut bytes = [0; SECRET_BYTES];
    if hex::decode_to_slice(form.text("secret"), &mut bytes).is_err() {
        return Ok(html::redirect("/settings/totp"));
    }
    let secret = Secret::new(bytes);
    let Some(step) = totp::accepted_step(&secret, form.text("code"), SystemClock::new().now(), 0) else {
        let refused = Some("Wrong code. Check that the clock of your device is correct.");
        return written(&visit, StatusCode::UNPROCESSABLE_ENTITY, &bytes, refused);
    };
    change_own_user(&visit, UserChange { totp: Some(Some((secret, step))), ..UserChange::default() }).await?;
    Ok(html::redirect("/settings?done=totp"))
}

/// `POST /settings/totp/remove`.
pub(in crate::panel) async fn remove(visit: Visit<'_>) -> Result<Answer, PageError> {
    change_own_user(&visit, UserChange { totp: Some(None), ..UserChange::default() }).await?;
    Ok(html::redirect("/settings?done=totp-removed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_dark_modules_is_one_rectangle() {
        let code = QrCode::new("otpauth://totp/Postrider").unwrap();
        let (path, colors) = (path_of(&code), code.to_colors());
        // A finder pattern is 7 modules wide and stands at both ends of the first row.
        assert!(path.starts_with(&format!("M{QUIET} {QUIET}h7v1h-7z")), "{path}");
        let lengths = path
            .split('h')
            .filter_map(|part| part.split_once("v1").and_then(|(length, _)| length.parse::<usize>().ok()));
        assert_eq!(lengths.sum::<usize>(), colors.iter().filter(|color| **color == Color::Dark).count());
    }
}
