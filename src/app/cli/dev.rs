//! `postrider dev`: its options, each of which also has a variable, and their combination (contract 12.2).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;

use super::{CONFIG_VARIABLE, Console, DATA_DIR_VARIABLE, EarlyExit, Services};
use crate::app::cli_error::CliError;
use crate::app::config::Config;
use crate::app::environment::Environment;
use crate::app::exit::Exit;
use crate::base::signature::SECRET_PREFIX;
use crate::domain::api_key::KeySecret;
use crate::domain::hostname::DomainName;
use crate::domain::network::Network;
use crate::domain::stream::Stream;
use crate::domain::webhook_url::WebhookUrl;
use crate::net::network_guard::Guard;

/// Length of a webhook secret after its prefix, in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

#[derive(Debug, Args)]
pub(super) struct DevArgs {
    /// The data directory (default: a temporary one).
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address to listen on: an address with a port, or a port of 127.0.0.1.
    #[arg(long, alias = "port", value_name = "ADDR", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Address to listen on for SMTP: an address with a port, or a port of 127.0.0.1.
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    smtp_listen: Option<SocketAddr>,
    /// A configuration file that overrides the defaults.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Freeze wall time until POST /dev/clock advances it.
    #[arg(long)]
    virtual_clock: bool,
    /// Send real mail instead of capturing it.
    #[arg(long)]
    deliver: bool,
    /// Networks that may use /dev, besides this machine, such as 172.16.0.0/12.
    #[arg(long, value_name = "CIDR,...")]
    dev_allow: Option<String>,
    /// The API key to use; generated if omitted.
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Additional verified domains; `*` accepts mail from any domain.
    #[arg(long, value_name = "NAME[=STREAM],...")]
    domain: Option<String>,
    /// Webhook endpoints for all events; http and private addresses are allowed.
    #[arg(long, value_name = "URL,...")]
    webhook: Option<String>,
    /// The secret of the webhooks; generated if omitted.
    #[arg(long, value_name = "SECRET")]
    webhook_secret: Option<String>,
}

/// The options of `dev`.
#[derive(Debug, Clone, PartialEq)]
pub struct DevOptions {
    /// The configuration: dev's defaults, overridden by the file, and then by `--listen`.
    pub config: Config,
    /// The data directory, if `--data-dir` or the file names one; otherwise a temporary one is used.
    pub data_dir: Option<PathBuf>,
    /// Whether wall time is virtual and moves only on request.
    pub virtual_clock: bool,
    /// Whether to send real mail instead of capturing it.
    pub deliver: bool,
    /// Whether to print one line of JSON instead of text for people.
    pub json: bool,
    /// Address to listen on for SMTP, if set.
    pub smtp_listen: Option<SocketAddr>,
    /// Networks that may use `/dev`, in addition to this machine.
    pub allow: Vec<Network>,
    /// The chosen API key: 20 to 128 of `A-Za-z0-9_-`.
    pub api_key: Option<String>,
    /// Additional verified domains.
    pub domains: Vec<(DomainName, Stream)>,
    /// Whether every sender's domain counts as verified.
    pub any_domain: bool,
    /// Webhook endpoints for all events.
    pub webhooks: Vec<WebhookUrl>,
    /// Secret of the webhooks, if one is chosen.
    pub webhook_secret: Option<String>,
}

impl DevOptions {
    /// Returns the default options with this configuration.
    pub const fn plain(config: Config) -> Self {
        Self {
            config,
            data_dir: None,
            virtual_clock: false,
            deliver: false,
            json: false,
            smtp_listen: None,
            allow: Vec::new(),
            api_key: None,
            domains: Vec::new(),
            any_domain: false,
            webhooks: Vec::new(),
            webhook_secret: None,
        }
    }
}

/// Runs `dev` with its options.
pub(super) fn dev(
    args: DevArgs,
    json: bool,
    console: &Console<'_>,
    services: &Services<'_>,
) -> Result<Exit, EarlyExit> {
    Ok((services.dev)(options(args, json, &console.environment)?))
}

fn options(args: DevArgs, json: bool, environment: &Environment) -> Result<DevOptions, EarlyExit> {
    let given = DevSettings { environment };
    let base = Config::for_dev();
    let laid = match args.config.or_else(|| environment.path(CONFIG_VARIABLE)) {
        Some(file) => base.with_file(&file, environment),
        None => base.with_text("", "of the environment", environment),
    };
    let mut config = laid.map_err(CliError::from).map_err(|cli_error| cli_error.ending(Exit::Usage))?;
    let data_dir = args.data_dir.or_else(|| environment.path(DATA_DIR_VARIABLE));
    let data_dir = data_dir.or_else(|| config.is_set("data_dir").then(|| config.data_dir.clone()));
    if let Some(listen) =
        args.listen.map_or_else(|| given.value("LISTEN", listen_address), |listen| Ok(Some(listen)))?
    {
        config.http.listen = vec![listen];
    }
    let smtp_listen =
        args.smtp_listen.map_or_else(|| given.value("SMTP_LISTEN", listen_address), |listen| Ok(Some(listen)))?;
    let deliver = given.flag(args.deliver, "DELIVER")?;
    let domains = given.text(args.domain, "--domain", "DOMAIN", domains)?.unwrap_or_default();
    let any_domain = domains.contains(&None);
    if any_domain && deliver {
        let why = "--domain '*' accepts mail from any domain, and --deliver would send it in the name of others";
        return Err(unusable(why, "Remove one of them.").into());
    }
    Ok(DevOptions {
        data_dir,
        virtual_clock: given.flag(args.virtual_clock, "VIRTUAL_CLOCK")?,
        deliver,
        json: given.flag(json, "JSON")?,
        smtp_listen,
        allow: given.text(args.dev_allow, "--dev-allow", "ALLOW", listed)?.unwrap_or_default(),
        api_key: given.text(args.api_key, "--api-key", "API_KEY", api_key)?,
        domains: domains.into_iter().flatten().collect(),
        any_domain,
        webhooks: given.text(args.webhook, "--webhook", "WEBHOOK", |text| webhooks(text, &config))?.unwrap_or_default(),
        webhook_secret: given.text(args.webhook_secret, "--webhook-secret", "WEBHOOK_SECRET", webhook_secret)?,
        config,
    })
}

/// Options with the environment for their variables.
struct DevSettings<'e> {
    environment: &'e Environment,
}

impl DevSettings<'_> {
    /// Returns the value of a variable, for an option that is not given.
    fn value<T>(&self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, CliError> {
        let variable = format!("POSTRIDER_DEV_{name}");
        let Some(text) = self.environment.text(&variable) else { return Ok(None) };
        read(&text).map(Some).map_err(|fault| unusable(format!("{variable}: {fault}"), ""))
    }

    /// Returns the value of a text option, or of its variable.
    fn text<T>(
        &self,
        option: Option<String>,
        option_name: &str,
        name: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, CliError> {
        match option {
            Some(text) => read(&text).map(Some).map_err(|fault| unusable(format!("{option_name}: {fault}"), "")),
            None => self.value(name, read),
        }
    }

    /// Returns a flag, or the value of its variable.
    fn flag(&self, option: bool, name: &str) -> Result<bool, CliError> {
        let read = |text: &str| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("must be true or false".to_owned()),
        };
        if option { Ok(true) } else { Ok(self.value(name, read)?.unwrap_or(false)) }
    }
}

fn unusable(why: impl Into<String>, remedy: &str) -> CliError {
    CliError::new(Exit::Usage, "cannot start dev", why, remedy)
}

/// Parses an address with a port, or only a port, which means 127.0.0.1.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse().map_err(|_| "use an address with a port such as 127.0.0.1:8025, or a port such as 8025".to_owned())
}

/// Returns the items of a comma-separated list.
fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn listed<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<Vec<T>, String> {
    items(text).map(|item| item.parse().map_err(|fault| format!("{item}: {fault}"))).collect()
}

/// Parses the domains; `None` is `*`.
fn domains(text: &str) -> Result<Vec<Option<(DomainName, Stream)>>, String> {
    let domain = |item: &str| {
        if item == "*" {
            return Ok(None);
        }
        let (name, stream) = item.split_once('=').unwrap_or((item, Stream::Transactional.as_str()));
        let stream = stream.parse().map_err(|fault| format!("{item}: {fault}"))?;
        Ok(Some((name.parse().map_err(|fault| format!("{item}: {fault}"))?, stream)))
    };
    items(text).map(domain).collect()
}

/// Parses the webhooks. With `network.allow`, the same URLs are allowed as in `serve`.
fn webhooks(text: &str, config: &Config) -> Result<Vec<WebhookUrl>, String> {
    let is_restricted = config.is_set("network.allow");
    let guard = Guard::new(config.network.allow.clone());
    let url = |item| match is_restricted {
        true => WebhookUrl::parse(item, |address| guard.permits(address)).map_err(|fault| {
            format!("{item}: {fault}; only without `network.allow`, dev allows plain http and private addresses")
        }),
        false => WebhookUrl::parse_local(item, |_| true).map_err(|fault| format!("{item}: {fault}")),
    };
    items(text).map(url).collect()
}

fn api_key(text: &str) -> Result<String, String> {
    let chosen = KeySecret::chosen(text).ok_or("must be 20 to 128 of A-Z, a-z, 0-9, _ and -")?;
    Ok(chosen.expose().to_owned())
}

fn webhook_secret(text: &str) -> Result<String, String> {
    let bytes = text.strip_prefix(SECRET_PREFIX).and_then(|rest| STANDARD.decode(rest).ok());
    let fits = bytes.is_some_and(|bytes| SECRET_BYTES.contains(&bytes.len()));
    if fits { Ok(text.to_owned()) } else { Err("must be whsec_ and base64 of 24 to 64 bytes".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::app::cli::args::{Command, CommandLine};

    fn read(line: &str, variables: &[(&str, &str)]) -> Result<DevOptions, String> {
        let words = ["postrider", "dev"].into_iter().chain(line.split_whitespace());
        let Ok(CommandLine { json, command: Command::Dev(args) }) = CommandLine::try_parse_from(words) else {
            return Err("the URL is not accepted".to_owned());
        };
        let environment =
            Environment::of(variables.iter().map(|(name, value)| (format!("POSTRIDER_{name}"), (*value).to_owned())));
        options(*args, json, &environment).map_err(|stop| match stop {
            EarlyExit::Error(cli_error) => {
                assert_eq!(cli_error.exit(), Exit::Usage);
                cli_error.to_string()
            }
            EarlyExit::Output(error) => panic!("{error}"),
        })
    }

    #[test]
    fn every_option_has_a_variable_and_overrides_it() {
        let secret = format!("whsec_{}", STANDARD.encode([7; 32]));
        let variables = [
            ("DATA_DIR", "/data"),
            ("DEV_LISTEN", "0.0.0.0:8025"),
            ("DEV_SMTP_LISTEN", "1025"),
            ("DEV_VIRTUAL_CLOCK", "true"),
            ("DEV_JSON", "true"),
            ("DEV_ALLOW", "10.0.0.0/8, fc00::/7"),
            ("DEV_API_KEY", "a-key-that-a-test-has-chosen"),
            ("DEV_DOMAIN", "a.example,b.example=marketing"),
            ("DEV_WEBHOOK", "http://localhost:3000/hook,https://hooks.example/"),
            ("DEV_WEBHOOK_SECRET", &secret),
        ];
        let options = read("", &variables).unwrap();
        assert_eq!(options.data_dir, Some("/data".into()));
        assert_eq!(options.config.http.listen, ["0.0.0.0:8025".parse().unwrap()]);
        assert_eq!(options.smtp_listen, Some("127.0.0.1:1025".parse().unwrap()));
        assert!(options.virtual_clock && options.json && !options.deliver && !options.any_domain);
        assert_eq!((options.allow.len(), options.webhooks.len()), (2, 2));
        assert_eq!(options.api_key.as_deref(), Some("a-key-that-a-test-has-chosen"));
        let streams = [Stream::Transactional, Stream::Marketing];
        assert_eq!(options.domains.iter().map(|(_, stream)| *stream).collect::<Vec<_>>(), streams);
        assert_eq!(options.webhook_secret.as_deref(), Some(secret.as_str()));
        let options =
            read("--listen 9000 --domain * --dev-allow 192.168.0.0/16 --data-dir /other", &variables).unwrap();
        assert_eq!(options.config.http.listen, ["127.0.0.1:9000".parse().unwrap()]);
        assert!(options.any_domain && options.domains.is_empty() && options.allow.len() == 1);
        assert_eq!(options.data_dir, Some("/other".into()));
    }

    #[test]
    fn webhooks_follow_the_networks_that_a_configuration_allows() {
        let networks = [("NETWORK__ALLOW", "127.0.0.0/8")];
        let https = read("--webhook https://127.0.0.1:3000/hook,https://hooks.example/", &networks).unwrap();
        assert_eq!(https.webhooks.len(), 2);
        for url in ["http://127.0.0.1:3000/hook", "https://10.0.0.1/hook"] {
            let said = read(&format!("--webhook {url}"), &networks).unwrap_err();
            assert!(said.contains(&format!("--webhook: {url}: must ")) && said.contains("`network.allow`"), "{said}");
            assert!(read(&format!("--webhook {url}"), &[]).is_ok());
        }
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_name() {
        for (line, variables, says) in [
            ("", &[("DEV_LISTEN", "here")][..], "POSTRIDER_DEV_LISTEN: use an address with a port"),
            ("", &[("DEV_DELIVER", "yes")], "POSTRIDER_DEV_DELIVER: must be true or false"),
            ("--api-key short", &[], "--api-key: must be 20 to 128 of"),
            ("--api-key has.a.dot.and.is.long.enough", &[], "--api-key: must be 20 to 128 of"),
            ("--webhook-secret whsec_AAAA", &[], "--webhook-secret: must be whsec_ and base64"),
            ("--webhook ftp://x.example", &[], "--webhook: ftp://x.example: must be"),
            ("--dev-allow 10.0.0.1/8", &[], "--dev-allow: 10.0.0.1/8: "),
            ("--domain a.example=bulk", &[], "--domain: a.example=bulk: "),
            ("--domain * --deliver", &[], "--domain '*' accepts mail from any domain"),
        ] {
            let said = read(line, variables).unwrap_err();
            assert!(said.contains(says), "{line}: {said}");
        }
    }
}
