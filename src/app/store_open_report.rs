//! Messages for the operator when a store is opened: the reason why it does not open, and the timers on hold. Used by
//! the daemon, `dev` and `init`.

use std::path::Path;

use super::cli_error::CliError;
use super::exit::Exit;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::journal::Damage;
use crate::store::open::{OnJournalDamage, OpenError};
use crate::store::row::restored::HoldCause;

/// Kind of start on a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The service, or a command that works on its store, with the policy for a damaged journal.
    Service(OnJournalDamage),
    /// `dev`, which never starts on a damaged journal.
    Dev,
}

impl Start {
    /// Returns the policy for a damaged journal.
    pub(super) const fn on_journal_damage(self) -> OnJournalDamage {
        match self {
            Self::Service(on_damage) => on_damage,
            Self::Dev => OnJournalDamage::Refuse,
        }
    }

    /// Returns the same kind of start for a store whose journal is sound or repaired.
    pub(super) const fn on_whole_journal(self) -> Self {
        match self {
            Self::Service(_) => Self::Service(OnJournalDamage::Refuse),
            Self::Dev => Self::Dev,
        }
    }
}

/// Returns the reason why the store in `directory` does not open, and the remedy.
pub(super) fn cannot_open(directory: &Path, error: &OpenError, start: Start) -> CliError {
    let (exit, remedy) = remedy(error, start);
    CliError::new(exit, format!("cannot open the store in {}", directory.display()), error.to_string(), remedy)
}

/// Returns the exit code and the remedy for a store that does not open.
fn remedy(error: &OpenError, start: Start) -> (Exit, String) {
    let (exit, remedy) = match error {
        OpenError::Locked => (Exit::Conflict, "Stop the process that has it open."),
        OpenError::Newer { .. } => {
            (Exit::Failed, "Use the version that wrote it, or restore a backup from this version.")
        }
        OpenError::NotMigrated { .. } => {
            (Exit::Failed, "The store is unchanged. Free disk space and start again, or use the earlier version.")
        }
        OpenError::Damaged { .. } => (
            Exit::Failed,
            "Messages, events and settings in its damaged parts are lost. First \
             copy the directory. `postrider check` lists the damage. Then restore the newest backup into an \
             empty directory; changes since that backup are lost too.",
        ),
        OpenError::Failed(StoreError::Full | StoreError::DatabaseFull) => {
            (Exit::Failed, "Free space on its disk and start again. Nothing is lost.")
        }
        OpenError::HalfRestored => {
            (Exit::Failed, "Empty the directory and restore again; the backup or the bucket is unchanged.")
        }
        OpenError::JournalDamaged(_) if start == Start::Dev => (
            Exit::Failed,
            "Choose an empty directory with --data-dir, or omit it. Only the service starts on a damaged journal.",
        ),
        OpenError::JournalDamaged(damage) => return (Exit::Failed, without_journal(damage)),
        OpenError::JournalWhole => {
            (Exit::Usage, "Start without --accept-journal-damage: it is only for one start on a damaged journal.")
        }
        OpenError::WrongMasterKey => (Exit::Failed, "Put the store's own master.key back."),
        OpenError::Io { .. } | OpenError::Failed(_) => {
            (Exit::Failed, "Check the disk and the directory's owner. A store can't be opened without its master.key.")
        }
    };
    (exit, remedy.to_owned())
}

/// Returns the exit code and the remedy for a replicated store that does not open. The bucket has what a damaged store
/// has lost.
pub(super) fn remedy_of_replicated(error: &OpenError) -> (Exit, String) {
    let (exit, remedy) = remedy(error, Start::Service(OnJournalDamage::Refuse));
    match error {
        OpenError::Damaged { .. } => (exit, FROM_BUCKET.to_owned()),
        OpenError::JournalDamaged(_) => (exit, format!("{remedy} {FROM_BUCKET}")),
        _ => (exit, remedy),
    }
}

/// The remedy for a damaged store whose log is in a bucket.
const FROM_BUCKET: &str = "The bucket has everything up to the `confirmed_sequence` of the last `replica status`; only \
    later changes are lost. First copy the directory; `postrider check` lists the damage. Then continue the log: \
    empty the directory except for master.key, run `postrider standby`, and `postrider promote` once it has caught up. \
    To go back in time instead, run `postrider restore s3://BUCKET/PREFIX --at TIME --data-dir EMPTY`.";

/// Returns the remedies for a damaged journal.
fn without_journal(damage: &Damage) -> String {
    let (first, without) = match damage {
        Damage::Record { left_out, .. } => (
            "Check the disk, and run `postrider check`.",
            format!("without {left_out} records, keeps the file as journal.damaged-<time>,"),
        ),
        Damage::Missing => ("If the file was moved, put it back.", "without the content of the file".to_owned()),
        Damage::Foreign => (
            "If the file was replaced, put the original back.",
            "without the content of the file, keeps it as journal.damaged-<time>,".to_owned(),
        ),
    };
    format!(
        "{first} Otherwise restore a backup, or start once with `postrider serve --accept-journal-damage`: it starts \
         in the state before the damage, {without} and holds queued mail until `postrider queue release`."
    )
}

/// Warns that queued mail is on hold.
pub(super) fn report_restore_hold(store: &Store) -> Result<(), CliError> {
    let Some(restored) = store.restore_hold().map_err(|error| cannot_read(&error))? else { return Ok(()) };
    match restored.cause {
        HoldCause::Restored => tracing::warn!(
            backup_at = %restored.backup_at,
            "this store was restored from a backup: queued messages and webhook deliveries may have been sent since \
             and are on hold; see `postrider queue list`, and release them with `postrider queue release`; new \
             messages are sent as usual"
        ),
        HoldCause::JournalDamaged { .. } => tracing::warn!(
            accepted_at = %restored.backup_at,
            "this store was started on a damaged journal: queued messages and webhook deliveries may have been sent \
             already and are on hold; see `postrider queue list`, and release them with `postrider queue release`; new \
             messages are sent as usual"
        ),
    }
    Ok(())
}

fn cannot_read(error: &StoreError) -> CliError {
    CliError::new(Exit::Failed, "cannot read the store", error.to_string(), "Check the disk, and try again.")
}
