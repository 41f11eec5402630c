//! Tests of the configuration: every key with its value, every error with its place, and overrides of the file.

use std::time::Duration;

use super::*;

mod environment;
mod oidc;
mod replica;
mod submission;

const BARE: &str = "hostname = \"mail.example.com\"\n";

fn variables(variables: &[(&str, &str)]) -> Environment {
    Environment::of(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

fn parsed(text: &str) -> Config {
    Config::parse(text, "p.toml", &Environment::default()).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// Returns the errors of `text`, one line each.
fn faults(text: &str, environment: &[(&str, &str)]) -> Vec<String> {
    match Config::parse(text, "p.toml", &variables(environment)) {
        Err(ConfigError::Faulty(_, faults)) => faults.iter().map(ToString::to_string).collect(),
        other => panic!("{text}: {other:?}"),
    }
}

/// Returns the configuration without the record of set keys.
fn values(config: Config) -> Config {
    Config { set: BTreeSet::new(), ..config }
}

#[test]
fn the_example_has_the_defaults() {
    assert_eq!(values(parsed(EXAMPLE)), values(parsed(BARE)));
}

#[test]
fn the_example_has_every_key() {
    let whole: String = EXAMPLE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => format!("{rest}\n"),
            Some(_) | None => format!("{line}\n"),
        })
        .collect();
    let config = parsed(&whole);
    let top = ["hostname", "data_dir"].map(str::to_owned).into_iter();
    let sections = [
        ("http", "listen public_url trusted_proxies"),
        ("http.tls", "mode certificate key directory contact extra_roots"),
        ("compat", "root"),
        ("metrics", "listen"),
        ("dns", "servers trust_anchor"),
        (
            "delivery",
            "port lifetime_hours max_connections mta_sts_port extra_roots shaping_file bounces_file tls_reports_from",
        ),
        ("bounces", "host listen"),
        (
            "submission",
            "listen tls_listen certificate key connections connections_per_address connections_per_key recipients \
             login_seconds idle_seconds failed_logins",
        ),
        ("oidc", "issuer client_id client_secret_file allowed_domains account default_role"),
        ("relay", "name kind source ehlo streams warm_up host port tls username password_file"),
        ("relay.warm_up", "per_day growth_percent since"),
        (
            "replica",
            "url endpoint region path_style credentials_file extra_roots mode when_unreachable failover interval_ms \
             lease_seconds timeout_seconds retention_hours base_hours base_log_bytes backlog_bytes encrypt \
             allow_versioned",
        ),
        ("webhooks", "extra_roots"),
        ("alerts", "email from owners relay webhook_url webhook_secret webhook_secret_file blocklists backup_hours"),
        ("network", "allow"),
        (
            "limits",
            "requests_per_minute account_requests_per_minute body_bytes stored_bytes_per_account min_free_bytes",
        ),
        ("quota", "per_hour per_day"),
        ("log", "format level"),
    ];
    let of_sections = sections.into_iter().flat_map(|(section, keys)| {
        std::iter::once(section.to_owned()).chain(keys.split(' ').map(move |key| format!("{section}.{key}")))
    });
    assert_eq!(config.set, top.chain(of_sections).collect::<BTreeSet<_>>());
}

#[test]
fn every_key_sets_its_value() {
    let config = parsed(
        r#"
        hostname = "Mail.Example.COM"
        data_dir = "/d"
        [http]
        listen = ["127.0.0.1:0", "[::1]:8080"]
        public_url = "http://proxy.example/mail"
        trusted_proxies = ["10.0.0.0/8", "::1"]
        [http.tls]
        mode = "files"
        certificate = "c.pem"
        key = "k.pem"
        [metrics]
        listen = "127.0.0.1:0"
        [dns]
        servers = ["127.0.0.1:5353"]
        trust_anchor = "anchor"
        [delivery]
        port = 2525
        lifetime_hours = 1
        max_connections = 7
        mta_sts_port = 8443
        tls_reports_from = "tls@sender.example"
        extra_roots = "r.pem"
        shaping_file = "s.toml"
        bounces_file = "b.toml"
        [bounces]
        host = "bounces.example.com"
        listen = ["127.0.0.1:2526"]
        [[relay]]
        name = "direct"
        kind = "mx"
        source = ["192.0.2.1", "2001:db8::1"]
        ehlo = "out.example.com"
        warm_up = { per_day = 50, growth_percent = 25, since = "2026-12-01" }
        [[relay]]
        name = "smarthost"
        kind = "smarthost"
        host = "127.0.0.1"
        port = 1025
        tls = "implicit"
        username = "u"
        password_file = "/p"
        streams = ["marketing"]
        [webhooks]
        extra_roots = "w.pem"
        [network]
        allow = ["127.0.0.0/8"]
        [limits]
        requests_per_minute = 1
        body_bytes = 2
        min_free_bytes = 0
        [quota]
        per_hour = 3
        per_day = 4
        [log]
        format = "json"
        level = "debug"
        "#,
    );
    assert_eq!((config.hostname.as_str(), config.data_dir.to_str()), ("mail.example.com", Some("/d")));
    assert_eq!(config.http.listen, ["127.0.0.1:0".parse().unwrap(), "[::1]:8080".parse().unwrap()]);
    assert_eq!(config.public_url().as_str(), "http://proxy.example/mail");
    assert_eq!(config.http.trusted_proxies, ["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()]);
    assert_eq!(config.http.tls, Tls::Files { certificate: "c.pem".into(), key: "k.pem".into() });
    assert_eq!(config.metrics.listen, Some("127.0.0.1:0".parse().unwrap()));
    let dns = Dns { servers: vec!["127.0.0.1:5353".parse().unwrap()], trust_anchor: Some("anchor".into()) };
    assert_eq!(config.dns, dns);
    let delivery = Delivery {
        port: 2525,
        lifetime: Duration::from_secs(3600),
        max_connections: 7,
        mta_sts_port: 8443,
        tls_reports_from: Some("tls@sender.example".parse().unwrap()),
        extra_roots: Some("r.pem".into()),
        shaping_file: Some("s.toml".into()),
        bounces_file: Some("b.toml".into()),
    };
    assert_eq!(config.delivery, delivery);
    assert_eq!(config.bounce_host().as_str(), "bounces.example.com");
    assert_eq!(config.bounces.as_ref().unwrap().listen, ["127.0.0.1:2526".parse().unwrap()]);
    let [direct, relay] = &config.relays[..] else { panic!("{:?}", config.relays) };
    assert_eq!((&direct.streams[..], &relay.streams[..]), (&Stream::ALL[..], &[Stream::Marketing][..]));
    let since = direct.warm_up.unwrap().since.unwrap().to_string();
    assert_eq!((direct.warm_up.unwrap().per_day, since.as_str()), (50, "2026-12-01"));
    assert_eq!(
        (direct.name.as_str(), direct.source.len(), direct.ehlo.as_ref().map(DomainName::as_str)),
        ("direct", 2, Some("out.example.com"))
    );
    let RelayKind::Smarthost(smarthost) = &relay.kind else { panic!("{relay:?}") };
    assert_eq!(
        (smarthost.host.to_string(), smarthost.port, smarthost.tls),
        ("127.0.0.1".to_owned(), 1025, SmarthostTls::Implicit)
    );
    let login = smarthost.login.as_ref().unwrap();
    assert_eq!((login.username.as_str(), login.password.path()), ("u", Path::new("/p")));
    assert_eq!(config.webhooks.extra_roots, Some("w.pem".into()));
    assert_eq!(config.network.allow, ["127.0.0.0/8".parse().unwrap()]);
    let limits = Limits {
        requests_per_minute: 1,
        account_requests_per_minute: 5,
        stored_bytes_per_account: 0,
        body_bytes: 2,
        min_free_bytes: 0,
    };
    assert_eq!(config.limits, limits);
    assert_eq!(config.quota, QuotaLimits { per_hour: 3, per_day: 4 });
    assert_eq!(config.log, Log { format: LogFormat::Json, level: tracing::Level::DEBUG });
    assert_eq!(config.warnings(), [""; 0]);
}

#[test]
fn acme_has_its_own_keys() {
    let text =
        "[http.tls]\ndirectory = \"https://ca.example/dir\"\ncontact = \"mailto:a@b.example\"\nextra_roots = \"r\"";
    let Tls::Acme(acme) = parsed(text).http.tls else { panic!("acme is the default") };
    assert_eq!(acme.directory.as_str(), "https://ca.example/dir");
    assert_eq!(acme.contact.unwrap().as_given(), "a@b.example");
    assert_eq!(acme.extra_roots, Some("r".into()));
}

#[test]
fn without_sections_return_paths_use_the_host_name() {
    let config = parsed(BARE);
    assert_eq!((config.bounces.as_ref(), config.bounce_host().as_str()), (None, "mail.example.com"));
    assert_eq!(config.public_url().as_str(), "https://mail.example.com/");
    assert_eq!(config.warnings(), [""; 0]);
    let bounces = parsed(&format!("{BARE}[bounces]")).bounces.unwrap();
    assert_eq!((bounces.host.as_str(), bounces.listen[0].port()), ("mail.example.com", 25));
}

#[test]
fn every_error_has_its_line_and_column() {
    for (text, fault) in [
        ("hostname = 5", "line 1, column 12: hostname: must be a string, in quotes"),
        (
            "hostname = \"localhost\"",
            "line 1, column 12: hostname: the domain must have at least two labels, such as example.com",
        ),
        ("data_dir = \"\"", "line 1, column 12: data_dir: must name a path"),
        ("a\nb", "line 1, column 2: not readable as TOML: "),
        ("log = 1", "line 1, column 7: log: must be a section, [log]"),
        ("hostnam = \"a.b\"", "line 1, column 1: hostnam: unknown key; did you mean hostname?"),
        ("[htp]", "line 1, column 2: htp: unknown key; did you mean http?"),
        ("zzzzzz = 1", "line 1, column 1: zzzzzz: unknown key"),
        ("\n[http]\n  listn = []", "line 3, column 3: http.listn: unknown key; did you mean http.listen?"),
        ("[http]\nlisten = \"[::]:443\"", "line 2, column 10: http.listen: must be a list, in [ ]"),
        ("[http]\nlisten = []", "line 1, column 2: http.listen: must name at least one address"),
        (
            "[http]\nlisten = [\"[::]:443\", \"x\"]",
            "line 2, column 23: http.listen: `x` is not an address with a port, such as 127.0.0.1:8025 or [::]:443",
        ),
        (
            "[http]\npublic_url = \"mail.example.com\"",
            "line 2, column 14: http.public_url: must be an http or https URL without query, fragment or password",
        ),
        (
            "[http]\ntrusted_proxies = [\"10.1.0.0/8\"]",
            "line 2, column 20: http.trusted_proxies: `10.1.0.0/8` has bits set beyond its prefix; write 10.0.0.0/8 for the network or 10.1.0.0 for the host",
        ),
        (
            "[http.tls]\nmode = \"file\"",
            "line 2, column 8: http.tls.mode: must be one of \"acme\", \"files\", \"off\"; did you mean \"files\"?",
        ),
        (
            "[http.tls]\nmode = \"files\"\nkey = \"k\"",
            "line 1, column 7: http.tls.certificate: must name a PEM file if mode is \"files\"",
        ),
        (
            "[http.tls]\ndirectory = \"http://ca.example\"",
            "line 2, column 13: http.tls.directory: must be the https URL of an ACME directory",
        ),
        ("[http.tls]\ncontact = \"ops\"", "line 2, column 11: http.tls.contact: must be an email address"),
        ("[metrics]\nlisten = \"9025\"", "line 2, column 10: metrics.listen: `9025` is not an address with a port"),
        ("[dns]\nservers = [53]", "line 2, column 12: dns.servers: must be a string, in quotes"),
        ("[delivery]\nport = 0", "line 2, column 8: delivery.port: must be a whole number from 1 to 65535"),
        (
            "[delivery]\nlifetime_hours = 721",
            "line 2, column 18: delivery.lifetime_hours: must be a whole number from 1 to 720",
        ),
        ("[delivery]\nmax_connections = 1.5", "line 2, column 19: delivery.max_connections: must be a whole number"),
        ("[bounces]\nhost = \"b\"", "line 2, column 8: bounces.host: the domain must have at least two labels"),
        ("[relay]\nname = \"a\"", "line 1, column 2: relay: must be written as [[relay]]"),
        ("[[relay]]\nkind = \"mx\"", "line 1, column 1: relay.name: must be set"),
        (
            "[[relay]]\nname = \"a b\"",
            "line 2, column 8: relay.name: must have 1 to 64 letters, digits, `-`, `_` or `.`",
        ),
        (
            "[[relay]]\nname = \"a\"\nhost = \"h\"",
            "line 3, column 1: relay.host: belongs to a relay of kind \"smarthost\"",
        ),
        ("[[relay]]\nname = \"a\"\nkind = \"smarthost\"", "relay.host: must name the server if kind is \"smarthost\""),
        ("[[relay]]\nname = \"a\"\nsource = [\"::x\"]", "line 3, column 11: relay.source: `::x` is not an IP address"),
        (
            "[[relay]]\nname = \"a\"\nstreams = [\"bulk\", \"marketing\"]",
            "line 3, column 12: relay.streams: must be transactional or marketing",
        ),
        (
            "[[relay]]\nname = \"a\"\nstreams = [\"marketing\"]",
            "relay: no relay carries the transactional stream; add it to the streams of one",
        ),
        ("[[relay]]\nname = \"a\"\n[[relay]]\nname = \"a\"", "relay: two relays are named a"),
        (
            "[[relay]]\nname = \"a\"\nkind = \"smarthost\"\nhost = \"h\"\nusername = \"u\"",
            "relay.password_file: must name the file with the password of username",
        ),
        (
            "[[relay]]\nname = \"a\"\nkind = \"smarthost\"\nhost = \"h\"\npassword_file = \"f\"",
            "relay.username: must be set if password_file is set",
        ),
        (
            "[[relay]]\nname = \"a\"\nkind = \"smarthost\"\nhost = \"h\"\ntls = \"off\"\nusername = \"u\"\npassword_file = \"f\"",
            "relay.tls: must not be \"off\" if username is set",
        ),
        ("[[relay]]\nname = \"a\"\nwarm_up = {}", "relay.warm_up.per_day: must say how many"),
        ("[[relay]]\nname = \"a\"\nwarm_up = { per_day = 0 }", "relay.warm_up.per_day: must be a whole number"),
        (
            "[[relay]]\nname = \"a\"\nwarm_up = { per_day = 1, growth_percent = 1 }",
            "relay.warm_up.since: must name the first day",
        ),
        ("[[relay]]\nname = \"a\"\nwarm_up = { per_day = 1, since = \"1.12.\" }", "`1.12.` is not a day"),
        ("[webhooks]\nextra_roots = true", "line 2, column 15: webhooks.extra_roots: must be a string, in quotes"),
        ("[network]\nallow = [\"loopback\"]", "line 2, column 10: network.allow: `loopback` is not an IP address"),
        (
            "[limits]\nbody_bytes = 268435457",
            "line 2, column 14: limits.body_bytes: must be a whole number from 1 to 268435456",
        ),
        (
            "[limits]\nmin_free_bytes = -1",
            "line 2, column 18: limits.min_free_bytes: must be a whole number of at least 0",
        ),
        ("[quota]\nper_hour = \"5\"", "line 2, column 12: quota.per_hour: must be a whole number of at least 0"),
        (
            "[log]\nlevel = \"inof\"",
            "line 2, column 9: log.level: must be one of \"error\", \"warn\", \"info\", \"debug\", \"trace\"",
        ),
    ] {
        let found = faults(text, &[]);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains(fault), "{text}:\n{}\n{fault}", found[0]);
    }
}

#[test]
fn all_errors_are_reported_at_once_in_file_order() {
    let text = "[log]\nlevel = 1\n[delivery]\nprot = 1\nport = 0\n[dns]\nservers = [\"a\", \"127.0.0.1:53\", \"b\"]\n";
    let found = faults(text, &[("POSTRIDER_QUOTA__PER_DAY", "many")]);
    let places: Vec<_> = found.iter().filter_map(|fault| fault.split(": ").next()).collect();
    assert_eq!(
        places,
        [
            "line 2, column 9",
            "line 4, column 1",
            "line 5, column 8",
            "line 7, column 12",
            "line 7, column 33",
            "environment variable POSTRIDER_QUOTA__PER_DAY",
        ]
    );
    let error = Config::parse(text, "p.toml", &Environment::default()).unwrap_err().to_string();
    assert!(error.starts_with("postrider: cannot use the configuration p.toml\n  line 2, column 9: "), "{error}");
    assert!(error.lines().last().unwrap().contains("postrider config check"), "{error}");
}

#[test]
fn columns_count_characters() {
    assert!(faults("x = [ \"äöü\" ]\n", &[])[0].starts_with("line 1, column 1: x"));
    assert!(faults("log = { format = \"äöü\", level = 1 }", &[])[1].starts_with("line 1, column 33: log.level"));
}

#[test]
fn a_password_file_without_a_path_is_a_systemd_credential_if_there_are_any() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("relay"), "s3cret\r\n").unwrap();
    let relay = |file: &str, environment: &[(&str, &str)]| {
        let text = format!(
            "[[relay]]\nname = \"a\"\nkind = \"smarthost\"\nhost = \"h\"\nusername = \"u\"\npassword_file = \"{file}\""
        );
        let config = Config::parse(&text, "p.toml", &variables(environment)).unwrap();
        let RelayKind::Smarthost(smarthost) = config.relays[0].kind.clone() else { panic!("{config:?}") };
        smarthost.login.unwrap().password
    };
    let credentials = [("CREDENTIALS_DIRECTORY", dir.path().to_str().unwrap())];
    assert_eq!(relay("relay", &credentials).read().unwrap().expose_text(), "s3cret");
    assert_eq!(relay("/etc/relay", &credentials).path(), Path::new("/etc/relay"));
    assert_eq!(relay("relay", &[]).path(), Path::new("relay"));
}

#[test]
fn serve_needs_a_host_name() {
    let why = parsed("[http.tls]\nmode = \"off\"").fit_to_mail().unwrap_err().to_string();
    assert!(why.contains("hostname is not set") && why.lines().count() == 3, "{why}");
    assert!(parsed(BARE).fit_to_mail().is_ok());
}
