//! Checks of this machine: the configuration, the data directory, the master key, the disk, the certificate.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{Check, DoctorInputs, Verdict, certificate};
use crate::app::config::Config;

/// Free space is a warning below this multiple of the required minimum.
const ROOM: u64 = 16;

pub(super) fn checks(patient: &DoctorInputs) -> Vec<Check> {
    let config = &patient.config;
    let mut checks = configuration(config);
    checks.push(directory(&config.data_dir));
    checks.push(master_key(&config.data_dir));
    checks.push(disk(&config.data_dir, config.limits.min_free_bytes));
    checks.push(certificate::check(config));
    checks.extend(set_aside(&config.data_dir));
    checks
}

/// Names the stores that a standby set aside. Without such a store there is no check.
fn set_aside(directory: &Path) -> Option<Check> {
    let found = fs::read_dir(directory).ok()?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut found: Vec<_> = found.filter(|name| name.starts_with("deposed-")).collect();
    found.sort();
    let newest = found.last()?;
    let seen = format!("{}: with messages and a copy of the master key", found.join(", "));
    let remedy = format!(
        "List the mail that the log lacks with `postrider replica stranded --data-dir {}`, then remove each directory.",
        directory.join(newest).display()
    );
    Some(Check::new("stores set aside", Verdict::Warn, seen, remedy))
}

fn configuration(config: &Config) -> Vec<Check> {
    const NAME: &str = "configuration";
    let mut checks = Vec::new();
    if let Err(cli_error) = config.fit_to_mail() {
        let text = cli_error.to_string();
        let mut lines = text.lines().skip(1).map(str::trim);
        let (seen, remedy) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        checks.push(Check::new(NAME, Verdict::Fail, seen, remedy));
    } else {
        let remedy = "Change the setting, unless it is intended.";
        let warnings = config.warnings().into_iter();
        checks.extend(warnings.map(|warning| Check::new(NAME, Verdict::Warn, warning, remedy)));
    }
    if checks.is_empty() {
        checks.push(Check::new(NAME, Verdict::Ok, "all values are valid", ""));
    }
    checks
}

fn directory(directory: &Path) -> Check {
    const NAME: &str = "data directory";
    let shown = directory.display();
    let Ok(found) = fs::metadata(directory) else {
        let remedy = "Create it with `postrider init`, or run doctor as the service's user.";
        return Check::new(NAME, Verdict::Fail, format!("{shown} does not exist, or this user may not see it"), remedy);
    };
    let mode = found.permissions().mode() & 0o777;
    let seen = format!("{shown} has mode {mode:04o}");
    match mode & 0o077 {
        0 => Check::new(NAME, Verdict::Ok, seen, ""),
        _ => Check::new(NAME, Verdict::Warn, seen, format!("Deny access to other users: chmod 0700 {shown}")),
    }
}

fn master_key(directory: &Path) -> Check {
    const NAME: &str = "master key";
    let path = directory.join("master.key");
    let shown = path.display();
    let Ok(found) = fs::metadata(&path) else {
        let seen = format!("{shown} does not exist; the service may get it as a systemd credential");
        let remedy = "Check the unit's LoadCredential, or put back the key that the store was created with.";
        return Check::new(NAME, Verdict::Warn, seen, remedy);
    };
    let mode = found.permissions().mode() & 0o777;
    let seen = format!("{shown} has mode {mode:04o}");
    match mode & 0o077 {
        0 => Check::new(NAME, Verdict::Ok, seen, "Keep a copy in another place than the backups."),
        _ => Check::new(
            NAME,
            Verdict::Fail,
            format!("{seen}: other users can read the key to every secret"),
            format!("Run chmod 0600 {shown}, and rotate the keys and secrets that others may have read."),
        ),
    }
}

fn disk(directory: &Path, least: u64) -> Check {
    const NAME: &str = "disk";
    const MIB: u64 = 1 << 20;
    // Use the nearest existing directory: it is on the same disk.
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let space = match rustix::fs::statvfs(existing) {
        Ok(space) => space,
        Err(error) => {
            let seen = format!("{}: {error}", existing.display());
            return Check::new(NAME, Verdict::Warn, seen, "Run doctor as the service's user.");
        }
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let seen = format!("{} MiB are free, and messages are accepted from {} MiB on", free / MIB, least / MIB);
    let verdict = match free {
        free if free < least => Verdict::Fail,
        free if free < least.saturating_mul(ROOM) => Verdict::Warn,
        _ => return Check::new(NAME, Verdict::Ok, seen, ""),
    };
    Check::new(NAME, verdict, seen, "Free disk space, or move data_dir to a larger disk.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_set_aside_is_a_warning_until_it_is_removed() {
        let data = tempfile::tempdir().unwrap();
        assert!(set_aside(data.path()).is_none());
        for name in ["deposed-3", "deposed-3-2", "content"] {
            fs::create_dir(data.path().join(name)).unwrap();
        }
        let check = set_aside(data.path()).unwrap();
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(check.seen.starts_with("deposed-3, deposed-3-2: "), "{}", check.seen);
    }
}
