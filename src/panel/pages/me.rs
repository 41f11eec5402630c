//! Changes of the visitor's own user: password, and sessions in other browsers.

use hyper::header::{RETRY_AFTER, SET_COOKIE};

use super::login::LoginRefusal;
use super::settings::with_password_fault;
use crate::domain::session::SessionKey;
use crate::domain::user::NewPassword;
use crate::engine::users::{UserChange, UserRefusal};
use crate::http::answer::Answer;
use crate::panel::cookie;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::store::error::OpError;
use crate::store::op::session::SessionSelection;

/// `POST /settings/password`: changes the password. The current one is always required.
pub(in crate::panel) async fn change_password(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let new = match NewPassword::chosen(form.secret("new_password").expose_text(), &visit.user().email) {
        Ok(new) => new,
        Err(weak) => return with_password_fault(&visit, format!("The new password {weak}.")),
    };
    if let Err(stop) = visit.api.engine.check_password(&visit.visitor, &form.secret("current_password")).await {
        let refused = LoginRefusal::of(stop, "The current password is wrong.")?;
        let answer = with_password_fault(&visit, refused.sentence.clone())?;
        return Ok(match refused.wait_seconds {
            Some(seconds) => answer.with_header(RETRY_AFTER, &seconds.to_string()),
            None => answer,
        });
    }
    let change = UserChange {
        password: Some(new),
        instead_of: Some(visit.user().password_hash.clone()),
        keep: Some(visit.visitor.key),
        ..UserChange::default()
    };
    if let Err(refused) = visit.api.engine.change_user(visit.on(), visit.user().id, change).await {
        let refused = match refused {
            OpError::Refused(UserRefusal::NotFound) => {
                "The password was changed at the same time. Enter the new one as the current password."
            }
            refused => return Err(super::users::refused(refused)),
        };
        return with_password_fault(&visit, refused.to_owned());
    }
    known_again(&visit, html::redirect("/settings?done=password")).await
}

/// Marks this browser as known again, after a change that removed all known browsers of the user.
async fn known_again(visit: &Visit<'_>, answer: Answer) -> Result<Answer, PageError> {
    Ok(match visit.api.engine.remember_browser(visit.visitor.key).await? {
        Some(browser) => answer.with_header(SET_COOKIE, &cookie::with_device(visit.api, &browser)),
        None => answer,
    })
}

/// `POST /settings/sessions`: ends one session, or all except this one.
pub(in crate::panel) async fn end_sessions(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let mut key = SessionKey::default();
    let named = form.given("session").filter(|text| hex::decode_to_slice(text, &mut key).is_ok());
    let which = if named.is_some() { SessionSelection::One(key) } else { SessionSelection::AllBut(visit.visitor.key) };
    visit.api.engine.sign_out(visit.on(), visit.user().id, which).await?;
    if which == SessionSelection::One(visit.visitor.key) {
        return Ok(html::redirect("/login").with_header(SET_COOKIE, &cookie::without_session(visit.api)));
    }
    let done = html::redirect("/settings?done=sessions");
    if named.is_some() { Ok(done) } else { known_again(&visit, done).await }
}
