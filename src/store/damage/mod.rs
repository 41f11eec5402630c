//! Database damage: rows with a wrong checksum, and pages that redb can't read. redb panics on some damaged pages, and
//! [`guarded`] turns such a panic into an error. The code that finds damage logs it once and counts it, so callers
//! don't have to.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Mutex, Once, PoisonError};

use redb::Database;

use super::error::StoreError;
use super::schema::Table;
use crate::base::id::{AccountId, Ulid};
use crate::base::meter::Counter;

/// Maximum number of damaged rows that are remembered, so that each is logged once. Further ones are logged at every
/// read.
const REMEMBERED: usize = 1000;

/// Damage that this process has found.
#[derive(Debug, Default)]
pub struct Damage {
    /// Number of reads of damaged rows or pages.
    pub met: Counter,
    logged: Mutex<HashSet<(Table, String)>>,
}

impl Damage {
    /// Reports that the row at `key` has a wrong checksum.
    pub(super) fn row(&self, table: Table, key: &[u8]) -> StoreError {
        self.note(table, row_name(table, key), "its checksum does not match".to_owned())
    }

    /// Reports damage around `key` that may hide its row.
    pub(super) fn hidden(&self, table: Table, key: &[u8]) -> StoreError {
        self.note(table, row_name(table, key), "a row beside it is damaged and may hide it".to_owned())
    }

    /// Reports that the row at `key`, or a page that leads to it, can't be read.
    pub(super) fn pages(&self, table: Table, key: &[u8], fault: String) -> StoreError {
        self.note(table, row_name(table, key), fault)
    }

    fn note(&self, table: Table, row: String, fault: String) -> StoreError {
        self.met.count();
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() == REMEMBERED || logged.insert((table, row.clone())) {
            tracing::error!(table = table.name(), row, fault, "damaged row in the database; it is not used");
        }
        StoreError::Damaged { table, row, fault }
    }
}

/// Returns the name of a row for logs and errors: the account and the identifiers in its key. Addresses, site names and
/// hashes of secrets are replaced by a checksum, which still distinguishes the rows.
pub(super) fn row_name(table: Table, key: &[u8]) -> String {
    if table == Table::Meta {
        return String::from_utf8_lossy(key).into_owned();
    }
    let ids = match table {
        Table::KeysByHash
        | Table::DomainOwners
        | Table::UsersByEmail
        | Table::UsersByIdentity
        | Table::Sessions
        | Table::WarmUps
        | Table::StsPolicies
        | Table::TlsReports
        | Table::TlsReportDays
        | Table::IdempotencyByExpiry
        | Table::NoticeAddresses
        | Table::ProvenAddresses
        | Table::Timers => 0,
        Table::Waiting
        | Table::Suppressions
        | Table::DomainsByName
        | Table::Pauses
        | Table::AlertStates
        | Table::Idempotency
        | Table::Outcomes
        | Table::AccountsByHint => 1,
        Table::SessionsByUser
        | Table::Parked
        | Table::EventLogByType
        | Table::Attempts
        | Table::DmarcSeen
        | Table::DmarcDays
        | Table::DmarcCounts
        | Table::DmarcSources
        | Table::DmarcMarks
        | Table::DmarcReporters
        | Table::DmarcSums => 2,
        _ => key.len() / 16,
    };
    let mut name = Vec::new();
    let mut rest = key;
    for index in 0..ids {
        let Some((id, after)) = rest.split_first_chunk::<16>() else { break };
        name.push(if index == 0 { AccountId(Ulid(*id)).to_string() } else { Ulid(*id).to_string() });
        rest = after;
    }
    if !rest.is_empty() {
        name.push(format!("#{:08x}", crc32fast::hash(rest)));
    }
    name.join("/")
}

/// Runs `read`, which calls redb. A panic becomes an error with its message and prints nothing. A panic that can't be
/// caught is given to the handler of [`on_uncatchable`].
///
/// # Errors
/// The panic's message.
pub(super) fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, String> {
    handle_panics();
    let before = GUARD.replace(Guard::On { fault: None });
    // Only data that redb shares between threads outlives the panic. redb poisons its locks: a lock whose holder
    // panicked fails every later holder.
    let done = catch_unwind(AssertUnwindSafe(read));
    GUARD.set(before);
    done.map_err(|payload| {
        let said = payload.downcast_ref::<&str>().map(|said| (*said).to_owned());
        let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
        said.unwrap_or_else(|| "the database panicked".to_owned())
    })
}

/// Sets the handler of damage whose panic can't be caught: redb panics in a destructor while a first panic unwinds. It
/// gets the first panic's message. The process is aborted when it returns, or without a handler.
pub fn on_uncatchable(handler: fn(fault: &str)) {
    *HANDLER.lock().unwrap_or_else(PoisonError::into_inner) = Some(handler);
}

/// An open database. Closing it writes, so redb may panic on damage there too. Nothing depends on that write, and the
/// panic is caught here.
pub(super) struct OpenDatabase(Option<Database>);

impl OpenDatabase {
    pub(super) const fn new(database: Database) -> Self {
        Self(Some(database))
    }
}

impl Deref for OpenDatabase {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.0.as_ref().unwrap_or_else(|| unreachable!("it is taken only when it is dropped"))
    }
}

impl DerefMut for OpenDatabase {
    fn deref_mut(&mut self) -> &mut Database {
        self.0.as_mut().unwrap_or_else(|| unreachable!("it is taken only when it is dropped"))
    }
}

impl Drop for OpenDatabase {
    fn drop(&mut self) {
        let database = self.0.take();
        if let Err(fault) = guarded(|| drop(database)) {
            tracing::error!(fault, "could not close the database cleanly; the next start repairs it");
        }
    }
}

/// State of a thread: whether it is inside [`guarded`].
enum Guard {
    Off,
    /// `fault` is the first panic's message.
    On {
        fault: Option<String>,
    },
}

thread_local! {
    static GUARD: RefCell<Guard> = const { RefCell::new(Guard::Off) };
}

/// Handler of [`on_uncatchable`].
static HANDLER: Mutex<Option<fn(&str)>> = Mutex::new(None);

/// Messages of the panics that Rust raises before it aborts the process.
const UNCATCHABLE: [&str; 2] = ["panic in a destructor during cleanup", "panic in a function that cannot unwind"];

/// Silences panics inside [`guarded`], and calls the handler of those that it can't catch. All others are printed as
/// usual.
fn handle_panics() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            let is_guarded = GUARD.try_with(|guard| note_panic(&mut guard.borrow_mut(), panicked));
            if !is_guarded.unwrap_or(false) {
                before(panicked);
            }
        }));
    });
}

/// Keeps the first panic's message. Returns whether the thread is guarded.
fn note_panic(guard: &mut Guard, panicked: &PanicHookInfo<'_>) -> bool {
    let Guard::On { fault } = guard else { return false };
    let message = panicked.payload_as_str().unwrap_or_default();
    if UNCATCHABLE.contains(&message) {
        let handler = *HANDLER.lock().unwrap_or_else(PoisonError::into_inner);
        handler.inspect(|handle| handle(fault.as_deref().unwrap_or(message)));
        return false;
    }
    fault.get_or_insert_with(|| message.to_owned());
    true
}

#[cfg(test)]
mod flips;
#[cfg(test)]
mod rows;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarded_panic_becomes_an_error() {
        assert_eq!(guarded(|| 7), Ok(7));
        assert_eq!(guarded(|| panic!("a page is odd")), Err::<(), _>("a page is odd".to_owned()));
        assert_eq!(guarded(|| panic!("page {}", 7)), Err::<(), _>("page 7".to_owned()));
        assert!(GUARD.with_borrow(|guard| matches!(guard, Guard::Off)));
    }

    /// Panics in its destructor.
    struct PanicsTwice;

    impl Drop for PanicsTwice {
        fn drop(&mut self) {
            panic!("its destructor is odd, too");
        }
    }

    /// Name of the variable that makes [`panics_in_a_destructor_in_a_process_of_its_own`] panic.
    const PANIC_TWICE: &str = "POSTRIDER_PANIC_TWICE";

    #[test]
    fn panics_in_a_destructor_in_a_process_of_its_own() {
        if std::env::var_os(PANIC_TWICE).is_none() {
            return;
        }
        on_uncatchable(|fault| std::process::exit(if fault == "page 7 is odd" { 7 } else { 1 }));
        let _ = guarded(|| {
            let _panics = PanicsTwice;
            panic!("page 7 is odd");
        });
    }

    #[test]
    fn a_panic_that_cannot_be_caught_reaches_the_handler_with_the_first_panics_message() {
        let name = format!("{}::panics_in_a_destructor_in_a_process_of_its_own", module_path!());
        let (_, name) = name.split_once("::").unwrap();
        let ended = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(PANIC_TWICE, "yes")
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(7), "{ended:?}");
        assert!(!String::from_utf8_lossy(&ended.stderr).contains("odd"), "it prints nothing: {ended:?}");
    }

    #[test]
    fn a_row_name_contains_identifiers_but_no_address() {
        let account = AccountId(Ulid([1; 16]));
        let key = [account.as_bytes().as_slice(), b"somebody@example.net"].concat();
        let name = row_name(Table::Suppressions, &key);
        assert!(name.starts_with(&format!("{account}/#")) && !name.contains("somebody"), "{name}");
        let name = row_name(Table::Waiting, &[&key[..], &[0; 17]].concat());
        assert!(!name.contains("somebody") && !name.contains("736f6d"), "{name}");
        let message = [[1; 16], [2; 16]].concat();
        assert_eq!(row_name(Table::Messages, &message), format!("{account}/{}", Ulid([2; 16])));
        assert_eq!(row_name(Table::Meta, b"last_id"), "last_id");
    }

    #[test]
    fn a_damaged_row_is_counted_each_time() {
        let damage = Damage::default();
        for _ in 0..3 {
            let error = damage.row(Table::Messages, &[1; 32]);
            assert!(matches!(error, StoreError::Damaged { table: Table::Messages, .. }));
        }
        assert_eq!(damage.met.read(), 3);
    }
}
