//! `[alerts]`: the recipients of alerts, and the channels.

use std::path::Path;
use std::time::Duration;

use url::Url;

use super::relay::{Relay, SecretFile};
use super::section::{Section, boolean, number, parsed, path, text, unless_empty};
use super::tree::Node;
use crate::base::secret::Secret;
use crate::domain::address::Address;
use crate::domain::hostname::DomainName;
use crate::engine::dmarc::MAILBOX;

/// Maximum number of operator addresses.
const EMAIL_MAX: usize = 10;
/// A year, the maximum age of a backup that can be configured.
const BACKUP_HOURS_MAX: i64 = 24 * 366;

/// `[alerts]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Alerts {
    /// The operator's addresses.
    pub email: Vec<Address>,
    /// Sender address; by default `alerts@` the bounce host.
    pub from: Option<Address>,
    /// Whether alerts of an account go to its owners.
    pub owners: bool,
    /// Name of the relay that is tried first.
    pub relay: Option<String>,
    /// The webhook.
    pub webhook: Option<AlertWebhook>,
    /// Block lists to look up source addresses in.
    pub blocklists: Vec<DomainName>,
    /// The age at which a backup is too old (`backup_hours`).
    pub backup_age_max: Option<Duration>,
}

/// The webhook of alerts.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertWebhook {
    /// URL.
    pub url: Url,
    /// Secret.
    pub secret: WebhookSecret,
}

/// Source of the webhook's secret.
#[derive(Debug, Clone)]
pub enum WebhookSecret {
    /// The text in the configuration.
    Text(Secret),
    /// A separate file.
    File(SecretFile),
}

impl PartialEq for WebhookSecret {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(own), Self::Text(other)) => own.expose() == other.expose(),
            (Self::File(own), Self::File(other)) => own == other,
            (Self::Text(_) | Self::File(_), _) => false,
        }
    }
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            email: Vec::new(),
            from: None,
            owners: true,
            relay: None,
            webhook: None,
            blocklists: Vec::new(),
            backup_age_max: Some(Duration::from_secs(48 * 3600)),
        }
    }
}

impl Alerts {
    /// Returns the defaults of `dev`, which sends no notifications unless configured.
    pub(super) fn for_dev() -> Self {
        Self { owners: false, ..Self::default() }
    }

    /// Returns whether alerts are sent by mail, to the operator or to owners.
    pub(in crate::app) fn sends_mail(&self) -> bool {
        !self.email.is_empty() || self.owners
    }

    /// Reads the section. Relays are referred to by name. Addresses at the bounce host are refused: they would bring
    /// alerts back here.
    pub(super) fn read(
        mut section: Section<'_>,
        base: Self,
        relays: &[Relay],
        bounce_host: &DomainName,
        credentials: Option<&Path>,
    ) -> Self {
        let outside = |node: &Node| {
            let address: Address = parsed(node)?;
            let is_report_mailbox = address.local().eq_ignore_ascii_case(MAILBOX);
            if is_report_mailbox && address.domain().as_str().starts_with("rp.") {
                return Err("must not be a mailbox for DMARC reports: use the address of a person".to_owned());
            }
            match address.domain() == bounce_host {
                true => Err(format!(
                    "must not be at the bounce host {bounce_host}: the alert would be returned to this server"
                )),
                false => Ok(address),
            }
        };
        let named = |node: &Node| {
            let name = text(node)?;
            match relays.iter().any(|relay| relay.name == name) {
                true => Ok(name.to_owned()),
                false => Err(format!("there is no relay {name}; add it as a [[relay]] with streams = []")),
            }
        };
        let hours = |node: &Node| {
            let hours: u64 = number(0..=BACKUP_HOURS_MAX)(node)?;
            Ok((hours > 0).then(|| Duration::from_secs(hours * 3600)))
        };
        let email = section.list("email", base.email, outside);
        if email.len() > EMAIL_MAX {
            section.missing("email", format!("must have at most {EMAIL_MAX} addresses"));
        }
        let alerts = Self {
            email,
            from: section.value("from", base.from, unless_empty(parsed)),
            owners: section.value("owners", base.owners, boolean),
            relay: section.value("relay", base.relay, unless_empty(named)),
            webhook: webhook(&mut section, credentials).or(base.webhook),
            blocklists: section.list("blocklists", base.blocklists, parsed),
            backup_age_max: section.value("backup_hours", base.backup_age_max, hours),
        };
        section.finish();
        alerts
    }
}

/// Reads the webhook, if there is one. It has exactly one secret.
fn webhook(section: &mut Section<'_>, credentials: Option<&Path>) -> Option<AlertWebhook> {
    let url = section.value("webhook_url", None, unless_empty(https));
    let secret = section.value("webhook_secret", None, unless_empty(|node| text(node).map(str::to_owned)));
    let file = section.value("webhook_secret_file", None, unless_empty(path));
    let secret = match (secret, file) {
        (Some(_), Some(_)) => {
            section.missing("webhook_secret", "must not be set together with webhook_secret_file");
            return None;
        }
        (Some(text), None) => Some(WebhookSecret::Text(Secret::new(text))),
        (None, Some(file)) => Some(WebhookSecret::File(SecretFile::new(file, credentials))),
        (None, None) => None,
    };
    match (url, secret) {
        (Some(url), Some(secret)) => Some(AlertWebhook { url, secret }),
        (Some(_), None) => {
            section.missing("webhook_secret", "must be set if webhook_url is set, here or in webhook_secret_file");
            None
        }
        (None, Some(_)) if !section.has_faults_of("webhook_url") => {
            section.missing("webhook_url", "must be set if webhook_secret is set");
            None
        }
        (None, _) => None,
    }
}

fn https(node: &Node) -> Result<Url, String> {
    let text = text(node)?;
    let url = Url::parse(text).map_err(|_| format!("`{text}` is not a URL, such as https://hooks.example.com/in"))?;
    match url.scheme() {
        "https" if url.host().is_some() && url.username().is_empty() && url.password().is_none() => Ok(url),
        "https" => Err("must have a host, and no user name or password".to_owned()),
        _ => Err("must be an https URL".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use crate::app::config::{Config, ConfigError};
    use crate::app::environment::Environment;

    const HEAD: &str = "hostname = \"mail.example.com\"\n[bounces]\nhost = \"bounces.example.com\"\n";

    fn parsed(more: &str) -> Result<Config, ConfigError> {
        Config::parse(&format!("{HEAD}{more}"), "p.toml", &Environment::default())
    }

    fn fault(more: &str) -> String {
        parsed(more).unwrap_err().to_string()
    }

    #[test]
    fn alerts_go_only_to_owners_by_default() {
        let config = parsed("").unwrap();
        assert!(config.alerts.email.is_empty() && config.alerts.owners && config.alerts.webhook.is_none());
        assert_eq!(config.alerts_from().to_wire(), "alerts@bounces.example.com");
        let off = parsed("[alerts]\nbackup_hours = 0\nfrom = \"ops@example.com\"\nowners = false").unwrap();
        assert_eq!((off.alerts.backup_age_max, off.alerts.owners), (None, false));
        assert_eq!(off.alerts_from().to_wire(), "ops@example.com");
    }

    #[test]
    fn unusable_settings_are_errors() {
        let email = fault("[alerts]\nemail = [\"ops@example.net\", \"a@bounces.example.com\"]");
        assert!(email.contains("alerts.email") && email.contains("bounce host"), "{email}");
        let reports = fault("[alerts]\nemail = [\"dmarc@rp.example.net\"]");
        assert!(reports.contains("alerts.email") && reports.contains("DMARC reports"), "{reports}");
        let many = (0..11).map(|number| format!("\"a{number}@example.net\"")).collect::<Vec<_>>().join(", ");
        assert!(fault(&format!("[alerts]\nemail = [{many}]")).contains("at most 10"));
        let relay = fault("[alerts]\nrelay = \"elsewhere\"");
        assert!(relay.contains("alerts.relay") && relay.contains("elsewhere"), "{relay}");
        let url = fault("[alerts]\nwebhook_url = \"https://hooks.example.com/\"");
        assert!(url.contains("alerts.webhook_secret"), "{url}");
        let plain = fault("[alerts]\nwebhook_url = \"http://hooks.example.com/\"\nwebhook_secret = \"x\"");
        assert!(plain.contains("https") && !plain.contains("must be set"), "{plain}");
        assert!(fault("[alerts]\nwebhook_secret = \"x\"").contains("alerts.webhook_url"));
    }

    #[test]
    fn a_relay_only_for_alerts_carries_no_stream() {
        let more = "[alerts]\nrelay = \"other\"\n[[relay]]\nname = \"direct\"\n[[relay]]\nname = \"other\"\n\
                    kind = \"smarthost\"\nhost = \"smtp.example.net\"\nstreams = []";
        assert_eq!(parsed(more).unwrap().alerts.relay.as_deref(), Some("other"));
    }
}
