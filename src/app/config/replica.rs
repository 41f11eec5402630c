//! `[replica]`: the bucket to which the store is replicated, and the mode.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use super::super::environment::Environment;
use super::process::Networks;
use super::section::{Section, boolean, number, parsed, path, text, unless_empty, word};
use super::tree::Node;
use crate::base::secret::Secret;
use crate::domain::replication::{BucketUrl, Failover, ReplicaMode, WhenUnreachable};
use crate::net::s3::{self, CredentialSources};

/// Host for container credentials if the environment contains only a path.
const CONTAINER_HOST: &str = "http://169.254.170.2";
/// Instance metadata service.
const INSTANCE: &str = "http://169.254.169.254";
/// Name of the systemd credential with a file in AWS's format.
const SYSTEMD_CREDENTIAL: &str = "replica-credentials";
/// Ten years.
const RETENTION_HOURS_MAX: i64 = 10 * 366 * 24;
/// A year.
const BASE_HOURS_MAX: i64 = 366 * 24;

/// `[replica]`. Without a `url` nothing is replicated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// The bucket and the prefix.
    pub url: Option<BucketUrl>,
    /// Address of the S3 service; AWS's if not set.
    pub endpoint: Option<Url>,
    /// Region for signing requests.
    pub region: String,
    /// Whether the bucket's name is in the path. By default it is if an endpoint is set.
    path_style: Option<bool>,
    /// Credentials file in AWS's format.
    pub credentials_file: Option<PathBuf>,
    /// Additional root certificates for the service.
    pub extra_roots: Option<PathBuf>,
    /// Condition for answering an accepted message.
    pub mode: ReplicaMode,
    /// Behaviour while the bucket can't be reached. By default it depends on the mode.
    when_unreachable: Option<WhenUnreachable>,
    /// Whether an operator promotes the standby or it promotes automatically.
    pub failover: Failover,
    /// Minimum time between two slots in async mode.
    pub interval: Duration,
    /// Duration of a lease.
    pub lease: Duration,
    /// Timeout of a request, and maximum wait of a 202 in sync mode.
    pub timeout: Duration,
    /// Time for which older states can be restored with `--at`.
    pub retention: Duration,
    /// Age of a base at which the next one is made.
    pub base_age: Duration,
    /// Size of the log at which the next base is made, in bytes.
    pub base_log_bytes: u64,
    /// Maximum size of unsent log on disk, in bytes.
    pub backlog_bytes: u64,
    /// Whether objects are encrypted under the master key.
    pub encrypt: bool,
    /// Whether a bucket with versioning is accepted.
    pub allow_versioned: bool,
    environment: AwsVariables,
}

impl Default for Replica {
    fn default() -> Self {
        Self {
            url: None,
            endpoint: None,
            region: "us-east-1".to_owned(),
            path_style: None,
            credentials_file: None,
            extra_roots: None,
            mode: ReplicaMode::Async,
            when_unreachable: None,
            failover: Failover::Manual,
            interval: Duration::from_millis(500),
            lease: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            retention: Duration::from_secs(168 * 3600),
            base_age: Duration::from_secs(24 * 3600),
            base_log_bytes: 256 << 20,
            backlog_bytes: 1 << 30,
            encrypt: true,
            allow_versioned: false,
            environment: AwsVariables::default(),
        }
    }
}

impl Replica {
    /// Reads the section. Plain http is only allowed to this machine and to `networks`.
    pub(super) fn read(mut section: Section<'_>, base: Self, networks: &Networks, environment: &Environment) -> Self {
        let endpoint = |node: &Node| endpoint(node, networks);
        let modes = [ReplicaMode::Async, ReplicaMode::Sync].map(|mode| (mode.as_str(), mode));
        let unreachable = [WhenUnreachable::Serve, WhenUnreachable::Stop].map(|word| (word.as_str(), word));
        let failovers = [Failover::Manual, Failover::Automatic].map(|word| (word.as_str(), word));
        let some = |read: fn(&Node) -> Result<bool, String>| move |node: &Node| read(node).map(Some);
        let replica = Self {
            url: section.value("url", base.url, unless_empty(parsed)),
            endpoint: section.value("endpoint", base.endpoint, unless_empty(endpoint)),
            region: section.value("region", base.region, region),
            path_style: section.value("path_style", base.path_style, some(boolean)),
            credentials_file: section.value("credentials_file", base.credentials_file, unless_empty(path)),
            extra_roots: section.value("extra_roots", base.extra_roots, unless_empty(path)),
            mode: section.value("mode", base.mode, word(modes)),
            when_unreachable: section
                .value("when_unreachable", base.when_unreachable, |node| word(unreachable)(node).map(Some)),
            failover: section.value("failover", base.failover, word(failovers)),
            interval: section
                .value("interval_ms", base.interval, |node| number(50..=60_000)(node).map(Duration::from_millis)),
            lease: section.value("lease_seconds", base.lease, seconds(2..=60)),
            timeout: section.value("timeout_seconds", base.timeout, seconds(1..=300)),
            retention: section.value("retention_hours", base.retention, hours(0..=RETENTION_HOURS_MAX)),
            base_age: section.value("base_hours", base.base_age, hours(1..=BASE_HOURS_MAX)),
            base_log_bytes: section.value("base_log_bytes", base.base_log_bytes, number(1..=i64::MAX)),
            backlog_bytes: section.value("backlog_bytes", base.backlog_bytes, number(1..=i64::MAX)),
            encrypt: section.value("encrypt", base.encrypt, boolean),
            allow_versioned: section.value("allow_versioned", base.allow_versioned, boolean),
            environment: AwsVariables(environment.clone()),
        };
        replica.check(&mut section);
        section.finish();
        replica
    }

    /// Reports settings that can't be combined.
    fn check(&self, section: &mut Section<'_>) {
        if self.failover == Failover::Automatic && self.when_unreachable() != WhenUnreachable::Stop {
            let sentence = "\"automatic\" needs when_unreachable = \"stop\": an active machine that continues without \
                            the bucket would send mail at the same time as its successor";
            section.unusable("failover", sentence);
        }
    }

    /// Returns whether replication is configured.
    pub const fn is_on(&self) -> bool {
        self.url.is_some()
    }

    /// Returns the behaviour of the active machine while the bucket can't be reached.
    pub fn when_unreachable(&self) -> WhenUnreachable {
        self.when_unreachable.unwrap_or(match self.mode {
            ReplicaMode::Async => WhenUnreachable::Serve,
            ReplicaMode::Sync => WhenUnreachable::Stop,
        })
    }

    /// Returns whether the bucket's name is in the path of its URLs.
    pub fn path_style(&self) -> bool {
        self.path_style.unwrap_or(self.endpoint.is_some())
    }

    /// Returns the sources of credentials.
    pub fn credentials(&self) -> CredentialSources {
        let Self { credentials_file, environment, .. } = self;
        CredentialSources { file: credentials_file.clone(), ..environment.sources() }
    }
}

/// Variables of the process, most of which are secrets.
#[derive(Clone, PartialEq, Eq, Default)]
struct AwsVariables(Environment);

impl fmt::Debug for AwsVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsVariables(..)")
    }
}

impl AwsVariables {
    fn sources(&self) -> CredentialSources {
        let Self(environment) = self;
        let secret = |name| environment.text(name).map(Secret::new);
        let access_key = environment.text("AWS_ACCESS_KEY_ID").zip(secret("AWS_SECRET_ACCESS_KEY"));
        let relative = environment.text("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let absolute = environment.text("AWS_CONTAINER_CREDENTIALS_FULL_URI");
        let is_disabled =
            environment.text("AWS_EC2_METADATA_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
        let instance = environment.text("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| INSTANCE.to_owned());
        let systemd = environment.credentials().map(|directory| directory.join(SYSTEMD_CREDENTIAL));
        CredentialSources {
            file: None,
            environment: access_key.map(|(id, key)| (id, key, secret("AWS_SESSION_TOKEN"))),
            systemd: systemd.filter(|path| path.exists()),
            container: relative.map(|path| format!("{CONTAINER_HOST}{path}")).or(absolute),
            container_token: secret("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
            container_token_file: environment.path("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
            instance: (!is_disabled).then_some(instance),
        }
    }
}

fn endpoint(node: &Node, networks: &Networks) -> Result<Url, String> {
    let text = text(node)?;
    let url: Url = text.parse().map_err(|_| format!("`{text}` is not a URL, such as https://s3.example.com"))?;
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let has_user = !url.username().is_empty() || url.password().is_some();
    if !["https", "http"].contains(&url.scheme()) || url.host().is_none() || !is_bare || has_user {
        return Err("must be https:// or http:// with a host, optionally a port, and nothing else".to_owned());
    }
    s3::may_speak_http(&url, &networks.allow).map_err(|error| error.to_string())?;
    Ok(url)
}

fn region(node: &Node) -> Result<String, String> {
    let text = text(node)?;
    let fits = (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if fits { Ok(text.to_owned()) } else { Err("must have 1 to 64 letters, digits, hyphens or underscores".to_owned()) }
}

fn seconds(range: std::ops::RangeInclusive<i64>) -> impl Fn(&Node) -> Result<Duration, String> {
    move |node| number(range.clone())(node).map(Duration::from_secs)
}

fn hours(range: std::ops::RangeInclusive<i64>) -> impl Fn(&Node) -> Result<Duration, String> {
    move |node| number(range.clone())(node).map(|hours: u64| Duration::from_secs(hours * 3600))
}
