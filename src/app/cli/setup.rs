//! The setup commands: `init`, `doctor`, `completions` and `man`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use serde::Serialize;
use serde_json::json;

use super::args::CommandLine;
use super::setup_args::{CompletionsArgs, DoctorArgs, InitArgs, ManArgs};
use super::zone::zone;
use super::{Console, DATA_DIR_VARIABLE, EarlyExit, found};
use crate::app::cli_error::CliError;
use crate::app::doctor::{self, Check};
use crate::app::environment::Environment;
use crate::app::exit::Exit;
use crate::app::init::{self, InitOptions, InitResult};

/// `postrider init`.
pub(super) fn init(args: InitArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let environment = &console.environment;
    let options = InitOptions {
        hostname: args.hostname,
        config: to_write(args.config, environment).map(whole),
        data_dir: args.data_dir.or_else(|| environment.path(DATA_DIR_VARIABLE)).map(whole),
        user: args.user,
    };
    let made = init::run(&options, environment)?;
    if json {
        writeln!(console.out, "{}", one_line(&made))?;
    } else {
        write!(console.out, "{}", setup_text(&made))?;
    }
    Ok(Exit::Done)
}

/// Returns the configuration file that `init` writes or uses; `None` if the environment contains everything.
fn to_write(option: Option<PathBuf>, environment: &Environment) -> Option<PathBuf> {
    let packaged = PathBuf::from(found::PACKAGED);
    let file = found::file(option, environment, &packaged);
    file.or_else(|| environment.text(found::HOSTNAME_VARIABLE).is_none().then_some(packaged))
}

/// Makes a path absolute, because the service may be started in another directory.
fn whole(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn setup_text(made: &InitResult) -> String {
    let of_file = made.config.as_ref().map(|file| file.display().to_string());
    let configured = match (&of_file, made.config_is_new) {
        (Some(file), true) => format!("Wrote the configuration {file}"),
        (Some(file), false) => format!("Kept the configuration {file}"),
        (None, _) => "Used the configuration from the environment".to_owned(),
    };
    let option = of_file.map(|file| format!(" --config {file}")).unwrap_or_default();
    let records: Vec<_> = made.records.iter().map(|record| json!(record)).collect();
    format!(
        "{configured}\n\
         Created the store {} with the account {}\n\
         \n\
         Save these now; they won't be shown again:\n\
         \n\
         API key            {}\n\
         Panel              {}\n\
         \x20 user             {}\n\
         \x20 password         {}\n\
         \n\
         DNS records of this server to publish (PTR: at the provider of the address):\n\
         \n\
         {}\n\
         Next:\n\
         \x20 postrider config check{option}     checks the configuration\n\
         \x20 postrider doctor{option}           checks the setup: DNS, ports, certificate, disk\n\
         \x20 systemctl enable --now postrider, or: postrider serve{option}\n\
         \x20 postrider domain add DOMAIN --stream transactional{option}\n\
         \x20                                              prints the records of a domain to send from\n",
        made.data_dir.display(),
        made.account_id,
        made.api_key,
        made.panel_url,
        made.panel_user,
        made.panel_password,
        zone(&records),
    )
}

/// `postrider doctor`.
pub(super) fn doctor(args: DoctorArgs, json: bool, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let environment = &console.environment;
    let mut config = found::configuration(args.config, environment)?;
    if let Some(directory) = args.data_dir.or_else(|| environment.path(DATA_DIR_VARIABLE)) {
        config.data_dir = directory;
    }
    let checks = doctor::run(&config)?;
    if json {
        writeln!(console.out, "{}", one_line(&Report { checks: &checks }))?;
    } else {
        for check in &checks {
            write!(console.out, "{}", line(check))?;
        }
    }
    Ok(if checks.iter().any(Check::is_failure) { Exit::ChecksFailed } else { Exit::Done })
}

/// Output of the checks with `--json`.
#[derive(Serialize)]
struct Report<'a> {
    checks: &'a [Check],
}

fn one_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| unreachable!("texts and numbers are JSON: {error}"))
}

/// Returns a check as text for people: the finding and the remedy.
fn line(check: &Check) -> String {
    let (seen, remedy) = (printable(&check.seen), printable(&check.remedy));
    let arrow = if remedy.is_empty() { "" } else { " -> " };
    format!("{:4} {}: {seen}{arrow}{remedy}\n", check.verdict.as_str(), check.name)
}

/// Replaces control characters, so that text from other servers can't move the cursor or recolour the terminal.
fn printable(text: &str) -> String {
    let mut printable = String::new();
    for c in text.chars() {
        match c.is_control() {
            true => printable.extend(c.escape_default()),
            false => printable.push(c),
        }
    }
    printable
}

/// `postrider completions`.
pub(super) fn completions(args: &CompletionsArgs, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut CommandLine::command(), "postrider", &mut text);
    console.out.write_all(&text)?;
    Ok(Exit::Done)
}

/// `postrider man`.
pub(super) fn man(args: &ManArgs, console: &mut Console<'_>) -> Result<Exit, EarlyExit> {
    let command = CommandLine::command();
    let Some(directory) = &args.out else {
        clap_mangen::Man::new(command).render(&mut console.out)?;
        return Ok(Exit::Done);
    };
    let written = fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command, directory));
    written.map_err(|error| unwritten(directory, &error))?;
    Ok(Exit::Done)
}

fn unwritten(directory: &Path, error: &std::io::Error) -> CliError {
    let what = format!("cannot write the manual to {}", directory.display());
    CliError::new(Exit::Failed, what, error.to_string(), "Choose a directory that this user can write to.")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::io;

    use super::*;
    use crate::app::cli::{Services, run};
    use crate::app::doctor::Verdict;

    /// Runs a command line of words separated by spaces. Returns its exit code and both outputs.
    fn typed(line: &str) -> (Exit, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let environment = Environment::of([("POSTRIDER_DNS__SERVERS".to_owned(), "127.0.0.1:1".to_owned())]);
        let mut input = io::empty();
        let mut console = Console { environment, input: &mut input, out: &mut out, err: &mut err };
        let services = Services {
            serve: &|_, _, _| panic!("serves"),
            dev: &|_| panic!("runs dev"),
            standby: &|_, _| panic!("stands by"),
        };
        let words = std::iter::once("postrider").chain(line.split_whitespace()).map(OsString::from);
        let exit = run(words, &mut console, &services);
        (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn a_relative_path_is_stored_as_an_absolute_one() {
        let folder = std::env::current_dir().unwrap();
        assert_eq!(whole("data".into()), folder.join("data"));
        assert_eq!(whole("/data".into()), PathBuf::from("/data"));
    }

    #[test]
    fn the_output_of_init_leads_to_the_first_message() {
        let folder = tempfile::tempdir().unwrap();
        let (config, data) = (folder.path().join("p.toml"), folder.path().join("data"));
        let line =
            format!("init --hostname mail.example.com --config {} --data-dir {}", config.display(), data.display());
        let (exit, out, err) = typed(&line);
        assert_eq!((exit, err.as_str()), (Exit::Done, ""));
        for expected in ["pr_live_", "PTR", "v=spf1 a -all", "postrider doctor --config", "postrider domain add"] {
            assert!(out.contains(expected), "{expected} is not in {out}");
        }
        let (exit, out, err) = typed(&line);
        assert_eq!((exit, out.as_str(), err.lines().count()), (Exit::Conflict, "", 3), "{err}");
    }

    #[test]
    fn the_exit_code_of_doctor_follows_from_its_findings() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("p.toml");
        fs::write(&config, "hostname = \"mail.example.com\"\n[dns]\nservers = [\"127.0.0.1:1\"]\n").unwrap();
        let line = format!("doctor --json --config {} --data-dir {}", config.display(), folder.path().display());
        let (exit, out, _) = typed(&line);
        assert_eq!(exit, Exit::ChecksFailed);
        let found: serde_json::Value = serde_json::from_str(&out).unwrap();
        let checks = found["checks"].as_array().unwrap();
        assert!(checks.iter().any(|check| check["name"] == "resolver" && check["verdict"] == "FAIL"), "{out}");
        assert!(out.starts_with("{\"checks\":[{\"name\":\"configuration\",\"verdict\":\"OK\",\"seen\":\""), "{out}");
        assert!(checks.iter().all(|check| check["remedy"].is_string()), "{out}");
        assert_eq!(out.lines().count(), 1);
    }

    #[test]
    fn completions_and_manual_follow_the_grammar() {
        for shell in ["bash", "zsh", "fish"] {
            let (exit, out, _) = typed(&format!("completions {shell}"));
            assert!(exit == Exit::Done && out.contains("doctor") && out.contains("ready-fd"), "{shell}");
        }
        assert_eq!(typed("completions tcsh").0, Exit::Usage);
        let (exit, page, _) = typed("man");
        assert!(exit == Exit::Done && page.starts_with(".ie") && page.contains("doctor"), "{page}");
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(typed(&format!("man --out {}", folder.path().display())).0, Exit::Done);
        for page in ["postrider.1", "postrider-serve.1", "postrider-key-add.1"] {
            assert!(folder.path().join(page).exists(), "{page}");
        }
    }

    #[test]
    fn a_check_is_one_line_and_control_characters_are_escaped() {
        let check = Check::new("egress", Verdict::Fail, "it said \u{1b}[31mno\r\n", "Use a smarthost.");
        assert_eq!(line(&check), "FAIL egress: it said \\u{1b}[31mno\\r\\n -> Use a smarthost.\n");
        assert_eq!(line(&Check::new("disk", Verdict::Ok, "12 GiB free", "")), "OK   disk: 12 GiB free\n");
    }
}
