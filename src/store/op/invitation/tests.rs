//! Tests of invitations.

use super::*;
use crate::base::id::{Ulid, UserId};
use crate::domain::account::QuotaLimits;
use crate::domain::user::Role;
use crate::store::op::user::DeleteUser;
use crate::store::row::notice::NoticeRow;
use crate::store::schema::Table;
use crate::store::testing::TestStore;

fn user(number: u8) -> User {
    User {
        id: UserId(Ulid([number; 16])),
        email: format!("u{number}@example.com").parse().unwrap(),
        role: Role::Viewer,
        password_hash: "$argon2id$x".to_owned(),
        totp: None,
        created_at: Timestamp::ZERO,
        last_sign_in_at: None,
        disabled: false,
        devices: Default::default(),
        is_operator: false,
        sign_ins: crate::domain::sign_in_log::SignInLog::default(),
    }
}

#[test]
fn an_account_may_invite_20_people_a_day() {
    let test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    let first = test.now();
    let invite = |number| {
        test.commit(InviteUser { account, actor: Actor::Operator, user: user(number), channel: LinkChannel::Mail })
    };
    for number in 1..=20 {
        assert!(invite(number).is_ok());
        test.pass(Duration::from_secs(1));
    }
    assert!(matches!(invite(21), Err(OpError::Refused(InviteRefusal::TooMany { until })) if until == first + WINDOW));
    assert_eq!(test.count(Table::Notices, &[]), 20);
    test.set_now(first + WINDOW);
    assert!(invite(21).is_ok());
    assert!(invite(22).is_err());
}

#[test]
fn invitations_whose_link_the_inviter_passes_on_count_too_and_send_no_mail() {
    let test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    let invite =
        |number, channel| test.commit(InviteUser { account, actor: Actor::Operator, user: user(number), channel });
    for number in 1..=20 {
        assert!(invite(number, LinkChannel::Inviter).is_ok());
    }
    for channel in [LinkChannel::Inviter, LinkChannel::Mail] {
        assert!(matches!(invite(21, channel), Err(OpError::Refused(InviteRefusal::TooMany { .. }))), "{channel:?}");
    }
    assert_eq!(test.count(Table::Notices, &[]), 0);
    let lines = test.snapshot().rows::<AuditRow>(&[], 99).unwrap();
    assert!(lines.iter().all(|(_, row)| row.change.action == Action::UserAdded), "such a link proves no address");
}

#[test]
fn a_refused_invitation_leaves_no_rows() {
    let test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    let invite =
        || test.commit(InviteUser { account, actor: Actor::Operator, user: user(1), channel: LinkChannel::Mail });
    assert!(invite().is_ok());
    assert!(matches!(invite(), Err(OpError::Refused(InviteRefusal::User(CreateUserRefusal::EmailTaken)))));
    assert_eq!(test.count(Table::Notices, &[]), 1);
    assert_eq!(test.row::<InvitationsRow>(account.as_bytes()).made.len(), 1);
}

#[test]
fn the_audit_line_of_an_invitation_records_that_its_link_was_sent() {
    let test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    test.done(InviteUser { account, actor: Actor::Operator, user: user(1), channel: LinkChannel::Mail });
    let (_, row) = test.snapshot().rows::<NoticeRow>(&[], 1).unwrap().remove(0);
    let NoticeContent::Invitation(invitation) = row.content else { panic!("no invitation") };
    assert!(was_sent(&test.snapshot(), account, invitation.line).unwrap());
    assert!(!was_sent(&test.snapshot(), account, ChangeId::default()).unwrap());
}

#[test]
fn the_operator_proves_an_address_and_removing_the_user_forgets_it() {
    let test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    let email = user(1).email;
    test.done(CreateUser { account, user: user(2) });
    assert!(!is_proven(&test.snapshot(), &user(2).email).unwrap());
    test.done(ProvingAddress(CreateUser { account, user: user(1) }));
    assert!(is_proven(&test.snapshot(), &email).unwrap());
    test.done(DeleteUser { account, user: user(1).id, keeps_owner: false });
    assert!(!is_proven(&test.snapshot(), &email).unwrap());
}
