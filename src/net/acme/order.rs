//! One ACME attempt, from the account to the certificate chain.
//!
//! Every step can be repeated. The account is found by its key. An order is saved before it is finished, so that a
//! later attempt can resume it.

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, Key, KeyAuthorization, NewOrder, OrderStatus,
    RetryPolicy,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::challenges::{ChallengeProof, PublishedProof};
use super::{Acme, ProofMethod, keys, vault};
use crate::machine::renewal::RenewalFailure;

/// Polling schedule for an authority that is still busy.
const POLLING: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(250)).backoff(1.5).timeout(Duration::from_secs(120));
/// Pause after a rate limit without `Retry-After`.
const RATE_LIMITED: Duration = Duration::from_secs(3600);

/// An issued certificate and its key, in PEM.
pub(super) struct IssuedCertificate {
    pub(super) chain: String,
    pub(super) key: String,
}

/// A failed attempt.
#[derive(Debug)]
pub(super) struct OrderError {
    pub(super) setback: RenewalFailure,
    /// The reason, as a sentence.
    pub(super) why: String,
    /// The names that could not be proven, if that is the reason.
    pub(super) unproven: Vec<String>,
    /// The `Retry-After` of the authority.
    pub(super) retry_after: Option<Duration>,
}

impl OrderError {
    pub(super) fn new(setback: RenewalFailure, why: impl Into<String>) -> Self {
        Self { setback, why: why.into(), unproven: Vec::new(), retry_after: None }
    }
}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        match &error {
            Error::Api(problem) => {
                let kind = problem.r#type.as_deref().unwrap_or_default().rsplit(':').next().unwrap_or_default();
                let detail = problem.detail.clone().unwrap_or_else(|| error.to_string());
                let mut why = if kind.is_empty() { detail } else { format!("{detail} ({kind})") };
                for of_one in &problem.subproblems {
                    why.push_str(&format!("; {of_one}"));
                }
                let retry_after = (kind == "rateLimited").then_some(RATE_LIMITED);
                // A bad nonce or an error inside the authority says nothing about our request.
                let setback = match kind {
                    "badNonce" | "serverInternal" => RenewalFailure::Unreached,
                    _ => RenewalFailure::Refused,
                };
                let blamed = problem.subproblems.iter().filter_map(|of_one| of_one.identifier.as_ref());
                let unproven = blamed.map(|identifier| identifier.authorized(false).to_string()).collect();
                Self { retry_after, unproven, ..Self::new(setback, why) }
            }
            _ => Self::new(RenewalFailure::Unreached, error.to_string()),
        }
    }
}

impl OrderError {
    /// Adds the names of `names` that the reason mentions. If only one name is refused, Let's Encrypt names it only in
    /// the text, and not in subproblems (RFC 8555 6.7.1).
    fn blaming(mut self, names: &[String]) -> Self {
        if self.setback == RenewalFailure::Refused && self.unproven.is_empty() {
            let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '.');
            let words: Vec<_> = self.why.split(|letter| !is_part(letter)).map(|word| word.trim_matches('.')).collect();
            self.unproven = names.iter().filter(|name| words.contains(&name.as_str())).cloned().collect();
        }
        self
    }
}

impl Acme {
    /// Requests one certificate for `names`, proving them with challenge type `way`.
    pub(super) async fn order(&self, names: &[String], way: ProofMethod) -> Result<IssuedCertificate, OrderError> {
        self.ordered(names, way).await.map_err(|fault| fault.blaming(names))
    }

    async fn ordered(&self, names: &[String], way: ProofMethod) -> Result<IssuedCertificate, OrderError> {
        let account = self.account().await?;
        let (mut order, key) = self.resume_or_create(&account, names).await?;
        if matches!(order.state().status, OrderStatus::Pending | OrderStatus::Ready) {
            self.prove(&mut order, way).await?;
            let request =
                keys::signing_request(names, &key).map_err(|why| OrderError::new(RenewalFailure::Refused, why))?;
            order.finalize_csr(&request).await?;
        }
        let chain = order.poll_certificate(&POLLING).await?;
        Ok(IssuedCertificate { chain, key })
    }

    /// Returns the account of our key. Creates it if there is none.
    async fn account(&self) -> Result<Account, OrderError> {
        let pem = match self.vault.account_key() {
            Some(pem) => pem,
            None => {
                let pem = keys::new_key().map_err(|why| OrderError::new(RenewalFailure::Refused, why))?;
                self.vault.keep_account_key(&pem).map_err(|error| not_saved(&error))?;
                pem
            }
        };
        let unusable =
            |why: String| OrderError::new(RenewalFailure::Refused, format!("acme/account.key can't be used: {why}"));
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| unusable(format!("{error:?}")))?;
        let key = Key::from_pkcs8_der(der.clone_key()).map_err(|error| unusable(error.to_string()))?;
        let builder = Account::builder_with_http(Box::new(self.http.clone()));
        let directory = self.settings.directory.to_string();
        let (account, _) = builder.create_from_key((key, PrivateKeyDer::Pkcs8(der)), directory).await?;
        if let Some(contact) = &self.settings.contact {
            account.update_contacts(&[&format!("mailto:{contact}")]).await?;
        }
        Ok(account)
    }

    /// Returns the unfinished order for these names, or a new one.
    async fn resume_or_create(
        &self,
        account: &Account,
        names: &[String],
    ) -> Result<(instant_acme::Order, String), OrderError> {
        let directory = self.settings.directory.as_str();
        if let Some(kept) = self.vault.order() {
            let held = std::fs::read_to_string(self.vault.certificate()).unwrap_or_default();
            let is_ours = kept.directory == directory && kept.names == names && !held.contains(&kept.key);
            self.vault.forget_order();
            if is_ours {
                match account.order(kept.url.clone()).await {
                    Ok(mut order) => {
                        if order.state().status != OrderStatus::Invalid {
                            self.vault.keep_order(&kept).map_err(|error| not_saved(&error))?;
                            return Ok((order, kept.key));
                        }
                    }
                    // The authority no longer knows the order.
                    Err(Error::Api(_)) => {}
                    Err(error) => {
                        self.vault.keep_order(&kept).map_err(|error| not_saved(&error))?;
                        return Err(error.into());
                    }
                }
            }
        }
        let identifiers: Vec<_> = names.iter().cloned().map(Identifier::Dns).collect();
        let order = account.new_order(&NewOrder::new(&identifiers)).await?;
        let key = keys::new_key().map_err(|why| OrderError::new(RenewalFailure::Refused, why))?;
        let (directory, url) = (directory.to_owned(), order.url().to_owned());
        let begun = vault::Order { directory, names: names.to_vec(), url, key };
        self.vault.keep_order(&begun).map_err(|error| not_saved(&error))?;
        Ok((order, begun.key))
    }

    /// Proves every name that is not proven yet.
    async fn prove(&self, order: &mut instant_acme::Order, way: ProofMethod) -> Result<(), OrderError> {
        let mut given = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let name = authorization.identifier().to_string();
            let mut challenge = authorization.challenge(way.challenge()).ok_or_else(|| OrderError {
                unproven: vec![name.clone()],
                ..OrderError::new(RenewalFailure::Refused, format!("{name} can't be proven by {}", way.as_str()))
            })?;
            let token = challenge.token.clone();
            given.push(self.give(way, name, token, &challenge.key_authorization())?);
            challenge.set_ready().await?;
        }
        match order.poll_ready(&POLLING).await {
            Ok(OrderStatus::Ready) => Ok(()),
            Ok(_) => Err(unproven(order, way, None).await),
            Err(error @ Error::Api(_)) => Err(unproven(order, way, Some(error)).await),
            Err(error) => Err(error.into()),
        }
    }

    fn give(
        &self,
        way: ProofMethod,
        name: String,
        token: String,
        key: &KeyAuthorization,
    ) -> Result<PublishedProof, OrderError> {
        let proof = match way {
            ProofMethod::Http => ChallengeProof::Answer { token, answer: key.as_str().to_owned() },
            ProofMethod::TlsAlpn => {
                let certificate = keys::proof(&name, key.digest().as_ref());
                let certificate = certificate.map_err(|why| OrderError::new(RenewalFailure::Refused, why))?;
                ChallengeProof::Certificate { name, certificate }
            }
        };
        Ok(Arc::clone(&self.challenges).give(proof))
    }
}

/// Returns the names that the authority could not validate, and why. `error` is the error of the whole order.
async fn unproven(order: &mut instant_acme::Order, way: ProofMethod, error: Option<Error>) -> OrderError {
    let (mut unproven, mut whys) = (Vec::new(), Vec::new());
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        if state.status != AuthorizationStatus::Invalid {
            continue;
        }
        let name = state.identifier().to_string();
        let said = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()?.detail.clone());
        whys.push(format!("{name}: {}", said.unwrap_or_else(|| "validation failed".to_owned())));
        unproven.push(name);
    }
    if whys.is_empty() {
        let silent = || OrderError::new(RenewalFailure::Refused, "the authority ended the order without a reason");
        return error.map_or_else(silent, OrderError::from);
    }
    let why = format!("not proven by {}: {}", way.as_str(), whys.join("; "));
    OrderError { unproven, ..OrderError::new(RenewalFailure::Refused, why) }
}

impl ProofMethod {
    const fn challenge(self) -> ChallengeType {
        match self {
            Self::TlsAlpn => ChallengeType::TlsAlpn01,
            Self::Http => ChallengeType::Http01,
        }
    }
}

/// The failure of a data directory that can't be written. The authority is not at fault.
pub(super) fn not_saved(error: &std::io::Error) -> OrderError {
    OrderError::new(
        RenewalFailure::Unreached,
        format!("could not write the folder acme of the data directory: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(problem: serde_json::Value) -> OrderError {
        let names = ["example.com", "mail.example.com", "bounces.example.com"].map(str::to_owned);
        OrderError::from(Error::Api(serde_json::from_value(problem).unwrap())).blaming(&names)
    }

    #[test]
    fn refused_names_come_from_the_subproblems_or_else_from_the_detail_text() {
        let one = refused(serde_json::json!({
            "type": "urn:ietf:params:acme:error:rejectedIdentifier",
            "detail": "Cannot issue for \"mail.example.com\": the name is on a list.",
        }));
        assert_eq!(one.unproven, ["mail.example.com"], "and not example.com, which only ends it");
        let of_two = refused(serde_json::json!({
            "type": "urn:ietf:params:acme:error:caa",
            "detail": "Errors for mail.example.com and one more",
            "subproblems": [
                { "identifier": { "type": "dns", "value": "bounces.example.com" }, "detail": "CAA forbids it" },
            ],
        }));
        assert_eq!(of_two.unproven, ["bounces.example.com"]);
        let nobody = refused(serde_json::json!({ "type": "urn:ietf:params:acme:error:unauthorized", "detail": "no" }));
        assert!(nobody.unproven.is_empty() && nobody.setback == RenewalFailure::Refused);
    }

    #[test]
    fn an_internal_error_of_the_authority_blames_no_name() {
        let cli_error = refused(serde_json::json!({
            "type": "urn:ietf:params:acme:error:serverInternal", "detail": "while looking up mail.example.com",
        }));
        assert!(cli_error.unproven.is_empty() && cli_error.setback == RenewalFailure::Unreached);
    }
}
