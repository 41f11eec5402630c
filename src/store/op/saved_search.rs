//! Saving and removing a panel user's message searches.

use serde::{Deserialize, Serialize};

use super::{NotFound, Op};
use crate::base::id::{AccountId, UserId};
use crate::domain::saved_search::{SEARCHES_COUNT, SavedSearch, SearchName};
use crate::domain::user::User;
use crate::store::error::{OpError, StoreError};
use crate::store::read::Read;
use crate::store::row::saved_searches::SavedSearchesRow;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;

/// Returns the saved searches of a user.
///
/// # Errors
/// Store errors.
pub fn saved_searches(read: &impl Read, account: AccountId, user: UserId) -> Result<Vec<SavedSearch>, StoreError> {
    let row = read.sound_row::<SavedSearchesRow>(&schema::user(account, user))?;
    Ok(row.unwrap_or_default().searches)
}

/// Saves a search of a user. It replaces one with the same name.
#[derive(Debug, Serialize, Deserialize)]
pub struct SaveSearch {
    /// The account.
    pub account: AccountId,
    /// The user.
    pub user: UserId,
    /// The search.
    pub search: SavedSearch,
}

/// Reason why a search is not saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveRefusal {
    /// The user does not exist.
    NotFound,
    /// The user has [`SEARCHES_COUNT`] searches.
    TooMany,
}

impl Op for SaveSearch {
    type Reply = ();
    type Refusal = SaveRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<SaveRefusal>> {
        let key = schema::user(self.account, self.user);
        tables.row::<User>(&key)?.ok_or(OpError::Refused(SaveRefusal::NotFound))?;
        let mut searches = saved_searches(tables, self.account, self.user)?;
        match searches.iter().position(|saved| saved.name == self.search.name) {
            Some(place) => searches[place] = self.search.clone(),
            None if searches.len() >= SEARCHES_COUNT => return Err(OpError::Refused(SaveRefusal::TooMany)),
            None => searches.push(self.search.clone()),
        }
        tables.put(&key, &SavedSearchesRow { searches });
        Ok(())
    }
}

/// Removes a saved search of a user.
#[derive(Debug, Serialize, Deserialize)]
pub struct RemoveSearch {
    /// The account.
    pub account: AccountId,
    /// The user.
    pub user: UserId,
    /// Name of the search.
    pub name: SearchName,
}

impl Op for RemoveSearch {
    type Reply = ();
    type Refusal = NotFound;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<NotFound>> {
        let key = schema::user(self.account, self.user);
        let mut searches = saved_searches(tables, self.account, self.user)?;
        let place = searches.iter().position(|saved| saved.name == self.name).ok_or(OpError::Refused(NotFound))?;
        searches.remove(place);
        match searches.is_empty() {
            true => tables.remove(Table::SavedSearches, &key),
            false => tables.put(&key, &SavedSearchesRow { searches }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;
    use crate::base::time::Timestamp;
    use crate::domain::device::Devices;
    use crate::domain::sign_in_log::SignInLog;
    use crate::domain::user::Role;
    use crate::store::op::user::{CreateUser, DeleteUser};
    use crate::store::testing::TestStore;

    fn ann(test: &TestStore, account: AccountId) -> UserId {
        let user = User {
            id: UserId(Ulid([1; 16])),
            email: "ann@example.test".parse().unwrap(),
            role: Role::Viewer,
            password_hash: String::new(),
            totp: None,
            created_at: Timestamp::ZERO,
            last_sign_in_at: None,
            disabled: false,
            devices: Devices::default(),
            is_operator: false,
            sign_ins: SignInLog::default(),
        };
        test.done(CreateUser { account, user }).id
    }

    fn search(name: &str, text: &str) -> SavedSearch {
        let (status, stream) = ("waiting".to_owned(), String::new());
        SavedSearch { name: name.parse().unwrap(), text: text.to_owned(), status, stream }
    }

    #[test]
    fn a_search_with_a_known_name_replaces_the_old_one_and_the_number_is_bounded() {
        let test = TestStore::new();
        let account = test.sender().account;
        let user = ann(&test, account);
        let save = |search| test.commit(SaveSearch { account, user, search });
        let saved = || saved_searches(&test.snapshot(), account, user).unwrap();
        assert!(save(search("one", "a")).is_ok() && save(search("one", "b")).is_ok());
        assert_eq!(saved(), [search("one", "b")]);
        for number in 1..SEARCHES_COUNT {
            assert!(save(search(&format!("search {number}"), "a")).is_ok());
        }
        assert!(matches!(save(search("further", "a")), Err(OpError::Refused(SaveRefusal::TooMany))));
        assert!(save(search("one", "c")).is_ok());
        let remove = |name: &str| test.commit(RemoveSearch { account, user, name: name.parse().unwrap() });
        assert!(remove("one").is_ok() && matches!(remove("one"), Err(OpError::Refused(NotFound))));
        assert_eq!(saved().len(), SEARCHES_COUNT - 1);
        let nobody = UserId(user.0.next());
        let nobody = test.commit(SaveSearch { account, user: nobody, search: search("one", "a") });
        assert!(matches!(nobody, Err(OpError::Refused(SaveRefusal::NotFound))));
    }

    #[test]
    fn the_searches_of_a_deleted_user_are_deleted() {
        let test = TestStore::new();
        let account = test.sender().account;
        let user = ann(&test, account);
        assert!(test.commit(SaveSearch { account, user, search: search("one", "a") }).is_ok());
        assert!(test.commit(DeleteUser { account, user, keeps_owner: false }).is_ok());
        assert!(saved_searches(&test.snapshot(), account, user).unwrap().is_empty());
        assert_eq!(test.count(Table::SavedSearches, &[]), 0);
    }
}
