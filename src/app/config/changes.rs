//! Differences between a configuration file and the configuration of the start.

use std::path::PathBuf;

use super::{Config, ConfigError};
use crate::app::environment::Environment;

/// Source of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Source {
    pub(super) file: PathBuf,
    pub(super) environment: Environment,
}

impl Config {
    /// Reads the configuration file again; `None` if the configuration came from no file.
    ///
    /// # Errors
    /// The errors of [`Self::load`].
    pub fn again(&self) -> Option<Result<Self, ConfigError>> {
        let source = self.source.as_ref()?;
        Some(Self::load(&source.file, &source.environment))
    }

    /// Returns the keys that differ in `next`, in the order of the example, without `log.level`, which can change at
    /// runtime.
    pub fn changes(&self, next: &Self) -> Vec<&'static str> {
        let (own, other) = (self, next);
        let table = [
            ("hostname", own.hostname != other.hostname),
            ("data_dir", own.data_dir != other.data_dir),
            ("http.listen", own.http.listen != other.http.listen),
            ("http.public_url", own.http.public_url != other.http.public_url),
            ("http.trusted_proxies", own.http.trusted_proxies != other.http.trusted_proxies),
            ("http.tls", own.http.tls != other.http.tls),
            ("compat", own.compat != other.compat),
            ("metrics", own.metrics != other.metrics),
            ("dns", own.dns != other.dns),
            ("delivery", own.delivery != other.delivery),
            ("bounces", own.bounces != other.bounces),
            ("submission", own.submission != other.submission),
            ("oidc", own.oidc != other.oidc),
            ("relay", own.relays != other.relays),
            ("replica", own.replica != other.replica),
            ("webhooks", own.webhooks != other.webhooks),
            ("alerts", own.alerts != other.alerts),
            ("network", own.network != other.network),
            ("limits", own.limits != other.limits),
            ("quota", own.quota != other.quota),
            ("log.format", own.log.format != other.log.format),
            (LOG_LEVEL, own.log.level != other.log.level),
        ];
        table.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

/// The key that takes effect at runtime.
pub(in crate::app) const LOG_LEVEL: &str = "log.level";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_changed_file_is_reported_by_its_changed_keys() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.toml");
        let write = |more: &str| fs::write(&file, format!("hostname = \"mail.example.com\"\n{more}")).unwrap();
        write("");
        let config = Config::load(&file, &Environment::default()).unwrap();
        let changes = || config.changes(&config.again().unwrap().unwrap());
        assert_eq!(changes(), [""; 0]);
        write("[http]\nlisten = [\"[::]:8443\"]\n[log]\nlevel = \"debug\"\nformat = \"json\"\n[quota]\nper_hour = 1\n");
        assert_eq!(changes(), ["http.listen", "quota", "log.format", "log.level"]);
        write("port = 1");
        assert!(config.again().unwrap().is_err());
        assert!(Config::for_dev().again().is_none());
    }
}
