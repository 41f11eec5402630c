//! A line of the audit log: who changed which part of an account, and when.

use serde::{Deserialize, Serialize};

use super::Row;
use crate::base::time::Timestamp;
use crate::domain::audit::{Actor, Change, Person};
use crate::store::schema::Table;

/// A line. Row key: account and line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditRow {
    /// Time of the change.
    pub at: Timestamp,
    /// Author of the change.
    pub actor: Actor,
    /// The change.
    pub change: Change,
}

/// Number of lines of an account. Row key: the account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditLinesRow {
    /// The number.
    pub lines: u64,
}

impl Row for AuditLinesRow {
    const TABLE: Table = Table::AuditLines;
}

/// A line of version 1, which could only be written by panel users.
#[derive(Serialize, Deserialize)]
struct PersonsRow {
    at: Timestamp,
    person: Person,
    change: Change,
}

impl Row for AuditRow {
    const TABLE: Table = Table::AuditLog;
    const VERSION: u8 = 2;

    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        let read = |PersonsRow { at, person, change }| Self { at, actor: Actor::Person(person), change };
        (version == 1).then(|| postcard::from_bytes(bytes).map(read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::audit::Action;

    #[test]
    fn a_line_of_version_1_is_readable() {
        let person = Person { user: Default::default(), email: "ann@example.com".to_owned() };
        let change = Change::new(Action::KeyCreated, "key_1", "shop");
        let old = PersonsRow { at: Timestamp::from_millis(7), person: person.clone(), change: change.clone() };
        let bytes = postcard::to_extend(&old, vec![1]).unwrap();
        let row = AuditRow { at: Timestamp::from_millis(7), actor: Actor::Person(person), change };
        assert_eq!(AuditRow::decode(&bytes).unwrap(), row);
        assert_eq!(AuditRow::decode(&row.encode()).unwrap(), row);
        assert!(AuditRow::decode(&[&[3], &bytes[1..]].concat()).is_err());
    }
}
