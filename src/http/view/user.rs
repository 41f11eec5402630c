//! View of a panel user for the operator (contract 8).

use serde::Serialize;

use crate::base::id::{self, UserId};
use crate::base::time::{Timestamp, iso};
use crate::domain::user::{Role, User};
use crate::engine::setup_link::SetupLink;

/// A user in lists and after a change.
#[derive(Serialize)]
pub(in crate::http) struct UserView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: UserId,
    email: &'a str,
    role: Role,
    disabled: bool,
    totp: bool,
    operator: bool,
    #[serde(serialize_with = "iso::serialize")]
    created_at: Timestamp,
    #[serde(serialize_with = "iso::option::serialize")]
    last_sign_in_at: Option<Timestamp>,
}

impl<'a> UserView<'a> {
    pub(in crate::http) fn new(user: &'a User) -> Self {
        Self {
            id: user.id,
            email: user.email.as_given(),
            role: user.role,
            disabled: user.disabled,
            totp: user.totp.is_some(),
            operator: user.is_operator,
            created_at: user.created_at,
            last_sign_in_at: user.last_sign_in_at,
        }
    }
}

/// A user with a new password, which is shown only once.
#[derive(Serialize)]
pub(in crate::http) struct NewUserView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: UserId,
    email: &'a str,
    role: Role,
    password: &'a str,
}

impl<'a> NewUserView<'a> {
    pub(in crate::http) fn new(user: &'a User, password: &'a str) -> Self {
        Self { id: user.id, email: user.email.as_given(), role: user.role, password }
    }
}

/// A user with a new setup link, which is shown only once.
#[derive(Serialize)]
pub(in crate::http) struct SetupLinkView<'a> {
    #[serde(serialize_with = "id::as_text")]
    id: UserId,
    email: &'a str,
    setup_url: &'a str,
    #[serde(serialize_with = "iso::serialize")]
    expires_at: Timestamp,
}

impl<'a> SetupLinkView<'a> {
    pub(in crate::http) fn new(user: &'a User, link: &'a SetupLink) -> Self {
        Self { id: user.id, email: user.email.as_given(), setup_url: &link.url, expires_at: link.expires_at }
    }
}
