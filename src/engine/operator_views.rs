//! An operator's view of another account: read-only, for half an hour, with a stated reason.

use super::Engine;
use super::sign_in::Visitor;
use crate::base::id::AccountId;
use crate::base::time::Timestamp;
use crate::domain::account::ViewReason;
use crate::domain::session::{SessionKey, View};
use crate::store::error::{OpError, StoreError};
use crate::store::op::view::{BeginView, BeginViewRefusal, EndView};

impl Visitor {
    /// Returns the view of another account, until it ends.
    pub fn view(&self, now: Timestamp) -> Option<&View> {
        self.session.view.as_ref().filter(|view| self.user.is_operator && view.is_live(now))
    }

    /// Returns the visible account: the operator's own, unless a view is active.
    pub fn sees(&self, now: Timestamp) -> AccountId {
        self.view(now).map_or(self.session.account, |view| view.account)
    }
}

impl Engine {
    /// Starts a view of an account for a signed-in operator.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn begin_view(
        &self,
        session: SessionKey,
        account: AccountId,
        reason: ViewReason,
    ) -> Result<Timestamp, OpError<BeginViewRefusal>> {
        self.store.commit(BeginView { session, account, reason }).await
    }

    /// Ends the view of a session, if it has one.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn end_view(&self, session: SessionKey) -> Result<(), StoreError> {
        self.store.commit(EndView { session }).await.map_err(|stop| match stop {
            OpError::Failed(error) => error,
            OpError::Refused(never) => match never {},
        })
    }
}
