//! Rows for users of the panel, and the decoding of earlier versions.

use serde::Deserialize;

use super::Row;
use crate::base::id::UserId;
use crate::base::time::Timestamp;
use crate::domain::address::Address;
use crate::domain::device::Devices;
use crate::domain::sign_in_log::SignInLog;
use crate::domain::user::{Role, SecondFactor, User};
use crate::store::schema::Table;

impl Row for User {
    const TABLE: Table = Table::Users;
    const VERSION: u8 = 4;

    fn decode_earlier(version: u8, bytes: &[u8]) -> Option<postcard::Result<Self>> {
        match version {
            1 => Some(postcard::from_bytes::<UserV1>(bytes).map(Self::from)),
            // Version 2 lacks the last two fields, version 3 the last: a zero byte is false, or an empty log.
            2 => Some(postcard::from_bytes(&[bytes, &[0, 0]].concat())),
            3 => Some(postcard::from_bytes(&[bytes, &[0]].concat())),
            _ => None,
        }
    }
}

/// Row of version 1, without browsers.
#[derive(Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
struct UserV1 {
    id: UserId,
    email: Address,
    role: Role,
    password_hash: String,
    totp: Option<SecondFactor>,
    created_at: Timestamp,
    last_sign_in_at: Option<Timestamp>,
    disabled: bool,
}

impl From<UserV1> for User {
    fn from(row: UserV1) -> Self {
        let UserV1 { id, email, role, password_hash, totp, created_at, last_sign_in_at, disabled } = row;
        let devices = Devices::default();
        Self {
            id,
            email,
            role,
            password_hash,
            totp,
            created_at,
            last_sign_in_at,
            disabled,
            devices,
            is_operator: false,
            sign_ins: SignInLog::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    fn user() -> UserV1 {
        UserV1 {
            id: UserId(Ulid([7; 16])),
            email: "ann@example.com".parse().unwrap(),
            role: Role::Viewer,
            password_hash: "$argon2id$x".to_owned(),
            totp: None,
            created_at: Timestamp::from_millis(5),
            last_sign_in_at: Some(Timestamp::from_millis(6)),
            disabled: true,
        }
    }

    #[test]
    fn a_user_of_version_1_decodes_without_browsers() {
        let row = user();
        let bytes = postcard::to_extend(&row, vec![1]).unwrap();
        let user = User::decode(&bytes).unwrap();
        assert_eq!(user, User::from(row));
        assert_eq!(User::decode(&user.encode()).unwrap(), user);
        assert!(User::decode(&[5]).is_err());
    }

    #[test]
    fn users_of_versions_2_and_3_decode_without_the_fields_that_they_lack() {
        let bytes = postcard::to_extend(&user(), vec![1]).unwrap();
        let user = User::decode(&bytes).unwrap();
        let operator = User { is_operator: true, ..user.clone() };
        for (version, lacks, expected) in [(2, 2, &user), (3, 1, &user), (3, 1, &operator)] {
            let mut earlier = expected.encode();
            earlier[0] = version;
            earlier.truncate(earlier.len() - lacks);
            assert_eq!(&User::decode(&earlier).unwrap(), expected, "{version}");
        }
        assert_eq!(User::decode(&operator.encode()).unwrap(), operator);
    }
}
