//! Users of the account, and a form that invites another.

use askama::Template;
use hyper::StatusCode;
use hyper::header::RETRY_AFTER;

use crate::base::time::Timestamp;
use crate::domain::user::Role;
use crate::domain::violation::Violations;
use crate::engine::invitations::{InvitationRefusal, InvitedUser};
use crate::engine::listing::PageRequest;
use crate::engine::users::UserRefusal;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::handlers::users::{last_owner, too_many};
use crate::panel::components::FormErrors;
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::invitation::{Invitation, Invitations};
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::{Need, Visit};
use crate::panel::timestamp::ShortTime;
use crate::store::error::OpError;
use crate::store::op::invitation::INVITATIONS_MAX;

/// Maximum number of users shown. The command line lists all.
const SHOWN_MAX: usize = 200;
/// Roles of an invited user, in words.
const ROLES: [(Role, &str); 3] = [
    (Role::Viewer, "Viewer (read-only)"),
    (Role::Member, "Member (handles mail and suppressions)"),
    (Role::Owner, "Owner (everything)"),
];

#[derive(Template)]
#[template(path = "users.html")]
struct UsersPage {
    frame: PageFrame,
    lines: Vec<UserLine>,
    is_cut: bool,
    email: String,
    role: String,
    roles: [(Role, &'static str); 3],
    faults: FormErrors,
    is_proved: bool,
    prove_next: &'static str,
    new_secret: Option<NewSecret>,
}

/// A user in the list.
struct UserLine {
    path: String,
    email: String,
    role: Role,
    is_operator: bool,
    disabled: bool,
    invited: Option<Invitation>,
    has_totp: bool,
    last_sign_in_at: Option<ShortTime>,
    /// Address of the last sign-in, for visitors who may see it.
    last_address: Option<String>,
    is_self: bool,
}

/// A secret that is shown once.
pub(super) struct NewSecret {
    /// Address of the user.
    pub(super) email: String,
    /// The secret.
    pub(super) what: ShownSecret,
}

/// A password, or a link with which the user chooses one.
pub(super) enum ShownSecret {
    /// A password.
    Password(String),
    /// A link for a user who was added without a mail.
    Invitation(String),
    /// A link.
    Link {
        /// The link.
        url: String,
        /// Whether the user has a password until then.
        replaces_password: bool,
    },
}

/// `GET /users`.
pub(in crate::panel) async fn list(visit: Visit<'_>) -> Result<Answer, PageError> {
    let done = match Form::of_query(&visit.call).text("done") {
        "invited" => Some("Invitation sent. Its link works for 24 hours."),
        "removed" => Some("User deleted and signed out everywhere."),
        _ => None,
    };
    written(&visit, StatusCode::OK, &Form::read(b""), FormErrors::none(), None, done)
}

fn written(
    visit: &Visit<'_>,
    status: StatusCode,
    form: &Form,
    faults: FormErrors,
    new_secret: Option<NewSecret>,
    done: Option<&'static str>,
) -> Result<Answer, PageError> {
    let found = visit.api.engine.users(visit.account_id(), PageRequest { before: None, limit: SHOWN_MAX })?;
    let may_see = visit.may_send(Need::Change);
    let invitations = Invitations::of(visit, &found.rows)?;
    let line = |user: crate::domain::user::User| UserLine {
        path: format!("/users/{}", user.id),
        invited: invitations.open(visit, &user),
        email: user.email.as_given().to_owned(),
        role: user.role,
        is_operator: user.is_operator,
        disabled: user.disabled,
        has_totp: user.totp.is_some(),
        last_sign_in_at: user.last_sign_in_at.map(|at| visit.moment(at).short(visit.now)),
        last_address: user.sign_ins.newest_first().first().map(|last| last.address.clone()).filter(|_| may_see),
        is_self: user.id == visit.user().id,
    };
    let page = UsersPage {
        frame: PageFrame::new(visit, "Users", "/users")?.with_done(done),
        is_cut: found.next.is_some(),
        lines: found.rows.into_iter().map(line).collect(),
        email: form.text("email").to_owned(),
        role: form.text("role").to_owned(),
        roles: ROLES,
        faults,
        is_proved: visit.is_proved(),
        prove_next: "/users",
        new_secret,
    };
    html::page(status, &page)
}

/// `POST /users`: invites a user by mail. If the service sends no mail, the page shows the link once.
pub(in crate::panel) async fn add(visit: Visit<'_>) -> Result<Answer, PageError> {
    let form = Form::of(&visit.call)?;
    let mut violations = Violations::new();
    let email = violations.check("email", form.text("email").parse());
    let role = violations.check("role", form.text("role").parse());
    let (email, role) = match violations.or(|| email.zip(role)) {
        Ok(good) => good,
        Err(faults) => return refused_form(&visit, &form, faults),
    };
    match visit.api.engine.invite_user(visit.on(), email, role).await {
        Ok(InvitedUser::ByMail(_)) => Ok(html::redirect("/users?done=invited")),
        Ok(InvitedUser::ByLink(user, link)) => {
            let what = ShownSecret::Invitation(link.url);
            let new_secret = NewSecret { email: user.email.as_given().to_owned(), what };
            written(&visit, StatusCode::OK, &Form::read(b""), FormErrors::none(), Some(new_secret), None)
        }
        Err(OpError::Refused(InvitationRefusal::User(UserRefusal::EmailTaken))) => {
            refused_form(&visit, &form, Violations::of("email", "is already a user of this service"))
        }
        Err(OpError::Refused(InvitationRefusal::TooMany { until })) => too_many_invitations(&visit, &form, until),
        Err(OpError::Refused(InvitationRefusal::User(refusal))) => Err(refused(OpError::Refused(refusal))),
        Err(OpError::Failed(error)) => Err(error.into()),
    }
}

/// Answers that the account has reached its daily limit of invitations.
fn too_many_invitations(visit: &Visit<'_>, form: &Form, until: Timestamp) -> Result<Answer, PageError> {
    let at = visit.moment(until).text();
    let sentence = format!("can't be invited before {at}: an account can invite {INVITATIONS_MAX} people in 24 hours");
    let (status, faults) = (StatusCode::TOO_MANY_REQUESTS, Violations::of("email", sentence));
    let answer = written(visit, status, form, faults.into(), None, None)?;
    let seconds = until.since(visit.now).as_secs().max(1);
    Ok(answer.with_header(RETRY_AFTER, &seconds.to_string()))
}

fn refused_form(visit: &Visit<'_>, form: &Form, faults: Violations) -> Result<Answer, PageError> {
    let status = StatusCode::UNPROCESSABLE_ENTITY;
    written(visit, status, form, faults.into(), None, None)
}

/// Converts a refused user change to an error page.
pub(in crate::panel) fn refused(stop: OpError<UserRefusal>) -> PageError {
    match stop {
        OpError::Refused(UserRefusal::NotFound) => ApiError::NotFound.into(),
        OpError::Refused(UserRefusal::EmailTaken) => {
            ApiError::Conflict("The address is already in use.".to_owned()).into()
        }
        OpError::Refused(UserRefusal::TooMany) => too_many().into(),
        OpError::Refused(UserRefusal::LastOwner) => last_owner().into(),
        OpError::Refused(UserRefusal::Crowded) => ApiError::Overloaded.into(),
        OpError::Failed(error) => error.into(),
    }
}
