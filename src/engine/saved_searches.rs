//! Saved message searches of panel users. They are the user's own, like the browsers they signed in with, so a change
//! has no line in the account's audit log.

use super::Engine;
use crate::base::id::{AccountId, UserId};
use crate::domain::saved_search::{SavedSearch, SearchName};
use crate::store::error::{OpError, StoreError};
use crate::store::op::NotFound;
use crate::store::op::saved_search::{RemoveSearch, SaveRefusal, SaveSearch, saved_searches};

impl Engine {
    /// Returns the saved searches of a user, in the order in which they were saved.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn saved_searches(&self, account: AccountId, user: UserId) -> Result<Vec<SavedSearch>, StoreError> {
        saved_searches(&self.store.snapshot()?, account, user)
    }

    /// Saves a search of a user. It replaces one with the same name.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn save_search(
        &self,
        account: AccountId,
        user: UserId,
        search: SavedSearch,
    ) -> Result<(), OpError<SaveRefusal>> {
        self.store.commit(SaveSearch { account, user, search }).await
    }

    /// Removes a saved search of a user.
    ///
    /// # Errors
    /// There is no such search, or the store's failure.
    pub async fn remove_search(
        &self,
        account: AccountId,
        user: UserId,
        name: SearchName,
    ) -> Result<(), OpError<NotFound>> {
        self.store.commit(RemoveSearch { account, user, name }).await
    }
}
