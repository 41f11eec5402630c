//! Reading rows, in the same way from a snapshot and within an operation.

use std::ops::ControlFlow;

use super::error::StoreError;
use super::row::Row;
use super::schema::Table;

/// Order of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Ascending by key.
    Ascending,
    /// Descending by key.
    Descending,
}

impl Order {
    /// Returns whether `key` comes before `other`.
    pub fn is_before(self, key: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Ascending => key < other,
            Self::Descending => key > other,
        }
    }
}

/// Handling of damaged rows in a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDamage {
    /// Fail. For decisions, which must not treat the row as absent.
    Fail,
    /// Skip the row, which is logged and counted. For lists, and for background work that must continue.
    Skip,
    /// Pass the row's key with an empty value. For callers that need only keys. The damage may be in the key, so
    /// callers check the row to which it refers before they act on it.
    Key,
}

/// Callback of a scan for each key and value. The scan continues until the callback breaks or fails.
pub type RowCallback<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StoreError> + 'a;

/// A source of rows.
pub trait Read {
    /// Returns the bytes at `key`.
    ///
    /// # Errors
    /// Database errors.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Calls `each` with the rows whose keys are in the half-open `range`, until it breaks.
    ///
    /// # Errors
    /// Database errors, errors of `each`, and a damaged row if `on_damage` fails on it.
    fn scan_with(
        &self,
        table: Table,
        range: (&[u8], &[u8]),
        order: Order,
        on_damage: OnDamage,
        each: &mut RowCallback<'_>,
    ) -> Result<(), StoreError>;

    /// Returns whether there is a row at `key`, damaged or not.
    ///
    /// # Errors
    /// Database errors.
    fn has(&self, table: Table, key: &[u8]) -> Result<bool, StoreError> {
        match self.get(table, key) {
            Err(error) if error.is_of_row() => Ok(true),
            found => found.map(|found| found.is_some()),
        }
    }

    /// Calls `each` with the rows whose keys are in `from..to`, until it breaks. Fails at a damaged row.
    ///
    /// # Errors
    /// Database errors, errors of `each`, and a damaged row.
    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        order: Order,
        each: &mut RowCallback<'_>,
    ) -> Result<(), StoreError> {
        self.scan_with(table, (from, to), order, OnDamage::Fail, each)
    }

    /// Calls `each` with the intact rows whose keys are in `from..to`, until it breaks. Skips damaged rows.
    ///
    /// # Errors
    /// Database errors and errors of `each`.
    fn scan_sound(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        order: Order,
        each: &mut RowCallback<'_>,
    ) -> Result<(), StoreError> {
        self.scan_with(table, (from, to), order, OnDamage::Skip, each)
    }

    /// Returns the row at `key`.
    ///
    /// # Errors
    /// Database errors; a row that does not decode.
    fn row<R: Row>(&self, key: &[u8]) -> Result<Option<R>, StoreError>
    where
        Self: Sized,
    {
        self.get(R::TABLE, key)?.map(|bytes| R::decode(&bytes)).transpose()
    }

    /// Returns the row at `key`, or `None` if it is damaged. For lists, which skip such rows.
    ///
    /// # Errors
    /// Database errors.
    fn sound_row<R: Row>(&self, key: &[u8]) -> Result<Option<R>, StoreError>
    where
        Self: Sized,
    {
        sound(self.row(key)).map(Option::flatten)
    }

    /// Returns up to `limit` intact rows whose keys begin with `prefix`, in ascending order, with their keys. Skips
    /// damaged rows.
    ///
    /// # Errors
    /// Database errors.
    fn sound_rows<R: Row>(&self, prefix: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, R)>, StoreError>
    where
        Self: Sized,
    {
        let mut rows = Vec::new();
        self.scan_sound(R::TABLE, prefix, &after_prefix(prefix), Order::Ascending, &mut |key, bytes| {
            rows.extend(sound(R::decode(bytes))?.map(|row| (key.to_vec(), row)));
            Ok(if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(rows)
    }

    /// Returns up to `limit` rows whose keys begin with `prefix`, in ascending order, with their keys.
    ///
    /// # Errors
    /// Database errors; a row that does not decode.
    fn rows<R: Row>(&self, prefix: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, R)>, StoreError>
    where
        Self: Sized,
    {
        let mut rows = Vec::new();
        self.scan(R::TABLE, prefix, &after_prefix(prefix), Order::Ascending, &mut |key, bytes| {
            rows.push((key.to_vec(), R::decode(bytes)?));
            Ok(if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(rows)
    }

    /// Returns up to `limit` keys in `from..to`, in `order`. Fails at a damaged row.
    ///
    /// # Errors
    /// Database errors and a damaged row.
    fn keys(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        order: Order,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.keys_with(table, (from, to), order, OnDamage::Fail, limit)
    }

    /// Returns up to `limit` keys of intact rows in `from..to`, in `order`. Skips damaged rows.
    ///
    /// # Errors
    /// Database errors.
    fn sound_keys(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        order: Order,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.keys_with(table, (from, to), order, OnDamage::Skip, limit)
    }

    /// Returns up to `limit` keys in the half-open `range`, in `order`.
    ///
    /// # Errors
    /// Database errors, and a damaged row if `on_damage` fails on it.
    fn keys_with(
        &self,
        table: Table,
        range: (&[u8], &[u8]),
        order: Order,
        on_damage: OnDamage,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut keys = Vec::new();
        if limit == 0 {
            return Ok(keys);
        }
        self.scan_with(table, range, order, on_damage, &mut |key, _| {
            keys.push(key.to_vec());
            Ok(if keys.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(keys)
    }
}

/// Returns the row, or `None` if only that row is damaged. For lists, which skip it.
///
/// # Errors
/// Database errors.
pub fn sound<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Ok(read) => Ok(Some(read)),
        // The damage was logged when the row was read.
        Err(StoreError::Damaged { .. }) => Ok(None),
        Err(error) if error.is_of_row() => {
            tracing::error!(%error, "could not read a row; skipping it");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the first key after all keys that begin with `prefix`: the exclusive end of a prefix scan.
pub fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // No key is greater than a prefix of 0xff bytes, and no key is longer than 300 bytes.
    vec![u8::MAX; 512]
}
