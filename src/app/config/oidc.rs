//! `[oidc]`: sign-in to the panel by OpenID Connect.

use std::io;
use std::path::Path;

use super::relay::SecretFile;
use super::section::{Section, parsed, path, text, unless_empty, word};
use super::tree::Node;
use crate::base::id::AccountId;
use crate::domain::hostname::DomainName;
use crate::domain::provider_document::document_url;
use crate::domain::user::Role;
use crate::engine::oidc::OidcSettings;

/// `[oidc]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oidc {
    /// Issuer name of the provider.
    pub issuer: String,
    /// Client ID of the service at the provider.
    pub client_id: String,
    /// File with the client secret; `None` for a public client.
    pub client_secret: Option<SecretFile>,
    /// Domains whose addresses may become users.
    pub allowed_domains: Vec<DomainName>,
    /// Account of new users; without it none are created.
    pub account: Option<AccountId>,
    /// The role of new users.
    pub default_role: Role,
}

impl Oidc {
    /// Reads the section; issuer and client ID are required.
    pub(super) fn read(mut section: Section<'_>, credentials: Option<&Path>) -> Self {
        let issuer = section.required("issuer", "must be the provider's https URL", issuer);
        let client_id = section.required("client_id", "must be the service's name at the provider", client_id);
        let secret = section.value("client_secret_file", None, unless_empty(path));
        let roles = [("viewer", Role::Viewer), ("member", Role::Member)];
        let oidc = Self {
            issuer: issuer.unwrap_or_default(),
            client_id: client_id.unwrap_or_default(),
            client_secret: secret.map(|file| SecretFile::new(file, credentials)),
            allowed_domains: section.list("allowed_domains", Vec::new(), parsed),
            account: section.value("account", None, unless_empty(parsed)),
            default_role: section.value("default_role", Role::Viewer, word(roles)),
        };
        section.finish();
        oidc
    }

    /// Returns the settings with the secret from the file.
    ///
    /// # Errors
    /// Errors of reading the file.
    pub fn settings(&self) -> io::Result<OidcSettings> {
        let client_secret = self.client_secret.as_ref().map(SecretFile::read).transpose()?;
        let Self { issuer, client_id, allowed_domains, account, default_role, .. } = self.clone();
        Ok(OidcSettings { issuer, client_id, client_secret, allowed_domains, account, default_role })
    }
}

fn issuer(node: &Node) -> Result<String, String> {
    let text = text(node)?;
    let checked = document_url(text).map(|_| text.to_owned());
    checked.map_err(|_| format!("`{text}` is not an https URL without a query, such as https://login.example.com"))
}

fn client_id(node: &Node) -> Result<String, String> {
    text(node).map(str::to_owned)
}
