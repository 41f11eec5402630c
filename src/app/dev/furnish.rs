//! The first account of `dev`: its keys, domains, panel user and webhooks (contract 8 and 12.2). A kept directory
//! stores it in `dev.json`, and each start adds the objects that its options request.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cannot;
use crate::app::cli::DevOptions;
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::base::entropy;
use crate::base::id::{AccountId, DomainId, EndpointId, UserId};
use crate::base::secret::Secret;
use crate::base::signature::webhook_secret;
use crate::domain::account::AccountName;
use crate::domain::address::Address;
use crate::domain::api_key::{KeySecret, Scopes};
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;
use crate::domain::user::{NewPassword, Role};
use crate::domain::webhook_url::WebhookUrl;
use crate::engine::accounts::NewKey;
use crate::engine::audit::Behalf;
use crate::engine::development::GivenIds;
use crate::engine::endpoints::EndpointChange;
use crate::engine::listing::PageRequest;
use crate::engine::users::UserChange;
use crate::engine::{Caller, Engine};
use crate::store::error::OpError;
use crate::store::op::domain::DomainRefusal;
use crate::store::private_file;

/// Name of the file in a kept directory.
pub(in crate::app) const FILE: &str = "dev.json";
const ACCOUNT: &str = "Development";
/// Address of the panel user in `dev`.
const PANEL_USER: &str = "dev@example.test";
/// The verified domains of `dev`.
const DOMAINS: [(&str, Stream); 2] =
    [("example.test", Stream::Transactional), ("news.example.test", Stream::Marketing)];
/// Every row of a list.
const ALL: PageRequest = PageRequest { before: None, limit: usize::MAX };

/// The content of `dev.json` in a kept directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Credentials {
    pub(super) api_key: String,
    pub(super) marketing_api_key: String,
    pub(super) account_id: String,
    pub(super) panel_user: String,
    pub(super) panel_password: String,
    /// Chosen keys.
    #[serde(default)]
    pub(super) chosen_keys: Vec<String>,
    /// Secret of the webhooks, if there are any.
    #[serde(default)]
    pub(super) webhook_secret: Option<String>,
    /// Webhooks from options, by URL.
    #[serde(default)]
    pub(super) webhooks: Vec<(String, EndpointId)>,
    /// Domains from options, by name.
    #[serde(default)]
    pub(super) domains: Vec<String>,
}

/// The first account, and its objects that a reset keeps.
pub(super) struct DevAccount {
    pub(super) credentials: Credentials,
    pub(super) account: AccountId,
    pub(super) ids: GivenIds,
}

fn furnishing(error: &dyn std::fmt::Display) -> CliError {
    cannot("set up the development account", error)
}

/// Returns the account of a kept directory, or a new one, with the objects from the options.
pub(super) async fn furnish(
    engine: &Arc<Engine>,
    directory: &Path,
    options: &DevOptions,
) -> Result<DevAccount, CliError> {
    let path = directory.join(FILE);
    let kept = match fs::read(&path) {
        Ok(bytes) => {
            Some(serde_json::from_slice::<Credentials>(&bytes).map_err(|error| cannot("read dev.json", &error))?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(cannot("read dev.json", &error)),
    };
    let is_new = kept.is_none();
    let mut made = match kept.clone() {
        Some(kept) => kept,
        None => first_account(engine).await?,
    };
    if is_new {
        keep(&path, &made).map_err(|error| cannot("keep dev.json", &error))?;
    }
    let account: AccountId = made.account_id.parse().map_err(|_| furnishing(&"dev.json contains no account"))?;
    choose_key(engine, account, &mut made, options.api_key.as_deref()).await?;
    let domains = add_domains(engine, account, &mut made, &options.domains).await?;
    add_webhooks(engine, account, &mut made, options).await?;
    if kept.as_ref() != Some(&made) {
        keep(&path, &made).map_err(|error| cannot("keep dev.json", &error))?;
    }
    let ids = given_ids(engine, account, &made, domains)?;
    Ok(DevAccount { credentials: made, account, ids })
}

/// Creates the account with its keys and its user. After a crash it continues with the existing account.
async fn first_account(engine: &Arc<Engine>) -> Result<Credentials, CliError> {
    let name: AccountName = ACCOUNT.parse().map_err(|error| furnishing(&error))?;
    let accounts = engine.accounts(ALL).map_err(|error| furnishing(&error))?;
    let account = match accounts.rows.into_iter().find(|account| account.name == name) {
        Some(account) => account.id,
        None => engine.create_account(name, None, engine.settings.quota).await.map_err(|error| furnishing(&error))?.id,
    };
    let mut secrets = Vec::new();
    for (name, stream) in [("dev", None), ("dev marketing", Some(Stream::Marketing))] {
        let caller = Caller { account, key: None };
        let key = NewKey { name: name.to_owned(), stream, scopes: Scopes::ALL, expires_at: None };
        let made = engine.create_key(&caller, key).await;
        let (_, secret) = made.map_err(|stop| furnishing(&format!("{stop:?}")))?;
        secrets.push(secret.expose().to_owned());
    }
    let (panel_user, panel_password) = panel_user(engine, account).await?;
    let mut secrets = secrets.into_iter();
    Ok(Credentials {
        api_key: secrets.next().unwrap_or_default(),
        marketing_api_key: secrets.next().unwrap_or_default(),
        account_id: account.to_string(),
        panel_user,
        panel_password,
        chosen_keys: Vec::new(),
        webhook_secret: None,
        webhooks: Vec::new(),
        domains: DOMAINS.map(|(name, _)| name.to_owned()).into(),
    })
}

/// Returns the address and the password of the panel user. A user from before a crash gets a new password.
async fn panel_user(engine: &Arc<Engine>, account: AccountId) -> Result<(String, String), CliError> {
    let furnishing = |error: &dyn std::fmt::Display| cannot("create the panel user", error);
    let email: Address = PANEL_USER.parse().map_err(|error| furnishing(&error))?;
    let known = engine.users(account, ALL).map_err(|error| furnishing(&error))?.rows;
    let password = match known.into_iter().find(|user| user.email == email) {
        Some(user) => {
            let password = NewPassword::generate(&*engine.entropy);
            let change = UserChange { password: Some(password.clone()), ..UserChange::default() };
            let changed = engine.change_user(Behalf::operator(account), user.id, change).await;
            changed.map(|_| password).map_err(|stop| furnishing(&format!("{stop:?}")))?
        }
        None => {
            let made = engine.create_user(Behalf::operator(account), email, Role::Owner).await;
            made.map_err(|stop| furnishing(&format!("{stop:?}")))?.1
        }
    };
    Ok((PANEL_USER.to_owned(), password.expose().to_owned()))
}

/// Restores the keys that were chosen earlier, and adds the one that is chosen now.
async fn choose_key(
    engine: &Arc<Engine>,
    account: AccountId,
    made: &mut Credentials,
    chosen: Option<&str>,
) -> Result<(), CliError> {
    for key in made.chosen_keys.iter().filter_map(|text| KeySecret::chosen(text)) {
        engine.development.register_key(key);
    }
    let Some(text) = chosen else { return Ok(()) };
    if made.api_key != text && !made.chosen_keys.iter().any(|known| known == text) {
        let secret = KeySecret::chosen(text).ok_or_else(|| furnishing(&"the API key is malformed"))?;
        let new = NewKey { name: "dev (chosen)".to_owned(), stream: None, scopes: Scopes::ALL, expires_at: None };
        engine.adopt_key(account, new, secret).await.map_err(|stop| furnishing(&format!("{stop:?}")))?;
        made.chosen_keys.push(text.to_owned());
    }
    text.clone_into(&mut made.api_key);
    Ok(())
}

/// Adds the missing domains, and returns those from the options.
async fn add_domains(
    engine: &Arc<Engine>,
    account: AccountId,
    made: &mut Credentials,
    wanted: &[(DomainName, Stream)],
) -> Result<Vec<DomainId>, CliError> {
    let mut all = Vec::new();
    for (name, stream) in DOMAINS {
        all.push((name.parse().map_err(|error| furnishing(&error))?, stream));
    }
    all.extend_from_slice(wanted);
    for (name, stream) in all {
        let text = name.to_string();
        match engine.create_verified_domain(account, name, stream).await {
            Ok(_) | Err(OpError::Refused(DomainRefusal::Exists)) => {}
            Err(OpError::Refused(DomainRefusal::Taken)) => {
                let why = format!("another account of this directory has verified {text}");
                return Err(CliError::new(Exit::Conflict, "cannot add the domain", why, "Remove it from --domain."));
            }
            Err(stop) => return Err(furnishing(&format!("{stop:?}"))),
        }
        if !made.domains.contains(&text) {
            made.domains.push(text);
        }
    }
    let rows = engine.domains(account, ALL).map_err(|error| furnishing(&error))?.rows;
    Ok(rows.into_iter().filter(|(_, row)| made.domains.contains(&row.name.to_string())).map(|(id, _)| id).collect())
}

/// Creates missing endpoints, and enables existing ones. All have the same secret.
async fn add_webhooks(
    engine: &Arc<Engine>,
    account: AccountId,
    made: &mut Credentials,
    options: &DevOptions,
) -> Result<(), CliError> {
    let chosen = options.webhook_secret.clone().or_else(|| made.webhook_secret.clone());
    if options.webhooks.is_empty() && made.webhooks.is_empty() {
        return Ok(());
    }
    let generated = || webhook_secret(&entropy::bytes(&*engine.entropy)).expose_text().to_owned();
    let text = chosen.unwrap_or_else(generated);
    let is_other = made.webhook_secret.as_ref() != Some(&text);
    let secret = Secret::new(text.clone());
    made.webhook_secret = Some(text);
    if is_other {
        for (_, id) in &made.webhooks {
            // An endpoint that a test has removed is created again below, if the options still name it.
            let _ = engine.give_secret(account, *id, &secret).await;
        }
    }
    for url in &options.webhooks {
        add_webhook(engine, account, made, url, &secret).await?;
    }
    Ok(())
}

async fn add_webhook(
    engine: &Arc<Engine>,
    account: AccountId,
    made: &mut Credentials,
    url: &WebhookUrl,
    secret: &Secret,
) -> Result<(), CliError> {
    let known = made.webhooks.iter().find(|(known, _)| known == url.as_str()).map(|(_, id)| *id);
    if let Some(id) = known {
        let change = EndpointChange { enabled: Some(true), ..EndpointChange::default() };
        if engine.update_endpoint(Behalf::operator(account), id, change).await.is_ok() {
            return Ok(());
        }
    }
    let id = engine.give_endpoint(account, url.clone(), secret).await;
    let id = id.map_err(|stop| furnishing(&format!("{url}: {stop:?}")))?;
    made.webhooks.retain(|(known, _)| known != url.as_str());
    made.webhooks.push((url.as_str().to_owned(), id));
    Ok(())
}

/// Returns the objects that a reset keeps.
fn given_ids(
    engine: &Engine,
    account: AccountId,
    made: &Credentials,
    domains: Vec<DomainId>,
) -> Result<GivenIds, CliError> {
    let mut ids = GivenIds { domains, ..GivenIds::default() };
    for text in [&made.api_key, &made.marketing_api_key].into_iter().chain(&made.chosen_keys) {
        let caller = engine.authenticate(text).map_err(|error| furnishing(&error))?;
        let key = caller.and_then(|caller| caller.key).map(|key| key.id);
        ids.keys.extend(key.filter(|key| !ids.keys.contains(key)));
    }
    let users = engine.users(account, ALL).map_err(|error| furnishing(&error))?.rows;
    let own = users.into_iter().filter(|user| user.email.as_given() == made.panel_user);
    ids.users.extend(own.map(|user| user.id).collect::<Vec<UserId>>());
    ids.endpoints.extend(made.webhooks.iter().map(|(_, id)| *id));
    Ok(ids)
}

fn keep(path: &Path, credentials: &Credentials) -> io::Result<()> {
    private_file::replace(path, &serde_json::to_vec(credentials)?)
}
