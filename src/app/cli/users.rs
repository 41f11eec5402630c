//! `postrider user ...`: users of the panel (contract 8). The service generates passwords and prints them once.

use clap::Subcommand;
use hyper::Method;
use serde_json::{Value, json};

use super::args::{AccountScoped, PageArgs};
use super::session::{NamedObject, Session, body, listed, print};
use super::show::Shape;
use super::{Console, EarlyExit};
use crate::app::exit::Exit;
use crate::domain::user::Role;

#[derive(Debug, Subcommand)]
pub(super) enum UserCommand {
    /// Add a user and print the password; it won't be shown again.
    Add {
        /// The user's sign-in address.
        email: String,
        /// owner (everything), member (handles mail and suppressions) or viewer (read-only).
        #[arg(long)]
        role: Role,
    },
    /// List the users.
    List(PageArgs),
    /// Show a user.
    Show {
        /// User ID or sign-in address.
        #[arg(value_name = "ID|EMAIL")]
        id: String,
    },
    /// Change a user's role, password or access.
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
    Set {
        /// User ID or sign-in address.
        #[arg(value_name = "ID|EMAIL")]
        id: String,
        /// The user's role.
        #[arg(long, group = "change")]
        role: Option<Role>,
        /// Whether sign-in is disabled; true signs the user out at once.
        #[arg(long, value_name = "true|false", group = "change")]
        disabled: Option<bool>,
        /// Make the user an operator of the service, with access to the system and all accounts in the panel.
        #[arg(long, group = "change")]
        operator: bool,
        /// Revoke the operator role.
        #[arg(long, group = "change", conflicts_with = "operator")]
        no_operator: bool,
        /// Generate a new password and print it; it won't be shown again.
        #[arg(long, group = "change")]
        new_password: bool,
        /// Print a link for setting a password, valid once and for a day.
        #[arg(long, group = "change", conflicts_with = "new_password")]
        setup_link: bool,
        /// Remove a lost second factor.
        #[arg(long, group = "change")]
        no_totp: bool,
    },
    /// Remove a user and end all their sessions.
    Remove {
        /// User ID.
        id: String,
    },
}

/// `postrider user ...`.
pub(super) fn user(args: AccountScoped<UserCommand>, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    const USERS: &str = "/v1/users";
    // A sign-in address is unique in the store, so it also determines the account.
    let is_unique = matches!(&args.command, UserCommand::Show { id } | UserCommand::Set { id, .. } if id.contains('@'));
    let (session, command) = match is_unique && args.account.account.is_none() {
        true => Session::without_account(args, console)?,
        false => Session::open(args, console)?,
    };
    let one = |id| NamedObject { kind: "user", list: USERS, id };
    let (reply, shape) = match command {
        UserCommand::Add { email, role } => {
            let body = json!({ "email": email, "role": role });
            (session.ask(Method::POST, "add the user", USERS, Some(body))?, Shape::NewUser)
        }
        UserCommand::List(page) => (session.get("list the users", listed(USERS, &page, &[]))?, Shape::Users),
        UserCommand::Show { id } => (session.ask_of(&one(&id), Method::GET, "show the user", "", None)?, Shape::User),
        UserCommand::Set { id, role, disabled, operator, no_operator, new_password, setup_link, no_totp } => {
            let operator = operator.then_some(true).or_else(|| no_operator.then_some(false));
            let body = body([
                ("role", role.map(|role| json!(role))),
                ("disabled", disabled.map(Value::from)),
                ("operator", operator.map(Value::from)),
                ("new_password", new_password.then_some(Value::Bool(true))),
                ("setup_link", setup_link.then_some(Value::Bool(true))),
                ("totp", no_totp.then_some(Value::Bool(false))),
            ]);
            let shape = match (new_password, setup_link) {
                (true, _) => Shape::NewUser,
                (false, true) => Shape::SetupLink,
                (false, false) => Shape::User,
            };
            (session.ask_of(&one(&id), Method::PATCH, "change the user", "", Some(body))?, shape)
        }
        UserCommand::Remove { id } => {
            let reply = session.ask_of(&one(&id), Method::DELETE, "remove the user", "", None)?;
            (reply, Shape::Nothing("Removed."))
        }
    };
    print(&reply, shape, json, console)
}
