//! `postrider dev`: everything in one process with no set-up (contract 8): an account, keys, verified domains, and a
//! receiver on loopback that captures every message instead of mailing it.

mod smtp;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cli::DevOptions;
use super::daemon::{Daemon, DevParts, Ground};
use super::exit::Exit;
use super::lock::DirectoryLock;
use super::opening::Start;
use super::trouble::Trouble;
use super::{logging, runtime};
use crate::base::id::AccountId;
use crate::domain::account::AccountName;
use crate::domain::address::Address;
use crate::domain::api_key::Scopes;
use crate::domain::hostname::DomainName;
use crate::domain::stream::Stream;
use crate::domain::user::{NewPassword, Role};
use crate::engine::accounts::NewKey;
use crate::engine::audit::Behalf;
use crate::engine::listing::PageRequest;
use crate::engine::ports::Clock;
use crate::engine::users::UserChange;
use crate::engine::virtual_clock::VirtualClock;
use crate::engine::{Caller, Engine};
use crate::http::dev::Dev;
use crate::net::clock::{SystemClock, service_clock};
use crate::net::dev::capture::Capture;
use crate::net::dev::receiver::DevReceiver;
use crate::net::dev::reporter::Reporter;
use crate::net::dev::routes::Scope;
use crate::net::handed_over::HandedOver;
use crate::store::error::Stop;
use crate::store::op::domain::DomainRefusal;

const FILE: &str = "dev.json";
const ACCOUNT: &str = "Development";
/// Who signs in to the panel of `dev`.
const PANEL_USER: &str = "dev@example.test";
/// The verified domains of `dev`.
const DOMAINS: [(&str, Stream); 2] =
    [("example.test", Stream::Transactional), ("news.example.test", Stream::Marketing)];
/// How long what is being received may take to end.
const GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// What a kept directory remembers in `dev.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Credentials {
    api_key: String,
    marketing_api_key: String,
    account_id: String,
    panel_user: String,
    panel_password: String,
}

/// The line that `--json` prints.
#[derive(Debug, Serialize)]
struct Announcement<'a> {
    url: &'a str,
    api_key: &'a str,
    marketing_api_key: &'a str,
    account_id: &'a str,
    panel_url: &'a str,
    panel_user: &'a str,
    panel_password: &'a str,
    smtp_url: &'a str,
    data_dir: &'a Path,
}

/// Runs `dev` until it is told to stop.
///
/// # Errors
/// What is in the way, for the operator.
pub fn run(options: &DevOptions) -> Result<Exit, Trouble> {
    logging::start(&options.config.log);
    for warning in options.config.warnings() {
        tracing::warn!("{warning}");
    }
    let (directory, temporary) = match &options.data_dir {
        Some(directory) => (directory.clone(), false),
        None => (temporary_directory(), true),
    };
    let lock = DirectoryLock::take(&directory)?;
    let runtime = runtime::build()?;
    let exit = runtime.block_on(serve(options, &directory, lock));
    drop(runtime);
    if temporary && let Err(error) = fs::remove_dir_all(&directory) {
        tracing::warn!(%error, "the temporary data directory could not be removed");
    }
    exit
}

fn temporary_directory() -> PathBuf {
    let name = format!("postrider-dev-{}-{}", std::process::id(), SystemClock::new().now().as_millis());
    std::env::temp_dir().join(name)
}

async fn serve(options: &DevOptions, directory: &Path, lock: DirectoryLock) -> Result<Exit, Trouble> {
    let real = SystemClock::new();
    let virtual_clock = match options.virtual_clock {
        true => Some(Arc::new(VirtualClock::open(directory, real.now()).map_err(|error| cannot("keep time", &error))?)),
        false => None,
    };
    let clock: Arc<dyn Clock> = match &virtual_clock {
        Some(clock) => Arc::clone(clock) as Arc<dyn Clock>,
        None => Arc::new(service_clock()),
    };
    let capture = Capture::open(directory, Arc::clone(&clock)).map_err(|error| cannot("capture mail", &error))?;
    let capture = Arc::new(capture);
    let ground = Ground::open(directory, lock, clock, Start::Dev)?;
    let reporter = Reporter::new(Arc::clone(ground.store.near())).map_err(|error| cannot("report on mail", &error))?;
    let reporter = Arc::new(reporter);
    let receiver = DevReceiver::start(Arc::clone(&capture), Arc::clone(&reporter)).await;
    let receiver = receiver.map_err(|error| cannot("receive mail", &error))?;
    let routes = receiver.routes(if options.deliver { Scope::SimulatorOnly } else { Scope::Everything });
    let parts = DevParts {
        routes: Arc::new(Dev { capture, clock: virtual_clock }),
        in_house: Arc::new(move |to| routes.route(to.local(), to.domain().as_str())),
        reporter,
    };
    let captured = Arc::clone(&parts.routes.capture);
    let mut daemon = Daemon::start(&options.config, ground, HandedOver::default(), Some(parts)).await?;
    forget_with_content(&daemon.engine, captured);
    let credentials = credentials(&daemon.engine, directory).await?;
    let smtp = smtp::listen(&mut daemon, &credentials.api_key).await?;
    let smtp_url = format!("smtp://{}", reachable(smtp));
    announce(options, &daemon, &credentials, &smtp_url, directory)
        .map_err(|error| cannot("write to stdout", &error))?;
    let exit = daemon.run().await;
    receiver.shut_down(GRACE).await;
    Ok(exit)
}

/// Has captured mail go when its message's content does (contract 7).
fn forget_with_content(engine: &Arc<Engine>, captured: Arc<Capture>) {
    let (weak, stopped) = (Arc::downgrade(engine), || io::Error::other("the service has stopped"));
    engine.on_content_destroyed.get_or_init(|| {
        Box::new(move || {
            let engine = weak.upgrade().ok_or_else(stopped)?;
            captured.remove_where(|message| engine.is_content_over(message).map_err(io::Error::other))
        })
    });
}

fn cannot(what: &str, why: &dyn std::fmt::Display) -> Trouble {
    Trouble::new(Exit::Failed, format!("cannot {what}"), why.to_string(), "")
}

/// The credentials of a kept directory, or new ones.
async fn credentials(engine: &Arc<Engine>, directory: &Path) -> Result<Credentials, Trouble> {
    let path = directory.join(FILE);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| cannot("read dev.json", &error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = furnish(engine).await?;
            keep(&path, &made).map_err(|error| cannot("keep dev.json", &error))?;
            Ok(made)
        }
        Err(error) => Err(cannot("read dev.json", &error)),
    }
}

/// Makes the account with its keys and domains. Begun again after a crash, it goes on with the account that is there.
async fn furnish(engine: &Arc<Engine>) -> Result<Credentials, Trouble> {
    let furnishing = |error: &dyn std::fmt::Display| cannot("furnish the development account", error);
    let name: AccountName = ACCOUNT.parse().map_err(|error| furnishing(&error))?;
    let all = PageRequest { before: None, limit: usize::MAX };
    let accounts = engine.accounts(all).map_err(|error| furnishing(&error))?;
    let account = match accounts.rows.into_iter().find(|account| account.name == name) {
        Some(account) => account.id,
        None => engine.create_account(name, None, engine.settings.quota).await.map_err(|error| furnishing(&error))?.id,
    };
    let mut secrets = Vec::new();
    for (name, stream) in [("dev", None), ("dev marketing", Some(Stream::Marketing))] {
        let caller = Caller { account, key: None };
        let key = NewKey { name: name.to_owned(), stream, scopes: Scopes::ALL, expires_at: None };
        let made = engine.create_key(&caller, key).await;
        let (_, secret) = made.map_err(|stop| furnishing(&format!("{stop:?}")))?;
        secrets.push(secret.expose().to_owned());
    }
    for (name, stream) in DOMAINS {
        let name: DomainName = name.parse().map_err(|error| furnishing(&error))?;
        match engine.create_verified_domain(account, name, stream).await {
            Ok(_) | Err(Stop::Refused(DomainRefusal::Exists)) => {}
            Err(stop) => return Err(furnishing(&format!("{stop:?}"))),
        }
    }
    let (panel_user, panel_password) = panel_user(engine, account).await?;
    let mut secrets = secrets.into_iter();
    Ok(Credentials {
        api_key: secrets.next().unwrap_or_default(),
        marketing_api_key: secrets.next().unwrap_or_default(),
        account_id: account.to_string(),
        panel_user,
        panel_password,
    })
}

/// The address and the password of the panel's user. One that was made before a crash gets a new password.
async fn panel_user(engine: &Arc<Engine>, account: AccountId) -> Result<(String, String), Trouble> {
    let furnishing = |error: &dyn std::fmt::Display| cannot("make the panel's user", error);
    let email: Address = PANEL_USER.parse().map_err(|error| furnishing(&error))?;
    let all = PageRequest { before: None, limit: usize::MAX };
    let known = engine.users(account, all).map_err(|error| furnishing(&error))?.rows;
    let password = match known.into_iter().find(|user| user.email == email) {
        Some(user) => {
            let password = NewPassword::generate(&*engine.entropy);
            let change = UserChange { password: Some(password.clone()), ..UserChange::default() };
            let changed = engine.change_user(Behalf::operator(account), user.id, change).await;
            changed.map(|_| password).map_err(|stop| furnishing(&format!("{stop:?}")))?
        }
        None => {
            let made = engine.create_user(Behalf::operator(account), email, Role::Owner).await;
            made.map_err(|stop| furnishing(&format!("{stop:?}")))?.1
        }
    };
    Ok((PANEL_USER.to_owned(), password.expose().to_owned()))
}

fn keep(path: &Path, credentials: &Credentials) -> io::Result<()> {
    let half_made = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    let mut file = options.open(&half_made)?;
    file.write_all(&serde_json::to_vec(credentials)?)?;
    file.sync_all()?;
    fs::rename(half_made, path)
}

#[expect(clippy::print_stdout, reason = "what dev prints is what it is asked for")]
fn announce(
    options: &DevOptions,
    daemon: &Daemon,
    made: &Credentials,
    smtp_url: &str,
    directory: &Path,
) -> io::Result<()> {
    let address = daemon.http_addresses.first().copied().unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let scheme = if daemon.serves_tls() { "https" } else { "http" };
    let url = format!("{scheme}://{}", reachable(address));
    let panel_url = format!("{url}/login");
    if options.json {
        let line = Announcement {
            url: &url,
            api_key: &made.api_key,
            marketing_api_key: &made.marketing_api_key,
            account_id: &made.account_id,
            panel_url: &panel_url,
            panel_user: &made.panel_user,
            panel_password: &made.panel_password,
            smtp_url,
            data_dir: directory,
        };
        println!("{}", serde_json::to_string(&line)?);
    } else {
        println!("{}", words(&url, smtp_url, made, directory, options.deliver));
    }
    io::stdout().flush()
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

fn words(url: &str, smtp_url: &str, made: &Credentials, directory: &Path, deliver: bool) -> String {
    let mail = if deliver { "mailed for real" } else { "captured" };
    let (user, password) = (&made.panel_user, &made.panel_password);
    format!(
        "Postrider is ready at {url}\n\
         \n\
         Panel              {url}/login?email={user}\n\
         password           {password}   (of {user})\n\
         SMTP               {smtp_url}   (with or without a login)\n\
         API key            {}\n\
         marketing API key  {}\n\
         data directory     {}\n\
         \n\
         Send a message (it is {mail}):\n\
         \n\
         curl {url}/v1/messages -H 'Authorization: Bearer {}' -H 'Content-Type: application/json' \\\n  \
         -d '{{\"from\": \"hello@example.test\", \"to\": \"you@example.org\", \"subject\": \"Hello\", \
         \"text\": \"It works.\"}}'\n\
         \n\
         Captured mail: curl {url}/dev/mail\n\
         \n\
         Commands beside it (postrider message list, ...) find it after:\n\
         \n\
         export POSTRIDER_DATA_DIR={}",
        made.api_key,
        made.marketing_api_key,
        directory.display(),
        made.api_key,
        quoted(directory),
    )
}

/// Where a listener on every address is reached from this machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    SocketAddr::from(([127, 0, 0, 1], address.port()))
}
