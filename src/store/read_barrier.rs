//! Read barrier: a snapshot waits until all answered batches are in the database, so that no caller reads state older
//! than its answer. If a batch can't be written into the database, all reads fail.

use std::sync::{PoisonError, RwLock};

use super::error::StoreError;

/// Lock that the writer holds from answering a batch until it is in the database.
#[derive(Default)]
pub(super) struct ReadBarrier(RwLock<LastBatch>);

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum LastBatch {
    #[default]
    Visible,
    Failed,
}

impl ReadBarrier {
    /// Blocks reads while `make_visible` runs, which answers callers and writes the batch into the database.
    ///
    /// # Errors
    /// Errors of `make_visible`.
    pub(super) fn block_reads(&self, make_visible: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        let mut last = self.0.write().unwrap_or_else(PoisonError::into_inner);
        make_visible().inspect_err(|_| *last = LastBatch::Failed)
    }

    /// Waits until all answered batches are visible.
    ///
    /// # Errors
    /// A batch could not be made visible: writing it failed or panicked. Only a restart helps.
    pub(super) fn wait(&self) -> Result<(), StoreError> {
        match self.0.read().map(|last| *last) {
            Ok(LastBatch::Visible) => Ok(()),
            Ok(LastBatch::Failed) | Err(_) => {
                Err(StoreError::Database("could not write the journal's records into the database".to_owned()))
            }
        }
    }

    /// Returns whether an answered batch is not visible yet.
    #[cfg(test)]
    pub(super) fn is_blocking(&self) -> bool {
        self.0.try_read().is_err()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn reads_fail_after_a_batch_could_not_be_published() {
        let barrier = ReadBarrier::default();
        assert!(barrier.wait().is_ok());
        barrier.block_reads(|| Ok(())).unwrap();
        assert!(barrier.wait().is_ok() && !barrier.is_blocking());
        assert!(barrier.block_reads(|| Err(StoreError::Closed)).is_err());
        assert!(barrier.wait().is_err());
        let barrier = ReadBarrier::default();
        assert!(catch_unwind(AssertUnwindSafe(|| barrier.block_reads(|| panic!("a defect")))).is_err());
        assert!(barrier.wait().is_err());
    }
}
