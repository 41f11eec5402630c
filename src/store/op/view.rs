//! An operator's view of another account. The session stores it, a timer ends it, and the audit log of the account has
//! a line for its start and its end.

use serde::{Deserialize, Serialize};

use super::session::sessions_of;
use super::{Infallible, Op, audit};
use crate::base::id::{AccountId, Ulid, UserId};
use crate::base::time::Timestamp;
use crate::domain::account::{Account, ViewReason};
use crate::domain::audit::{Action, Actor, Change, Person};
use crate::domain::session::{Session, SessionKey, Stage, View};
use crate::domain::user::User;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Begins a view, and ends one that the session already has.
#[derive(Debug, Serialize, Deserialize)]
pub struct BeginView {
    /// The session of the operator.
    pub session: SessionKey,
    /// The viewed account.
    pub account: AccountId,
    /// The operator's reason.
    pub reason: ViewReason,
}

/// Reason why a view does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginViewRefusal {
    /// There is no such account.
    NoSuchAccount,
    /// The session's user is not an operator, or the session has ended.
    NotOperator,
}

impl Op for BeginView {
    /// Expiry of the view.
    type Reply = Timestamp;
    type Refusal = BeginViewRefusal;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<Timestamp, OpError<BeginViewRefusal>> {
        let refused = OpError::Refused(BeginViewRefusal::NotOperator);
        let session = tables.row::<Session>(&self.session)?.filter(|session| session.stage == Stage::SignedIn);
        let Some(session) = session else { return Err(refused) };
        let user = tables.row::<User>(&schema::user(session.account, session.user))?;
        let Some(user) = user.filter(|user| user.is_operator && !user.disabled) else { return Err(refused) };
        if tables.row::<Account>(self.account.as_bytes())?.is_none() {
            return Err(OpError::Refused(BeginViewRefusal::NoSuchAccount));
        }
        let session = without_view(tables, &self.session, session)?;
        let view = View {
            account: self.account,
            operator: user.email.as_given().to_owned(),
            reason: self.reason.clone(),
            until: tables.now() + View::LASTS,
        };
        note(tables, &session, &view, Action::ViewBegun)?;
        tables.arm(timer_of(&self.session, &view));
        let until = view.until;
        tables.put(&self.session, &Session { view: Some(view), ..session });
        Ok(until)
    }
}

/// Ends the view of a session, if it has one.
#[derive(Debug, Serialize, Deserialize)]
pub struct EndView {
    /// The session.
    pub session: SessionKey,
}

impl Op for EndView {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        Ok(end_view(tables, &self.session)?)
    }
}

/// Ends an expired view.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExpireView {
    /// The timer that fired.
    pub timer: Timer,
}

impl Op for ExpireView {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        let prefix = self.timer.id.0;
        for key in tables.keys(Table::Sessions, &prefix, &after_prefix(&prefix), Order::Ascending, 2)? {
            let Some(key) = key.first_chunk::<32>() else { continue };
            let view = tables.row::<Session>(key)?.and_then(|session| session.view);
            if view.is_some_and(|view| timer_of(key, &view) == self.timer) {
                end_view(tables, key)?;
            }
        }
        tables.disarm(self.timer);
        Ok(())
    }
}

/// Ends the views of a user who is no longer an operator.
pub(super) fn end_views(tables: &mut Tables<'_>, account: AccountId, user: UserId) -> Result<(), StoreError> {
    for (key, _) in sessions_of(tables, account, user)? {
        end_view(tables, &key)?;
    }
    Ok(())
}

fn end_view(tables: &mut Tables<'_>, key: &SessionKey) -> Result<(), StoreError> {
    if let Some(session) = tables.row::<Session>(key)?.filter(|session| session.view.is_some()) {
        let session = without_view(tables, key, session)?;
        tables.put(key, &session);
    }
    Ok(())
}

/// Returns the session without its view. Writes the view's end and disarms its timer.
pub(super) fn without_view(
    tables: &mut Tables<'_>,
    key: &SessionKey,
    mut session: Session,
) -> Result<Session, StoreError> {
    if let Some(view) = session.view.take() {
        tables.disarm(timer_of(key, &view));
        note(tables, &session, &view, Action::ViewEnded)?;
    }
    Ok(session)
}

fn note(tables: &mut Tables<'_>, session: &Session, view: &View, action: Action) -> Result<(), StoreError> {
    let actor = Actor::Person(Person { user: session.user, email: view.operator.clone() });
    audit::write(tables, view.account, &actor, Change::new(action, "", view.reason.as_str())).map(drop)
}

/// Returns the timer that ends a view. It names the session by the first half of its key.
fn timer_of(session: &SessionKey, view: &View) -> Timer {
    let half = session.first_chunk::<16>().copied().unwrap_or_default();
    Timer::new(view.until, TimerKind::ViewEnd, view.account, Ulid(half))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;
    use crate::domain::account::QuotaLimits;
    use crate::domain::device::Devices;
    use crate::domain::session::{Client, SessionToken};
    use crate::domain::sign_in_log::SignInLog;
    use crate::domain::user::Role;
    use crate::store::op::session::{BeginSession, EndSessions, SessionSelection};
    use crate::store::op::user::{CreateUser, DeleteUser, UpdateUser};
    use crate::store::row::audit::AuditRow;
    use crate::store::testing::TestStore;

    /// A store with a signed-in operator and a second account.
    struct Scene {
        test: TestStore,
        own: AccountId,
        other: AccountId,
        user: UserId,
        key: SessionKey,
    }

    impl Scene {
        fn new() -> Self {
            let test = TestStore::new();
            let (own, other) = (test.account(QuotaLimits::default()), test.account(QuotaLimits::default()));
            let user = User {
                id: UserId(Ulid([1; 16])),
                email: "ann@example.com".parse().unwrap(),
                role: Role::Viewer,
                password_hash: "$argon2id$x".to_owned(),
                totp: None,
                created_at: Timestamp::ZERO,
                last_sign_in_at: None,
                disabled: false,
                devices: Devices::default(),
                is_operator: true,
                sign_ins: SignInLog::default(),
            };
            let id = test.done(CreateUser { account: own, user }).id;
            let key = SessionToken::generate(&SeededEntropy::new(3)).key();
            let session = Session::begin(own, id, Stage::SignedIn, Client::default(), test.now());
            let password_hash = "$argon2id$x".to_owned();
            test.done(BeginSession { key, session, password_hash, totp_step: None, replaces: None, device: None });
            Self { test, own, other, user: id, key }
        }

        fn begin(&self) -> Result<Timestamp, OpError<BeginViewRefusal>> {
            let reason = "a question".parse().unwrap();
            self.test.commit(BeginView { session: self.key, account: self.other, reason })
        }

        /// Returns the actions in the log of the other account.
        fn actions(&self) -> Vec<Action> {
            let lines = self.test.snapshot().rows::<AuditRow>(self.other.as_bytes(), 9).unwrap();
            assert!(lines.iter().all(|(_, line)| line.actor.to_string() == "ann@example.com"));
            lines.into_iter().map(|(_, line)| line.change.action).collect()
        }

        fn is_over(&self) -> bool {
            let session: Option<Session> = self.test.snapshot().row(&self.key).unwrap();
            let has_view = session.is_some_and(|session| session.view.is_some());
            !has_view
                && self.test.timers(TimerKind::ViewEnd).is_empty()
                && self.actions() == [Action::ViewBegun, Action::ViewEnded]
        }
    }

    #[test]
    fn a_view_ends_by_time_and_leaves_two_lines() {
        let scene = Scene::new();
        assert!(scene.begin().is_ok());
        let [timer] = scene.test.timers(TimerKind::ViewEnd)[..] else { panic!("one timer") };
        assert_eq!(timer.due, scene.test.now() + View::LASTS);
        assert_eq!(scene.actions(), [Action::ViewBegun]);
        scene.test.done(ExpireView { timer });
        assert!(scene.is_over());
    }

    #[test]
    fn a_view_ends_with_the_operator_role_the_session_or_the_user() {
        let dismissed = |scene: &Scene| {
            let op = UpdateUser { operator: Some(false), ..UpdateUser::of(scene.own, scene.user) };
            drop(scene.test.done(op));
        };
        let disabled = |scene: &Scene| {
            let op = UpdateUser { disabled: Some(true), ..UpdateUser::of(scene.own, scene.user) };
            drop(scene.test.done(op));
        };
        let signed_out = |scene: &Scene| {
            scene.test.done(EndSessions {
                account: scene.own,
                user: scene.user,
                which: SessionSelection::One(scene.key),
            });
        };
        let removed = |scene: &Scene| {
            drop(scene.test.done(DeleteUser { account: scene.own, user: scene.user, keeps_owner: false }));
        };
        let left = |scene: &Scene| scene.test.done(EndView { session: scene.key });
        let ends: [&dyn Fn(&Scene); 5] = [&dismissed, &disabled, &signed_out, &removed, &left];
        for end in ends {
            let scene = Scene::new();
            assert!(scene.begin().is_ok());
            end(&scene);
            assert!(scene.is_over());
        }
    }

    #[test]
    fn only_operators_may_view_an_account_and_it_must_exist() {
        let scene = Scene::new();
        let reason: ViewReason = "a question".parse().unwrap();
        let unknown = BeginView { session: scene.key, account: AccountId::default(), reason };
        assert!(matches!(scene.test.commit(unknown), Err(OpError::Refused(BeginViewRefusal::NoSuchAccount))));
        scene.test.done(UpdateUser { operator: Some(false), ..UpdateUser::of(scene.own, scene.user) });
        assert!(matches!(scene.begin(), Err(OpError::Refused(BeginViewRefusal::NotOperator))));
        assert!(scene.actions().is_empty());
    }

    #[test]
    fn a_new_view_replaces_the_first() {
        let scene = Scene::new();
        assert!(scene.begin().is_ok());
        assert!(scene.begin().is_ok());
        assert_eq!(scene.actions(), [Action::ViewBegun, Action::ViewEnded, Action::ViewBegun]);
        assert_eq!(scene.test.timers(TimerKind::ViewEnd).len(), 1);
    }
}
