//! The people who may sign in: adding, changing and removing them. Nobody changes their own role here, so an account
//! never locks out its last owner.

use askama::Template;
use hyper::StatusCode;

use crate::base::id::UserId;
use crate::domain::user::{NewPassword, Role};
use crate::domain::violation::Violations;
use crate::engine::listing::PageRequest;
use crate::engine::users::{UserChange, UserRefusal};
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::users::{last_owner, too_many};
use crate::panel::door::Visit;
use crate::panel::fault::Fault;
use crate::panel::form::Form;
use crate::panel::frame::Frame;
use crate::panel::html;
use crate::panel::moment::Moment;
use crate::panel::parts::FormFaults;
use crate::store::error::Stop;

/// Users shown; a team of more has its command line.
const SHOWN_MAX: usize = 200;

#[derive(Template)]
#[template(path = "users.html")]
struct UsersPage {
    frame: Frame,
    lines: Vec<UserLine>,
    is_cut: bool,
    roles: [Role; 3],
    email: String,
    faults: FormFaults,
    told: Option<Told>,
}

/// A user in the list.
struct UserLine {
    id: UserId,
    email: String,
    role: Role,
    disabled: bool,
    has_totp: bool,
    last_sign_in_at: Option<Moment>,
    is_self: bool,
}

/// What is told this once.
struct Told {
    email: String,
    what: ToldSecret,
}

/// A password, or the link by which its user chooses one.
enum ToldSecret {
    Password(String),
    Link(String),
}

/// `GET /users`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, Fault> {
    let done = match Form::of_query(&visit.call).text("done") {
        "changed" => Some("The user is changed."),
        "removed" => Some("The user is removed, and signed out everywhere."),
        _ => None,
    };
    written(&visit, StatusCode::OK, "", FormFaults::none(), None, done)
}

fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    email: &str,
    faults: FormFaults,
    told: Option<Told>,
    done: Option<&'static str>,
) -> Result<Answer, Fault> {
    let zone = visit.account.time_zone.zone();
    let found = visit.api.engine.users(visit.account_id(), PageRequest { before: None, limit: SHOWN_MAX })?;
    let line = |user: crate::domain::user::User| UserLine {
        id: user.id,
        email: user.email.as_given().to_owned(),
        role: user.role,
        disabled: user.disabled,
        has_totp: user.totp.is_some(),
        last_sign_in_at: user.last_sign_in_at.map(|at| Moment::new(at, zone.clone())),
        is_self: user.id == visit.user().id,
    };
    let page = UsersPage {
        frame: Frame::new(visit, "Users", "/users")?.with_done(done),
        is_cut: found.next.is_some(),
        lines: found.rows.into_iter().map(line).collect(),
        roles: Role::ALL,
        email: email.to_owned(),
        faults,
        told,
    };
    html::page(status, &page)
}

/// `POST /users`: the password is made here, and told this once.
pub(in crate::panel) async fn add(visit: Visit<'_>) -> Result<Answer, Fault> {
    let form = Form::of(&visit.call)?;
    let mut violations = Violations::new();
    let email = violations.check("email", form.text("email").parse());
    let role = violations.check("role", form.text("role").parse());
    let (email, role) = match violations.or(|| email.zip(role)) {
        Ok(good) => good,
        Err(faults) => return refused_form(&visit, &form, faults),
    };
    match visit.api.engine.create_user(visit.on(), email, role).await {
        Ok((user, password)) => tell(&visit, user.email.as_given(), &password),
        Err(Stop::Refused(UserRefusal::EmailTaken)) => {
            refused_form(&visit, &form, Violations::of("email", "signs in to this service already"))
        }
        Err(stop) => Err(refused(stop)),
    }
}

fn refused_form(visit: &Visit<'_>, form: &Form, faults: Violations) -> Result<Answer, Fault> {
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    written(visit, status, form.text("email"), faults.into(), None, None)
}

fn tell(visit: &Visit<'_>, email: &str, password: &NewPassword) -> Result<Answer, Fault> {
    let told = Told { email: email.to_owned(), what: ToldSecret::Password(password.expose().to_owned()) };
    written(visit, StatusCode::OK, "", FormFaults::none(), Some(told), None)
}

/// Makes the link by which another user chooses a password.
async fn tell_link(visit: &Visit<'_>, id: UserId) -> Result<Answer, Fault> {
    let engine = &visit.api.engine;
    let user = engine.user(visit.account_id(), id)?.ok_or(ApiError::NotFound)?;
    let disabled = || ApiError::Conflict("This user is kept from signing in. Let them in first.".to_owned());
    let link = engine.setup_link(visit.on(), id).await?.ok_or_else(disabled)?;
    let told = Told { email: user.email.as_given().to_owned(), what: ToldSecret::Link(link.url) };
    written(visit, StatusCode::OK, "", FormFaults::none(), Some(told), None)
}

/// The user in the path, who is another than the visitor.
fn other(visit: &Visit<'_>) -> Result<UserId, Fault> {
    let id: UserId = visit.id()?;
    if id == visit.user().id {
        let sentence = "Ask another owner to change your own user, so that nobody locks themselves out.";
        return Err(ApiError::Conflict(sentence.to_owned()).into());
    }
    Ok(id)
}

/// `POST /users/{id}`: `action` says what: `role`, `disable`, `enable`, `password`, `link`, `totp`.
pub(in crate::panel) async fn change(visit: Visit<'_>) -> Result<Answer, Fault> {
    let (id, form) = (other(&visit)?, Form::of(&visit.call)?);
    if form.text("action") == "link" {
        return tell_link(&visit, id).await;
    }
    let none = UserChange::default();
    let change = match form.text("action") {
        "role" => UserChange { role: form.text("role").parse().ok(), ..none },
        "disable" => UserChange { disabled: Some(true), ..none },
        "enable" => UserChange { disabled: Some(false), ..none },
        "totp" => UserChange { totp: Some(None), ..none },
        "password" => UserChange { password: Some(NewPassword::generate(&*visit.api.engine.entropy)), ..none },
        _ => return Err(ApiError::Conflict("This form says not what to do.".to_owned()).into()),
    };
    let password = change.password.clone();
    let user = visit.api.engine.change_user(visit.on(), id, change).await.map_err(refused)?;
    match password {
        Some(password) => tell(&visit, user.email.as_given(), &password),
        None => Ok(html::redirect("/users?done=changed")),
    }
}

/// `POST /users/{id}/remove`.
pub(in crate::panel) async fn remove(visit: Visit<'_>) -> Result<Answer, Fault> {
    let id = other(&visit)?;
    visit.api.engine.delete_user(visit.on(), id).await.map_err(refused)?;
    Ok(html::redirect("/users?done=removed"))
}

/// Why a user is not changed, as a fault of the page.
pub(in crate::panel) fn refused(stop: Stop<UserRefusal>) -> Fault {
    match stop {
        Stop::Refused(UserRefusal::NotFound) => ApiError::NotFound.into(),
        Stop::Refused(UserRefusal::EmailTaken) => ApiError::Conflict("The address is taken.".to_owned()).into(),
        Stop::Refused(UserRefusal::TooMany) => too_many().into(),
        Stop::Refused(UserRefusal::LastOwner) => last_owner().into(),
        Stop::Refused(UserRefusal::Crowded) => ApiError::Overloaded.into(),
        Stop::Failed(error) => error.into(),
    }
}
