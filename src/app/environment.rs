//! The environment variables that the program reads. They are taken once at the start and passed on, so that code
//! depending on them can be tested with others.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Prefix of every Postrider variable.
const PREFIX: &str = "POSTRIDER_";
/// Separator of the parts of a key, since keys contain single underscores.
const SEPARATOR: &str = "__";
/// Keys outside every section, whose variables have no separator; `relay` is the whole list.
const TOP_KEYS: [&str; 3] = ["hostname", "data_dir", "relay"];

/// A set of environment variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Returns the process's variables. Those that are not UTF-8 are ignored.
    pub fn of_process() -> Self {
        Self::of(
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        )
    }

    /// Creates a set of these variables.
    pub fn of(variables: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(variables.into_iter().collect())
    }

    /// Returns the set without one variable.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|(known, _)| *known != name).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    /// Returns the path in a variable. An empty one counts as absent.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.0.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// Returns a variable's value. An empty one counts as absent.
    pub fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|value| !value.is_empty()).cloned()
    }

    /// Returns the directory of the service's systemd credentials (systemd.exec(5), Credentials).
    pub fn credentials(&self) -> Option<PathBuf> {
        self.path("CREDENTIALS_DIRECTORY")
    }

    /// Returns the variables that override a key of the configuration: name, the key's parts, value.
    ///
    /// A variable without a separator that is not a key is ignored: orchestrators set ones such as `POSTRIDER_PORT` for
    /// a service of this name.
    pub fn overrides(&self) -> impl Iterator<Item = (&str, Vec<String>, &str)> {
        self.0.iter().filter_map(|(name, value)| {
            let parts: Vec<String> = name.strip_prefix(PREFIX)?.split(SEPARATOR).map(str::to_ascii_lowercase).collect();
            let ours = parts.len() > 1 || TOP_KEYS.contains(&parts[0].as_str());
            ours.then_some((name.as_str(), parts, value.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_overrides_a_section_s_key_or_a_top_level_key() {
        let names =
            ["POSTRIDER_HTTP__TLS__MODE", "POSTRIDER_DATA_DIR", "POSTRIDER_CONFIG", "POSTRIDER_PORT", "HTTP__X"];
        let environment = Environment::of(names.map(|name| (name.to_owned(), "v".to_owned())));
        let parts: Vec<_> = environment.overrides().map(|(_, parts, _)| parts.join(".")).collect();
        assert_eq!(parts, ["data_dir", "http.tls.mode"]);
    }
}
