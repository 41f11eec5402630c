//! The relays and the tables of rules, made of the configuration for the engine.

use std::path::Path;
use std::sync::Arc;

use jiff::civil::{Date, date};

use super::config::{self, Config, RelayKind, SmarthostTls};
use super::exit::Exit;
use super::trouble::Trouble;
use crate::engine::ports::{Security, Submission};
use crate::engine::relay::{Relay, RelayWay, Smarthost, WarmUp};
use crate::engine::{InHouse, Tables, Ways};
use crate::smtp::client::Login;
use crate::smtp::rules::Rules;
use crate::smtp::shaping::Shaping;

/// The first day that days are counted from.
const EPOCH: Date = date(1970, 1, 1);

/// The ways that messages take.
///
/// # Errors
/// A password file that can't be read.
pub(super) fn ways(config: &Config, in_house: Option<Arc<InHouse>>) -> Result<Ways, Trouble> {
    let relays = config.relays.iter().map(|relay| made(relay, config)).collect::<Result<_, _>>()?;
    Ok(Ways { relays, port: config.delivery.port, in_house })
}

/// The rules that answers are judged and sites are paced by: those built in, under the operator's own.
///
/// # Errors
/// A file of rules that can't be read, or what is wrong with it.
pub(super) fn tables(config: &Config) -> Result<Tables, Trouble> {
    let rules = match &config.delivery.bounces_file {
        Some(path) => laid_over(path, "delivery.bounces_file", |text| Rules::with_overlay(text))?,
        None => Rules::built_in().clone(),
    };
    let shaping = match &config.delivery.shaping_file {
        Some(path) => laid_over(path, "delivery.shaping_file", |text| Shaping::with_overlay(text))?,
        None => Shaping::built_in().clone(),
    };
    Ok(Tables { rules: Arc::new(rules), shaping: Arc::new(shaping) })
}

fn laid_over<T, E: std::fmt::Display>(
    path: &Path,
    key: &str,
    read: impl Fn(&str) -> Result<T, E>,
) -> Result<T, Trouble> {
    let text = std::fs::read_to_string(path).map_err(|error| unusable(key, path, &error))?;
    read(&text).map_err(|error| unusable(key, path, &error))
}

fn unusable(key: &str, path: &Path, why: &dyn std::fmt::Display) -> Trouble {
    let what = format!("cannot use {key} {}", path.display());
    Trouble::new(Exit::Failed, what, why.to_string(), "Correct the file, or the key that names it.")
}

fn made(relay: &config::Relay, config: &Config) -> Result<Relay, Trouble> {
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

fn submitting(smarthost: &config::Smarthost, relay: &str) -> Result<Smarthost, Trouble> {
    let security = match smarthost.tls {
        SmarthostTls::StartTls => Security::StartTls,
        SmarthostTls::Implicit => Security::Implicit,
        SmarthostTls::Off => Security::Off,
    };
    let login = smarthost.login.as_ref().map(|login| {
        let key = format!("password_file of the relay {relay}");
        let read = login.password.read();
        let password = read.map_err(|error| unusable(&key, login.password.path(), &error))?;
        Ok::<_, Trouble>(Login { username: login.username.clone(), password })
    });
    let host = match &smarthost.host {
        url::Host::Domain(name) => name.as_str().into(),
        // Without the brackets that an address has in a URL.
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
