//! Tests of `[replica]`: defaults, limits and combinations that are refused.

use super::*;
use crate::app::cli_error::CliError;
use crate::app::exit::Exit;
use crate::domain::replication::{ReplicaMode, WhenUnreachable};

#[test]
fn nothing_is_replicated_without_a_url() {
    assert!(!parsed(BARE).replica.is_on());
    assert!(!parsed(&format!("{BARE}[replica]\nurl = \"\"\ninterval_ms = 50\n")).replica.is_on());
    let config = parsed(&format!("{BARE}[replica]\nurl = \"s3://bucket/prefix\"\n"));
    assert!(config.replica.is_on());
    assert_eq!(config.replica.when_unreachable(), WhenUnreachable::Serve);
    assert!(!config.replica.path_style());
}

#[test]
fn every_key_has_its_place() {
    let text = "[replica]\nurl = \"s3://bucket/a/b\"\nendpoint = \"http://127.0.0.1:9000\"\nregion = \"eu-1\"\n\
                path_style = false\ncredentials_file = \"c\"\nextra_roots = \"r.pem\"\nmode = \"async\"\n\
                when_unreachable = \"serve\"\nfailover = \"manual\"\ninterval_ms = 50\nlease_seconds = 2\n\
                timeout_seconds = 3\nretention_hours = 0\nbase_hours = 4\nbase_log_bytes = 5\nbacklog_bytes = 6\n\
                encrypt = false\nallow_versioned = true\n";
    let replica = parsed(&format!("{BARE}{text}")).replica;
    assert_eq!(replica.url.as_ref().unwrap().to_string(), "s3://bucket/a/b");
    assert_eq!(replica.endpoint.as_ref().unwrap().as_str(), "http://127.0.0.1:9000/");
    assert_eq!((replica.region.as_str(), replica.path_style(), replica.mode), ("eu-1", false, ReplicaMode::Async));
    assert_eq!(replica.credentials().file, Some("c".into()));
    assert_eq!(replica.extra_roots, Some("r.pem".into()));
    assert_eq!((replica.interval, replica.lease), (Duration::from_millis(50), Duration::from_secs(2)));
    assert_eq!((replica.timeout, replica.retention), (Duration::from_secs(3), Duration::ZERO));
    assert_eq!(replica.base_age, Duration::from_secs(4 * 3600));
    assert_eq!((replica.base_log_bytes, replica.backlog_bytes), (5, 6));
    assert!(!replica.encrypt && replica.allow_versioned);
}

#[test]
fn with_an_endpoint_the_bucket_is_in_the_path_by_default() {
    let path_style = |more: &str| parsed(&format!("{BARE}[replica]\n{more}")).replica.path_style();
    assert!(path_style("endpoint = \"https://s3.example.com\"\n"));
    assert!(!path_style("endpoint = \"https://s3.example.com\"\npath_style = false\n"));
    assert!(path_style("path_style = true\n"));
}

#[test]
fn an_out_of_range_value_is_refused() {
    for (line, fault) in [
        ("url = \"https://bucket\"", "replica.url: must begin with s3://"),
        ("endpoint = \"ftp://a\"", "replica.endpoint: must be https:// or http://"),
        ("endpoint = \"https://a/b\"", "replica.endpoint: must be https:// or http://"),
        ("endpoint = \"http://192.0.2.1\"", "replica.endpoint: plain http is only allowed to this machine"),
        ("region = \"\"", "replica.region: must have 1 to 64"),
        ("mode = \"synk\"", "did you mean \"sync\"?"),
        ("interval_ms = 49", "replica.interval_ms: must be a whole number from 50 to 60000"),
        ("interval_ms = 60001", "replica.interval_ms: must be a whole number from 50 to 60000"),
        ("lease_seconds = 1", "replica.lease_seconds: must be a whole number from 2 to 60"),
        ("lease_seconds = 61", "replica.lease_seconds: must be a whole number from 2 to 60"),
        ("timeout_seconds = 0", "replica.timeout_seconds: must be a whole number from 1 to 300"),
        ("retention_hours = -1", "replica.retention_hours: must be a whole number from 0"),
        ("base_hours = 0", "replica.base_hours: must be a whole number from 1"),
        ("backlog_bytes = 0", "replica.backlog_bytes: must be a whole number of at least 1"),
        ("encrypt = \"yes\"", "replica.encrypt: must be true or false"),
        ("lease_second = 5", "did you mean replica.lease_seconds?"),
    ] {
        let found = faults(&format!("{BARE}[replica]\n{line}\n"), &[]).join("\n");
        assert!(found.contains(fault), "{line}: {found}");
    }
}

#[test]
fn plain_http_goes_to_allowed_networks_too() {
    let text =
        format!("{BARE}[network]\nallow = [\"192.0.2.0/24\"]\n[replica]\nendpoint = \"http://192.0.2.1:9000\"\n");
    assert!(parsed(&text).replica.endpoint.is_some());
}

#[test]
fn automatic_failover_without_stop_is_a_usage_error() {
    let error = |more: &str| {
        let text = format!("{BARE}[replica]\nurl = \"s3://bucket\"\n{more}");
        CliError::from(Config::parse(&text, "p.toml", &Environment::default()).unwrap_err())
    };
    let cli_error = error("failover = \"automatic\"\n");
    assert_eq!(cli_error.exit(), Exit::Usage);
    assert!(cli_error.to_string().contains("needs when_unreachable = \"stop\""), "{cli_error}");
    assert_eq!(error("lease_seconds = 1\n").exit(), Exit::Failed);
}

#[test]
fn credentials_come_from_the_environment_if_no_file_is_set() {
    let variables = [
        ("AWS_ACCESS_KEY_ID", "AKIA"),
        ("AWS_SECRET_ACCESS_KEY", "hidden"),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/role"),
        ("AWS_EC2_METADATA_DISABLED", "TRUE"),
    ];
    let environment = Environment::of(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let config = Config::parse(BARE, "p.toml", &environment).unwrap();
    let sources = config.replica.credentials();
    assert_eq!(sources.environment.unwrap().0, "AKIA");
    assert_eq!((sources.container.as_deref(), sources.instance), (Some("http://169.254.170.2/role"), None));
    assert!(!format!("{:?}", config.replica).contains("hidden"));
}
