//! One user: role, sign-in, and the changes that owners can make. Users can't change themselves here, so that they
//! can't lock themselves out.

use std::sync::Arc;

use askama::Template;
use hyper::StatusCode;

use super::delete::{self, Deletion};
use super::settings::SessionLine;
use super::users::{NewSecret, ShownSecret, refused};
use crate::base::id::UserId;
use crate::domain::alert::Condition;
use crate::domain::sign_in_log::SignIn;
use crate::domain::user::{InvalidRole, NewPassword, Role, User};
use crate::domain::violation::Violations;
use crate::engine::alerts::listing::{AlertFilter, AlertsOf};
use crate::engine::alerts::record::Alert;
use crate::engine::listing::PageRequest;
use crate::engine::users::UserChange;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::invitation::{Invitation, Invitations};
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::{Need, Visit};
use crate::panel::prose::Prose;
use crate::panel::timestamp::{Moment, ShortTime};
use crate::store::op::session::SessionSelection;

/// Maximum number of sign-ins from new browsers on the page.
const NEW_BROWSERS: usize = 20;

#[derive(Template)]
#[template(path = "user.html")]
struct UserPage {
    frame: PageFrame,
    id: UserId,
    email: String,
    role: Role,
    roles: [Role; 3],
    is_operator: bool,
    disabled: bool,
    invited: Option<Invitation>,
    has_totp: bool,
    created_at: Moment,
    last_sign_in_at: Option<Moment>,
    is_self: bool,
    /// Whether the visitor may reset the user's sign-in.
    may_renew: bool,
    is_proved: bool,
    prove_next: String,
    new_secret: Option<NewSecret>,
    /// Sessions and sign-ins of the user. Only visitors who may end the sessions see them.
    sign_ins: Option<SignIns>,
}

/// Sign-ins of a user.
struct SignIns {
    /// Sessions that have not ended, newest first.
    sessions: Vec<SessionLine>,
    /// Time, and address and browser, of the sign-ins from browsers that were new for the user.
    new_browsers: Vec<(ShortTime, Prose)>,
    /// The latest sign-ins, newest first, also those whose sessions have ended.
    latest: Vec<SignInLine>,
}

/// A sign-in in a table.
pub(super) struct SignInLine {
    pub(super) at: ShortTime,
    pub(super) address: String,
    pub(super) browser: String,
}

impl SignInLine {
    pub(super) fn new(visit: &Visit<'_>, sign_in: &SignIn) -> Self {
        let SignIn { at, address, browser } = sign_in;
        Self { at: visit.moment(*at).short(visit.now), address: address.clone(), browser: browser.clone() }
    }
}

impl SignIns {
    async fn of(visit: &Visit<'_>, user: &User) -> Result<Self, PageError> {
        let (engine, account) = (Arc::clone(&visit.api.engine), visit.account_id());
        let filter = AlertFilter { user: Some(user.id), condition: Some(Condition::NewSignIn), state: None };
        let page = PageRequest { before: None, limit: NEW_BROWSERS };
        let read = move || engine.alerts_of(AlertsOf::Account(account), filter, page);
        let alerts = visit.api.engine.blocking(account, read).await??.rows;
        let line = |alert: Alert| (visit.moment(alert.row.opened_at).short(visit.now), visit.prose(&alert.row.seen));
        let latest = user.sign_ins.newest_first().iter().map(|one| SignInLine::new(visit, one));
        Ok(Self {
            sessions: SessionLine::list(visit, user.id)?,
            new_browsers: alerts.into_iter().map(line).collect(),
            latest: latest.collect(),
        })
    }
}

fn find(visit: &Visit<'_>) -> Result<User, PageError> {
    visit.api.engine.user(visit.account_id(), visit.id()?)?.ok_or_else(|| ApiError::NotFound.into())
}

/// `GET /users/{id}`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let user = find(&visit)?;
    written(&visit, &user, None).await
}

async fn written(visit: &Visit<'_>, user: &User, new_secret: Option<NewSecret>) -> Result<Answer, PageError> {
    let done = match Form::of_query(&visit.call).text("done") {
        "changed" => Some(format!("{} was changed.", user.email.as_given())),
        "signed-out" => Some(format!("{} is signed out everywhere.", user.email.as_given())),
        _ => None,
    };
    let may_see = visit.may_send(Need::Change);
    let page = UserPage {
        sign_ins: if may_see { Some(SignIns::of(visit, user).await?) } else { None },
        frame: PageFrame::new(visit, user.email.as_given(), "/users")?.with_done(done),
        id: user.id,
        email: user.email.as_given().to_owned(),
        role: user.role,
        roles: Role::ALL,
        is_operator: user.is_operator,
        disabled: user.disabled,
        invited: Invitations::of(visit, std::slice::from_ref(user))?.open(visit, user),
        has_totp: user.totp.is_some(),
        created_at: visit.detail(user.created_at),
        last_sign_in_at: user.last_sign_in_at.map(|at| visit.detail(at)),
        is_self: user.id == visit.user().id,
        may_renew: may_renew(visit, user),
        is_proved: visit.is_proved(),
        prove_next: format!("/users/{}", user.id),
        new_secret,
    };
    html::page(StatusCode::OK, &page)
}

/// Whether the visitor may reset a user's sign-in. Only operators may do that for an operator.
fn may_renew(visit: &Visit<'_>, user: &User) -> bool {
    !user.is_operator || visit.user().is_operator
}

/// Returns the user in the path, who must not be the visitor.
fn other(visit: &Visit<'_>) -> Result<User, PageError> {
    let user = find(visit)?;
    if user.id == visit.user().id {
        let sentence = "You can't change your own user here. Ask another owner.";
        return Err(ApiError::Conflict(sentence.to_owned()).into());
    }
    Ok(user)
}

/// `POST /users/{id}`: runs the `action`: `role`, `disable`, `enable`, `sign-out`, `password`, `link` or `totp`.
pub(in crate::panel) async fn change(visit: Visit<'_>) -> Result<Answer, PageError> {
    let (user, form) = (other(&visit)?, Form::of(&visit.call)?);
    let action = form.text("action");
    if matches!(action, "password" | "link" | "totp") && !may_renew(&visit, &user) {
        let sentence = "This user is an operator of the service. Only operators can reset their sign-in.";
        return Err(ApiError::Conflict(sentence.to_owned()).into());
    }
    match action {
        "link" => return show_link(&visit, &user).await,
        "sign-out" => {
            // The visitor's own session belongs to another user, so all of this user's sessions end.
            visit.api.engine.sign_out(visit.on(), user.id, SessionSelection::AllBut(visit.visitor.key)).await?;
            return Ok(html::redirect(&format!("/users/{}?done=signed-out", user.id)));
        }
        _ => {}
    }
    let none = UserChange::default();
    let change = match action {
        "role" => UserChange { role: Some(role_of(&form)?), ..none },
        "disable" => UserChange { disabled: Some(true), ..none },
        "enable" => UserChange { disabled: Some(false), ..none },
        "totp" => UserChange { totp: Some(None), ..none },
        "password" => UserChange { password: Some(NewPassword::generate(&*visit.api.engine.entropy)), ..none },
        _ => return Err(ApiError::Conflict("The form is incomplete. Reload the page and try again.".to_owned()).into()),
    };
    let password = change.password.clone();
    let user = visit.api.engine.change_user(visit.on(), user.id, change).await.map_err(refused)?;
    match password {
        Some(password) => {
            let what = ShownSecret::Password(password.expose().to_owned());
            written(&visit, &user, Some(NewSecret { email: user.email.as_given().to_owned(), what })).await
        }
        None => Ok(html::redirect(&format!("/users/{}?done=changed", user.id))),
    }
}

fn role_of(form: &Form) -> Result<Role, ApiError> {
    form.text("role").parse().map_err(|error: InvalidRole| Violations::of("role", error.to_string()).into())
}

/// Creates a link with which the user chooses a password, and shows it.
async fn show_link(visit: &Visit<'_>, user: &User) -> Result<Answer, PageError> {
    let disabled = || ApiError::Conflict("Sign-in of this user is disabled. Enable it first.".to_owned());
    let link = visit.api.engine.setup_link(visit.on(), user.id).await?.ok_or_else(disabled)?;
    let what = ShownSecret::Link { url: link.url, replaces_password: user.last_sign_in_at.is_some() };
    let new_secret = NewSecret { email: user.email.as_given().to_owned(), what };
    written(visit, user, Some(new_secret)).await
}

fn deletion(user: &User) -> Deletion {
    Deletion {
        title: format!("Delete user {}", user.email.as_given()),
        consequences: "They are signed out everywhere and can't sign in any more. The audit log keeps their changes.",
        name: user.email.as_given().to_owned(),
        action: format!("/users/{}/remove", user.id),
        button: "Delete user",
        back: format!("/users/{}", user.id),
    }
}

/// `GET /users/{id}/delete`.
pub(in crate::panel) async fn ask_to_remove(visit: Visit<'_>) -> Result<Answer, PageError> {
    let user = other(&visit)?;
    delete::show(&visit, "/users", deletion(&user))
}

/// `POST /users/{id}/remove`.
pub(in crate::panel) async fn remove(visit: Visit<'_>) -> Result<Answer, PageError> {
    let user = other(&visit)?;
    if let Some(refused) = delete::refused(&visit, "/users", deletion(&user))? {
        return Ok(refused);
    }
    visit.api.engine.delete_user(visit.on(), user.id).await.map_err(refused)?;
    Ok(html::redirect("/users?done=removed"))
}
