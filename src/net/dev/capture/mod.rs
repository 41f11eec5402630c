//! Captured mail of `dev`, one file each under `<data_dir>/captured/`: a line of JSON, then the message.
//!
//! The in-memory index holds the first lines, read once at the start. A file gets its name only when it is complete, so
//! a crash leaves no partial message. Files are not synced, since this mail is only for development.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use mail_parser::MessageParser;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use crate::base::id::{self, AccountId, MessageId, Ulid};
use crate::base::time::{Timestamp, iso};
use crate::domain::return_path;
use crate::engine::ports::Clock;
use crate::store::private_file;

use super::filter::MailFilter;

const DIRECTORY: &str = "captured";
const WHOLE: &str = "mail";
const PARTIAL: &str = "partial";
/// Maximum length of the first line in bytes. A file with a longer one is not ours.
const FIRST_LINE_MAX: u64 = 256 * 1024;
/// Maximum length of the stored subject, in characters.
const SUBJECT_MAX: usize = 2_000;

/// One captured message, as `GET /dev/mail` lists it and as the first line of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedMail {
    /// The message ID from its return path or Message-ID, or a generated one for other mail.
    #[serde(serialize_with = "id::as_text", deserialize_with = "from_text")]
    pub message_id: MessageId,
    /// The return path; empty for the null path.
    pub mail_from: String,
    /// The recipient. Several are separated by commas, though the service never has more than one.
    pub rcpt_to: String,
    /// Time of arrival.
    #[serde(serialize_with = "iso::serialize", deserialize_with = "from_text")]
    pub received_at: Timestamp,
    /// The decoded subject.
    pub subject: Option<String>,
    /// The address in the From header.
    #[serde(default)]
    pub from: Option<String>,
    /// The sending account, if the message was sent by the service.
    #[serde(default, serialize_with = "as_optional_text", deserialize_with = "from_optional_text")]
    pub account_id: Option<AccountId>,
}

/// Finds the account of a message; `None` if the message does not exist (any more).
pub type FindAccount = dyn Fn(MessageId) -> Option<AccountId> + Send + Sync;

/// All captured mail.
pub struct Capture {
    directory: PathBuf,
    clock: Arc<dyn Clock>,
    index: Mutex<Index>,
    partials: AtomicU64,
    /// Notified of every change, and of the shutdown.
    changed: Notify,
    is_over: AtomicBool,
    account_of: OnceLock<Box<FindAccount>>,
}

/// Ordered by time of arrival, then by identifier: under a virtual clock many messages may have the same time.
#[derive(Default)]
struct Index {
    by_arrival: BTreeMap<(Timestamp, MessageId), CapturedMail>,
    arrivals: HashMap<MessageId, Timestamp>,
}

impl Capture {
    /// Opens the captured mail of a data directory. Empty if there is none.
    ///
    /// # Errors
    /// File system errors. Files that are not captured messages are ignored.
    pub fn open(data_dir: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let directory = data_dir.join(DIRECTORY);
        fs::create_dir_all(data_dir)?;
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // An earlier version left the directory and its files readable by all users.
        fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
        let mut index = Index::default();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(WHOLE) => match read_first_line(&path) {
                    Ok((mail, _)) => {
                        private_file::restrict(&path)?;
                        index.insert(mail);
                    }
                    Err(error) => tracing::warn!(path = %path.display(), %error, "not a captured message; skipping it"),
                },
                Some(PARTIAL) => fs::remove_file(&path)?,
                _ => {}
            }
        }
        let (index, partials) = (Mutex::new(index), AtomicU64::new(0));
        let (changed, is_over) = (Notify::new(), AtomicBool::new(false));
        Ok(Self { directory, clock, index, partials, changed, is_over, account_of: OnceLock::new() })
    }

    /// Sets the function that finds the accounts of messages.
    pub fn find_accounts(&self, account_of: Box<FindAccount>) {
        self.account_of.get_or_init(|| account_of);
    }

    /// Stores a message. One with the same identifier is replaced. A message of the service that has been erased since
    /// is dropped. Blocks on the file system.
    ///
    /// # Errors
    /// File system errors; then nothing is stored.
    pub fn keep(&self, mail_from: String, rcpt_to: String, message: &[u8]) -> io::Result<MessageId> {
        let received_at = self.clock.now();
        let Headers { message_id, subject, from } = read_headers(message);
        // The client may have set the Message-ID, if the account's `keep_message_id` allows it.
        let by_path = message_of(&mail_from);
        let found = by_path.or(message_id);
        let message_id =
            found.unwrap_or_else(|| made_id(received_at, [mail_from.as_bytes(), rcpt_to.as_bytes(), message]));
        let account_id = found.and_then(|id| self.account_of.get()?(id));
        let is_erased = by_path.is_some() && account_id.is_none();
        if is_erased && self.account_of.get().is_some() {
            return Ok(message_id);
        }
        let mail = CapturedMail { message_id, mail_from, rcpt_to, received_at, subject, from, account_id };

        let partial = self.directory.join(format!("{}.{PARTIAL}", self.partials.fetch_add(1, Ordering::Relaxed)));
        if let Err(error) = write_file(&partial, &mail, message) {
            // A leftover partial file only takes space. The first error is the one to report.
            let _ = fs::remove_file(&partial);
            return Err(error);
        }
        // File name and index change under one lock. Otherwise two messages with one identifier could store one and
        // list the other.
        let mut index = self.index();
        fs::rename(&partial, self.path_of(message_id))?;
        index.insert(mail);
        drop(index);
        self.changed.notify_waiters();
        Ok(message_id)
    }

    /// Returns all captured mail, newest first.
    pub fn list(&self) -> Vec<CapturedMail> {
        self.index().by_arrival.values().rev().cloned().collect()
    }

    /// Returns the captured mail that matches `filter`, newest first: as soon as there are `count` messages, or after
    /// `wait` of real time, or at shutdown.
    pub async fn wait_for(&self, filter: &MailFilter, count: usize, wait: Duration) -> Vec<CapturedMail> {
        let taken = || self.list().into_iter().filter(|mail| filter.takes(mail)).collect::<Vec<_>>();
        let enough = async {
            loop {
                // The notification is registered before the check, so that no message in between is missed.
                let changed = self.changed.notified();
                if self.is_over.load(Ordering::Relaxed) || taken().len() >= count {
                    return;
                }
                changed.await;
            }
        };
        // Whether there were enough messages or the time is up, the answer is the current list.
        let _ = tokio::time::timeout(wait, enough).await;
        taken()
    }

    /// Ends all current waits, and makes later ones return at once.
    pub fn end_waits(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Removes the mail of an account. Blocks on the file system.
    ///
    /// # Errors
    /// File system errors; mail that was not removed is still listed.
    pub fn remove_of(&self, account: AccountId) -> io::Result<()> {
        let own: HashSet<_> =
            self.list().iter().filter(|mail| mail.account_id == Some(account)).map(|mail| mail.message_id).collect();
        self.remove_where(|message| Ok(own.contains(&message)))
    }

    /// Returns one message with its bytes as received; `None` if there is no such message. Blocks on the file system.
    ///
    /// # Errors
    /// File system errors.
    pub fn get(&self, message_id: MessageId) -> io::Result<Option<(CapturedMail, Vec<u8>)>> {
        if !self.index().arrivals.contains_key(&message_id) {
            return Ok(None);
        }
        let (mail, mut rest) = match read_first_line(&self.path_of(message_id)) {
            Ok(read) => read,
            // The mail was removed after the index was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut message = Vec::new();
        rest.read_to_end(&mut message)?;
        Ok(Some((mail, message)))
    }

    /// Removes the messages for which `is_over` returns true. Blocks on the file system.
    ///
    /// # Errors
    /// Errors of the file system, and of `is_over`; mail that was not removed is still listed.
    pub fn remove_where(&self, is_over: impl Fn(MessageId) -> io::Result<bool>) -> io::Result<()> {
        for mail in self.list() {
            if !is_over(mail.message_id)? {
                continue;
            }
            let mut index = self.index();
            match fs::remove_file(self.path_of(mail.message_id)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            if let Some(arrival) = index.arrivals.remove(&mail.message_id) {
                index.by_arrival.remove(&(arrival, mail.message_id));
            }
        }
        Ok(())
    }

    /// Removes all captured mail. Blocks on the file system.
    ///
    /// # Errors
    /// File system errors; mail that was not removed is still listed.
    pub fn clear(&self) -> io::Result<()> {
        let mut index = self.index();
        while let Some(entry) = index.by_arrival.last_entry() {
            let (_, message_id) = *entry.key();
            match fs::remove_file(self.path_of(message_id)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            entry.remove();
            index.arrivals.remove(&message_id);
        }
        Ok(())
    }

    fn path_of(&self, message_id: MessageId) -> PathBuf {
        self.directory.join(format!("{message_id}.{WHOLE}"))
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    fn insert(&mut self, mail: CapturedMail) {
        if let Some(before) = self.arrivals.insert(mail.message_id, mail.received_at) {
            self.by_arrival.remove(&(before, mail.message_id));
        }
        self.by_arrival.insert((mail.received_at, mail.message_id), mail);
    }
}

/// Returns the message ID in a return path of the service.
fn message_of(mail_from: &str) -> Option<MessageId> {
    let (local, _) = mail_from.rsplit_once('@')?;
    return_path::decode(local).ok().map(|path| path.message)
}

/// The header fields of a message that are stored.
#[derive(Default)]
struct Headers {
    /// The message ID in the Message-ID field, if the service generated it.
    message_id: Option<MessageId>,
    subject: Option<String>,
    /// The author's address.
    from: Option<String>,
}

fn read_headers(message: &[u8]) -> Headers {
    let Some(headers) = MessageParser::default().parse_headers(message) else { return Headers::default() };
    Headers {
        message_id: headers.message_id().and_then(|id| id.split('@').next()?.parse().ok()),
        subject: headers.subject().map(|subject| subject.chars().take(SUBJECT_MAX).collect()),
        from: headers.from().and_then(|from| Some(from.first()?.address()?.to_owned())),
    }
}

/// Makes an identifier for mail that the service did not send, from its arrival time and a digest of envelope and
/// message.
fn made_id(at: Timestamp, parts: [&[u8]; 3]) -> MessageId {
    let mut random = [0; 10];
    random.copy_from_slice(&Sha256::digest(parts.join(&0))[..10]);
    MessageId(Ulid::new(at, random))
}

fn write_file(path: &Path, mail: &CapturedMail, message: &[u8]) -> io::Result<()> {
    let mut head = serde_json::to_vec(mail)?;
    head.push(b'\n');
    let mut file = private_file::create(path)?;
    file.write_all(&head)?;
    file.write_all(message)
}

fn read_first_line(path: &Path) -> io::Result<(CapturedMail, BufReader<File>)> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    file.by_ref().take(FIRST_LINE_MAX).read_until(b'\n', &mut line)?;
    Ok((serde_json::from_slice(&line)?, file))
}

fn from_text<'de, T: std::str::FromStr<Err: std::fmt::Display>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

fn as_optional_text<S: serde::Serializer>(id: &Option<AccountId>, to: S) -> Result<S::Ok, S::Error> {
    match id {
        Some(id) => to.collect_str(id),
        None => to.serialize_none(),
    }
}

fn from_optional_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<AccountId>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
}

#[cfg(test)]
mod tests;
