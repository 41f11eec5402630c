//! Accounts for tests: a separate one for each parallel test, and the reset of all of them (contract 12.2).

use std::sync::Arc;

use hyper::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{blocking, dev};
use crate::base::id::{self, AccountId, DomainId};
use crate::domain::account::AccountName;
use crate::domain::api_key::Scopes;
use crate::domain::fields::Fields;
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;
use crate::domain::violation::Violations;
use crate::engine::Engine;
use crate::engine::accounts::NewKey;
use crate::engine::audit::Behalf;
use crate::engine::development::GivenIds;
use crate::engine::listing::PageRequest;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::store::error::OpError;
use crate::store::op::domain::DomainRefusal;

/// Parent of an account's domain if the request names none.
const PARENT: &str = "example.test";
/// Default name of an account.
const NAME: &str = "Test";

#[derive(Serialize)]
struct AccountView<'a> {
    #[serde(serialize_with = "id::as_text")]
    account_id: AccountId,
    name: String,
    api_key: &'a str,
    marketing_api_key: &'a str,
    domain: &'a str,
    marketing_domain: &'a str,
}

/// `POST /dev/accounts`.
pub(super) async fn create(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let (name, domain) = asked(&call)?;
    let (engine, dev) = (&api.engine, dev(api)?);
    let _turn = dev.given.turn.lock().await;
    let account = engine.create_account(name, None, engine.settings.quota).await?;
    let id = account.id;
    let made = furnish(engine, id, domain).await;
    let NewDevAccount { keys, domains, ids } = match made {
        Ok(made) => made,
        Err(error) => {
            engine.begin_again(id, Vec::new()).await?;
            return Err(error);
        }
    };
    dev.given.note(engine, id, ids)?;
    let view = AccountView {
        account_id: id,
        name: account.name.as_str().to_owned(),
        api_key: &keys[0],
        marketing_api_key: &keys[1],
        domain: &domains[0],
        marketing_domain: &domains[1],
    };
    Ok(Answer::json(StatusCode::CREATED, &view))
}

/// Returns the members of a body, which may be empty.
fn members(call: &Call<()>) -> Result<Map<String, Value>, ApiError> {
    if call.body().is_empty() {
        call.no_query()?;
        return Ok(Map::new());
    }
    call.json()
}

fn asked(call: &Call<()>) -> Result<(AccountName, Option<DomainName>), ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(members(call)?, &mut violations);
    let name = fields.text("name").unwrap_or_else(|| NAME.to_owned());
    let name = fields.check("name", name.parse::<AccountName>());
    let domain = fields.text("domain").and_then(|text| fields.check("domain", text.parse::<DomainName>()));
    fields.finish();
    Ok(violations.or(|| name.map(|name| (name, domain)))?)
}

struct NewDevAccount {
    keys: [String; 2],
    domains: [String; 2],
    ids: GivenIds,
}

/// Creates the domains and keys of an account.
async fn furnish(
    engine: &Arc<Engine>,
    account: AccountId,
    domain: Option<DomainName>,
) -> Result<NewDevAccount, ApiError> {
    let invalid = |fault: &dyn std::fmt::Display| ApiError::from(Violations::of("domain", fault.to_string()));
    let domain = match domain {
        Some(domain) => domain,
        None => format!("{}.{PARENT}", account.to_string().replace('_', "-").to_lowercase())
            .parse()
            .map_err(|fault| invalid(&fault))?,
    };
    let marketing: DomainName = format!("news.{domain}").parse().map_err(|fault| invalid(&fault))?;
    let mut ids = GivenIds::default();
    for (name, stream) in [(&domain, Stream::Transactional), (&marketing, Stream::Marketing)] {
        ids.domains.push(verified(engine, account, name, stream).await?);
    }
    let mut keys = [String::new(), String::new()];
    let wanted = [("test", None), ("test marketing", Some(Stream::Marketing))];
    for (place, (name, stream)) in keys.iter_mut().zip(wanted) {
        let new = NewKey { name: name.to_owned(), stream, scopes: Scopes::ALL, expires_at: None };
        let made = engine.make_key(Behalf::operator(account), new).await;
        let (key, secret) = made.map_err(|_| ApiError::Internal)?;
        ids.keys.push(key.id);
        secret.expose().clone_into(place);
    }
    Ok(NewDevAccount { keys, domains: [domain.to_string(), marketing.to_string()], ids })
}

async fn verified(
    engine: &Engine,
    account: AccountId,
    name: &DomainName,
    stream: Stream,
) -> Result<DomainId, ApiError> {
    match engine.create_verified_domain(account, name.clone(), stream).await {
        Ok((id, _)) => Ok(id),
        Err(OpError::Refused(DomainRefusal::Taken)) => {
            Err(ApiError::Conflict(format!("Another account has {name}; name another domain, or none.")))
        }
        Err(OpError::Refused(_)) => Err(ApiError::Overloaded),
        Err(OpError::Failed(error)) => Err(error.into()),
    }
}

/// `DELETE /dev/accounts/{id}`.
pub(super) async fn delete(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let id: AccountId = call.param("id").parse().map_err(|_| ApiError::NotFound)?;
    let dev = dev(api)?;
    let _turn = dev.given.turn.lock().await;
    api.engine.account(id)?.ok_or(ApiError::NotFound)?;
    if dev.given.first() == Some(id) {
        return Err(ApiError::Conflict("The first account can't be deleted; POST /dev/reset resets it.".to_owned()));
    }
    remove(api, id).await?;
    Ok(Answer::no_content())
}

/// `POST /dev/reset`.
pub(super) async fn reset(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    let mut violations = Violations::new();
    let mut fields = Fields::new(members(&call)?, &mut violations);
    let named = fields.text("account_id");
    fields.finish();
    violations.or(|| Some(()))?;
    let dev = dev(api)?;
    let _turn = dev.given.turn.lock().await;
    match named {
        // A malformed identifier is answered like an unknown one (contract 1).
        Some(text) => {
            let id: AccountId = text.parse().map_err(|_| ApiError::NotFound)?;
            api.engine.account(id)?.ok_or(ApiError::NotFound)?;
            begin_again(api, id).await?;
        }
        None => {
            let all = PageRequest { before: None, limit: usize::MAX };
            for account in api.engine.accounts(all)?.rows {
                if dev.given.first() == Some(account.id) {
                    begin_again(api, account.id).await?;
                } else {
                    remove(api, account.id).await?;
                }
            }
            let capture = Arc::clone(&dev.capture);
            blocking(api, move || capture.clear()).await?;
        }
    }
    Ok(Answer::no_content())
}

async fn begin_again(api: &Api, account: AccountId) -> Result<(), ApiError> {
    let rows = dev(api)?.given.rows(&api.engine, account)?;
    api.engine.begin_again(account, rows).await?;
    forget_mail(api, account).await
}

async fn remove(api: &Api, account: AccountId) -> Result<(), ApiError> {
    api.engine.begin_again(account, Vec::new()).await?;
    dev(api)?.given.forget(account);
    forget_mail(api, account).await
}

async fn forget_mail(api: &Api, account: AccountId) -> Result<(), ApiError> {
    let capture = Arc::clone(&dev(api)?.capture);
    blocking(api, move || capture.remove_of(account)).await
}
