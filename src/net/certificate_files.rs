//! A certificate in files that another program renews. Changed files are read again and presented to new connections;
//! open connections keep the old certificate.
//!
//! The files are polled, not watched: their paths may contain links and mounts that are swapped as a whole. If the new
//! pair can't be used, the old one stays, and one warning is logged. A chain often appears a moment before its key.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use super::probe::certificate::Certificate;
use super::tls::{self, TlsFault};
use super::tls_settings::PresentedCertificate;
use crate::base::time::Timestamp;

/// Interval between checks of the files.
const LOOK: Duration = Duration::from_secs(1);

/// The files of a certificate and its key.
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    seen: [Option<Print>; 2],
    /// The error of an unusable pair that has not been logged yet.
    unlogged: Option<TlsFault>,
}

/// File attributes that show whether a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// Result of a check.
#[derive(Debug)]
enum FileCheck {
    /// The files are unchanged.
    Same,
    /// The files hold another certificate.
    Changed(Box<ServerConfig>, Option<Timestamp>),
    /// The files have changed and can't be used.
    Unusable(TlsFault),
}

impl CertificateFiles {
    /// Reads the files and returns the certificate to present.
    ///
    /// # Errors
    /// The files can't be used.
    pub fn open(certificate: &Path, key: &Path) -> Result<(Self, PresentedCertificate), TlsFault> {
        let seen = [certificate, key].map(print);
        let config = tls::server_config(certificate, key)?;
        let presented = PresentedCertificate::new(config, until(certificate));
        Ok((Self { certificate: certificate.to_owned(), key: key.to_owned(), seen, unlogged: None }, presented))
    }

    /// Presents a changed certificate, and checks at once when `at_once` is notified. Never returns.
    pub async fn run(mut self, presented: Arc<PresentedCertificate>, at_once: Arc<Notify>) {
        let mut turns = interval(LOOK);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                _ = turns.tick() => false,
                () = at_once.notified() => true,
            };
            if asked {
                self.seen = [None, None];
            }
            self.turn(&presented);
        }
    }

    fn turn(&mut self, presented: &PresentedCertificate) {
        match self.look() {
            // The files are unchanged since the last check, so they were not read in the middle of a renewal.
            FileCheck::Same => {
                if let Some(fault) = self.unlogged.take() {
                    tracing::warn!(%fault, "could not reload TLS certificate; keeping the current one");
                }
            }
            FileCheck::Changed(config, until) => {
                self.unlogged = None;
                presented.present(*config, until);
                tracing::info!(until = until.map(tracing::field::display), "TLS certificate reloaded");
            }
            FileCheck::Unusable(fault) => self.unlogged = Some(fault),
        }
    }

    fn look(&mut self) -> FileCheck {
        let now = [&self.certificate, &self.key].map(print);
        if now == self.seen {
            return FileCheck::Same;
        }
        self.seen = now;
        match tls::server_config(&self.certificate, &self.key) {
            Ok(config) => FileCheck::Changed(Box::new(config), until(&self.certificate)),
            Err(fault) => FileCheck::Unusable(fault),
        }
    }
}

fn until(certificate: &Path) -> Option<Timestamp> {
    Some(Certificate::read(certificate).ok()?.validity()?.until)
}

/// Follows links: renewal tools often swap those.
fn print(path: impl AsRef<Path>) -> Option<Print> {
    let found = fs::metadata(path).ok()?;
    let modified = (found.mtime(), found.mtime_nsec());
    Some(Print { device: found.dev(), inode: found.ino(), bytes: found.len(), modified })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn write(dir: &TempDir, part: &str, text: &str) {
        let new = dir.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, dir.path().join(part)).unwrap();
    }

    /// Creates a new pair: chain and key.
    fn made() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn opened(dir: &TempDir) -> (CertificateFiles, PresentedCertificate) {
        let (chain, key) = made();
        write(dir, "crt", &chain);
        write(dir, "key", &key);
        CertificateFiles::open(&dir.path().join("crt"), &dir.path().join("key")).unwrap()
    }

    #[test]
    fn a_new_pair_is_presented_once_both_files_exist() {
        let dir = tempfile::tempdir().unwrap();
        let (mut files, presented) = opened(&dir);
        let first = presented.http.current();
        files.turn(&presented);
        assert!(Arc::ptr_eq(&first, &presented.http.current()), "nothing has changed");
        let (chain, key) = made();
        write(&dir, "crt", &chain);
        files.turn(&presented);
        assert!(Arc::ptr_eq(&first, &presented.http.current()), "the key does not exist yet");
        assert!(files.unlogged.is_some(), "the failure is not logged before the next check");
        write(&dir, "key", &key);
        files.turn(&presented);
        assert!(!Arc::ptr_eq(&first, &presented.http.current()));
        assert!(files.unlogged.is_none());
    }

    #[test]
    fn an_unusable_pair_keeps_the_current_one_and_is_logged_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mut files, presented) = opened(&dir);
        let first = (presented.http.current(), presented.mail.current());
        write(&dir, "crt", "torn");
        files.turn(&presented);
        assert!(files.unlogged.as_ref().unwrap().to_string().contains("no certificate"));
        files.turn(&presented);
        assert!(files.unlogged.is_none(), "the failure is logged once");
        files.turn(&presented);
        fs::remove_file(dir.path().join("key")).unwrap();
        files.turn(&presented);
        assert!(Arc::ptr_eq(&first.0, &presented.http.current()) && Arc::ptr_eq(&first.1, &presented.mail.current()));
        let (chain, key) = made();
        write(&dir, "key", &key);
        write(&dir, "crt", &chain);
        files.turn(&presented);
        assert!(!Arc::ptr_eq(&first.1, &presented.mail.current()), "mail presents it too");
        assert!(presented.meters.until().is_some());
    }
}
