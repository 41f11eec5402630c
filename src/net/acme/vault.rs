//! Persistent ACME state in the folder `acme` of the data directory: the account key, the certificate with its key, the
//! order in progress, and the last failure. Every file has mode 0600 and is replaced as a whole.
//!
//! The worker writes it. `doctor` reads it while the service is running.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::machine::renewal::RenewalFailures;
use crate::store::private_file;

/// The folder's name.
const FOLDER: &str = "acme";
const ACCOUNT: &str = "account.key";
const CERTIFICATE: &str = "certificate.pem";
const ORDER: &str = "order.json";
const STATUS: &str = "status.json";
/// Prefix of the first line of the certificate file.
const ISSUED_BY: &str = "Issued by ";

/// The folder that holds the ACME state.
#[derive(Debug, Clone)]
pub struct Vault(PathBuf);

/// An order in progress. It is stored before its certificate exists: after a crash the next process fetches the issued
/// certificate instead of requesting another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// URL of the authority's directory.
    pub(super) directory: String,
    /// The names of the order.
    pub(super) names: Vec<String>,
    /// The order's URL.
    pub(super) url: String,
    /// The private key of the certificate, in PEM.
    pub(super) key: String,
}

/// Status of the certificate requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Directory URL of the authority that this status is about.
    pub directory: String,
    /// The requested names.
    pub names: Vec<String>,
    /// Challenge type of the next order: the one that worked last.
    pub(super) way: Option<super::ProofMethod>,
    /// Failures since the last certificate that had all names.
    pub setbacks: RenewalFailures,
    /// Message of the last failure.
    pub fault: Option<String>,
}

impl Vault {
    /// Returns the folder of this data directory, whether it exists or not.
    pub fn within(data_dir: &Path) -> Self {
        Self(data_dir.join(FOLDER))
    }

    /// Creates the folder if it does not exist.
    pub(super) fn make(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)
    }

    /// Returns the path of the certificate file: the chain and the private key, in PEM.
    pub fn certificate(&self) -> PathBuf {
        self.0.join(CERTIFICATE)
    }

    /// Returns the status of the requests, if any was made.
    pub fn status(&self) -> Option<Status> {
        self.read(STATUS)
    }

    pub(super) fn keep_status(&self, status: &Status) -> io::Result<()> {
        self.write(STATUS, &serde_json::to_vec(status)?)
    }

    /// Returns the account key, in PEM.
    pub(super) fn account_key(&self) -> Option<String> {
        fs::read_to_string(self.0.join(ACCOUNT)).ok()
    }

    pub(super) fn keep_account_key(&self, pem: &str) -> io::Result<()> {
        self.write(ACCOUNT, pem.as_bytes())
    }

    pub(super) fn order(&self) -> Option<Order> {
        self.read(ORDER)
    }

    pub(super) fn keep_order(&self, order: &Order) -> io::Result<()> {
        self.write(ORDER, &serde_json::to_vec(order)?)
    }

    pub(super) fn forget_order(&self) {
        // An order that can't be removed is found to be unusable later.
        let _gone = fs::remove_file(self.0.join(ORDER));
    }

    /// Returns the authority of the stored certificate.
    pub fn issued_by(&self) -> Option<String> {
        let text = fs::read_to_string(self.certificate()).ok()?;
        text.lines().next()?.strip_prefix(ISSUED_BY).map(str::to_owned)
    }

    /// Stores chain, key and the authority's name in one file, so that they change together. PEM allows text before the
    /// first block (RFC 7468 2).
    pub(super) fn keep_certificate(&self, directory: &str, chain: &str, key: &str) -> io::Result<()> {
        let end = if chain.ends_with('\n') { "" } else { "\n" };
        self.write(CERTIFICATE, format!("{ISSUED_BY}{directory}\n{chain}{end}{key}").as_bytes())
    }

    /// Reads a file. A file that can't be read counts as absent: the authority can provide each of them again.
    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&fs::read(self.0.join(name)).ok()?).ok()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        private_file::replace(&self.0.join(name), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn stored_state_is_read_back_and_only_its_owner_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let vault = Vault::within(folder.path());
        assert_eq!((vault.status(), vault.order(), vault.account_key()), (None, None, None));
        vault.make().unwrap();
        vault.make().unwrap();
        let order = Order {
            directory: "https://ca.example/dir".to_owned(),
            names: vec!["a.example".to_owned()],
            url: "https://ca.example/1".to_owned(),
            key: "KEY".to_owned(),
        };
        vault.keep_order(&order).unwrap();
        vault.keep_account_key("ACCOUNT").unwrap();
        vault.keep_certificate("https://ca.example/dir", "CHAIN", "KEY").unwrap();
        let status = Status { names: order.names.clone(), ..Status::default() };
        vault.keep_status(&status).unwrap();
        assert_eq!((vault.status(), vault.order()), (Some(status), Some(order)));
        assert_eq!(vault.account_key().as_deref(), Some("ACCOUNT"));
        let kept = fs::read_to_string(vault.certificate()).unwrap();
        assert_eq!(kept, "Issued by https://ca.example/dir\nCHAIN\nKEY");
        assert_eq!(vault.issued_by().as_deref(), Some("https://ca.example/dir"));
        for entry in fs::read_dir(folder.path().join("acme")).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        }
        assert_eq!(fs::metadata(folder.path().join("acme")).unwrap().permissions().mode() & 0o777, 0o700);
        vault.forget_order();
        assert_eq!(vault.order(), None);
    }

    #[test]
    fn a_torn_file_counts_as_absent() {
        let folder = tempfile::tempdir().unwrap();
        let vault = Vault::within(folder.path());
        vault.make().unwrap();
        fs::write(folder.path().join("acme/status.json"), "{\"directory\":").unwrap();
        assert_eq!(vault.status(), None);
    }
}
