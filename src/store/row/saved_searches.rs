//! The saved message searches of one panel user.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::domain::saved_search::SavedSearch;
use crate::store::schema::Table;

/// Saved searches, in the order in which they were saved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSearchesRow {
    /// The searches. Their names differ.
    pub searches: Vec<SavedSearch>,
}

impl Row for SavedSearchesRow {
    const TABLE: Table = Table::SavedSearches;
}
