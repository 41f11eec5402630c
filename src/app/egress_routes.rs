//! The relays and the rules for the engine, from the configuration.

use std::path::Path;
use std::sync::Arc;

use jiff::civil::{Date, date};

use super::cli_error::CliError;
use super::config::{self, Config, RelayKind, SmarthostTls};
use super::exit::Exit;
use crate::engine::ports::{Security, Submission};
use crate::engine::relay::{Relay, RelayWay, Smarthost, WarmUp};
use crate::engine::{CaptureRoute, EgressRoutes, Tables};
use crate::smtp::client::Login;
use crate::smtp::rules::Rules;
use crate::smtp::shaping::Shaping;

/// The epoch from which days are counted.
const EPOCH: Date = date(1970, 1, 1);

/// Returns the relays.
///
/// # Errors
/// A password file can't be read.
pub(super) fn egress_routes(config: &Config, capture: Option<Arc<CaptureRoute>>) -> Result<EgressRoutes, CliError> {
    let relays = config.relays.iter().map(|relay| made(relay, config)).collect::<Result<_, _>>()?;
    Ok(EgressRoutes { relays, port: config.delivery.port, capture })
}

/// Returns the rules for replies and for pacing: the built-in ones, overridden by the operator's.
///
/// # Errors
/// A file of rules can't be read, or has errors.
pub(super) fn tables(config: &Config) -> Result<Tables, CliError> {
    let rules = match &config.delivery.bounces_file {
        Some(path) => laid_over(path, "delivery.bounces_file", Rules::with_overlay)?,
        None => Rules::built_in().clone(),
    };
    let shaping = match &config.delivery.shaping_file {
        Some(path) => laid_over(path, "delivery.shaping_file", Shaping::with_overlay)?,
        None => Shaping::built_in().clone(),
    };
    Ok(Tables { rules: Arc::new(rules), shaping: Arc::new(shaping) })
}

fn laid_over<T, E: std::fmt::Display>(
    path: &Path,
    key: &str,
    read: impl Fn(&str) -> Result<T, E>,
) -> Result<T, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| unusable(key, path, &error))?;
    read(&text).map_err(|error| unusable(key, path, &error))
}

fn unusable(key: &str, path: &Path, why: &dyn std::fmt::Display) -> CliError {
    let what = format!("cannot use {key} {}", path.display());
    CliError::new(Exit::Failed, what, why.to_string(), "Correct the file, or the key that names it.")
}

fn made(relay: &config::Relay, config: &Config) -> Result<Relay, CliError> {
    let way = match &relay.kind {
        RelayKind::Mx => RelayWay::Mx,
        RelayKind::Smarthost(smarthost) => RelayWay::Smarthost(submitting(smarthost, &relay.name)?),
    };
    Ok(Relay {
        name: relay.name.as_str().into(),
        ehlo: relay.ehlo.as_ref().unwrap_or(&config.hostname).as_str().into(),
        way,
        sources: relay.source.clone(),
        streams: relay.streams.clone(),
        warm_up: relay.warm_up.as_ref().map(warming_up),
    })
}

fn submitting(smarthost: &config::Smarthost, relay: &str) -> Result<Smarthost, CliError> {
    let security = match smarthost.tls {
        SmarthostTls::StartTls => Security::StartTls,
        SmarthostTls::Implicit => Security::Implicit,
        SmarthostTls::Off => Security::Off,
    };
    let login = smarthost.login.as_ref().map(|login| {
        let key = format!("password_file of the relay {relay}");
        let read = login.password.read();
        let password = read.map_err(|error| unusable(&key, login.password.path(), &error))?;
        Ok::<_, CliError>(Login { username: login.username.clone(), password })
    });
    let host = match &smarthost.host {
        url::Host::Domain(name) => name.as_str().into(),
        // The text has no brackets, which a URL has around an IPv6 address.
        url::Host::Ipv4(address) => address.to_string().into(),
        url::Host::Ipv6(address) => address.to_string().into(),
    };
    let submission = Arc::new(Submission { security, login: login.transpose()? });
    Ok(Smarthost { host, port: smarthost.port, submission })
}

fn warming_up(warm_up: &config::WarmUp) -> WarmUp {
    let days = warm_up.since.map_or(0, |since| (since - EPOCH).get_days());
    WarmUp { per_day: warm_up.per_day, growth_percent: warm_up.growth_percent, since: u32::try_from(days).unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::environment::Environment;
    use crate::smtp::shaping::Limits;

    fn config(text: &str) -> Config {
        Config::parse(text, "test", &Environment::default()).unwrap()
    }

    #[test]
    fn a_relay_uses_the_host_name_in_ehlo_unless_it_has_its_own() {
        let config = config(
            "hostname = \"mail.example.com\"\n[[relay]]\nname = \"a\"\nsource = [\"192.0.2.1\"]\n\
             warm_up = { per_day = 7, growth_percent = 50, since = \"1970-01-11\" }\n\
             [[relay]]\nname = \"b\"\nkind = \"smarthost\"\nhost = \"::1\"\ntls = \"off\"\nehlo = \"out.example.com\"",
        );
        let relays = egress_routes(&config, None).unwrap().relays;
        assert_eq!((&*relays[0].ehlo, relays[0].sources.len()), ("mail.example.com", 1));
        assert_eq!(relays[0].warm_up, Some(WarmUp { per_day: 7, growth_percent: 50, since: 10 }));
        let RelayWay::Smarthost(smarthost) = &relays[1].way else { panic!("{relays:?}") };
        assert_eq!((&*relays[1].ehlo, &*smarthost.host, smarthost.port), ("out.example.com", "::1", 587));
        assert_eq!(smarthost.submission.security, Security::Off);
    }

    #[test]
    fn an_unreadable_password_stops_the_start_and_names_the_file() {
        let text = "[[relay]]\nname = \"a\"\nkind = \"smarthost\"\nhost = \"h.example\"\nusername = \"u\"\n\
                    password_file = \"/nowhere/password\"";
        let cli_error = egress_routes(&config(text), None).err().unwrap().to_string();
        assert!(cli_error.contains("password_file of the relay a /nowhere/password"), "{cli_error}");
    }

    #[test]
    fn a_shaping_file_overrides_the_built_in_rules_or_is_refused_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shaping.toml");
        let config = config(&format!("[delivery]\nshaping_file = {:?}", path.to_str().unwrap()));
        std::fs::write(&path, "[default]\nconnections = 3\n").unwrap();
        assert!(matches!(tables(&config).unwrap().shaping.limits(None), Limits { connections: 3, .. }));
        std::fs::write(&path, "[default]\nconnections = 3\nspeed = 1\n").unwrap();
        let cli_error = tables(&config).err().unwrap().to_string();
        assert!(cli_error.contains("delivery.shaping_file") && cli_error.contains("line 3"), "{cli_error}");
    }
}
