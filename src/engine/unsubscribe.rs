//! One-click unsubscribe links (RFC 8058), for accounts whose links are hosted here. A link identifies its message by
//! an authenticated token, and works as long as the message's row exists.

use super::Engine;
use super::accounts::accounts_of_hint;
use super::settings::Settings;
use super::suppressed_messages::Leased;
use crate::base::id::{AccountId, MessageId};
use crate::domain::return_path::{self, ReturnPath};
use crate::domain::unsubscribe_url::UnsubscribeUrl;
use crate::store::error::{OpError, StoreError};
use crate::store::op::NotFound;
use crate::store::op::unsubscribe::Unsubscribe;
use crate::store::read::Read;
use crate::store::row::message::MessageRow;
use crate::store::schema;

/// Path of the links under the public URL.
pub const LINKS: &str = "/unsubscribe/";

/// Message of an unsubscribe link.
#[derive(Clone, Debug)]
pub struct Link {
    path: ReturnPath,
    /// The message that carried the link.
    pub message: MessageRow,
}

impl Settings {
    /// Returns the link of a message; `None` if the public URL is not known yet.
    pub(super) fn unsubscribe_link(&self, account: AccountId, message: MessageId) -> Option<UnsubscribeUrl> {
        let token = return_path::token(account, message, &self.unsubscribe_keys);
        let public = self.public_url.get()?;
        format!("{}{LINKS}{token}", public.trim_end_matches('/')).parse().ok()
    }
}

impl Engine {
    /// Returns the message of the link with this token; `None` if the token is not valid here.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn unsubscribe_link(&self, token: &str) -> Result<Option<Link>, StoreError> {
        let Ok(token) = return_path::decode_token(token) else { return Ok(None) };
        let snapshot = self.store.snapshot()?;
        for account in accounts_of_hint(&snapshot, token.account_hint)? {
            let Some(path) = token.path(account, &self.settings.unsubscribe_keys) else { continue };
            let row: Option<MessageRow> = snapshot.row(&schema::message(account, path.message))?;
            return Ok(row.map(|message| Link { path, message }));
        }
        Ok(None)
    }

    /// Unsubscribes the address from the account's mail.
    ///
    /// # Errors
    /// [`NotFound`], or the store's failure.
    pub async fn unsubscribe(&self, link: &Link) -> Result<(), OpError<NotFound>> {
        let ReturnPath { account, message } = link.path;
        let address = link.message.to.clone();
        let Leased { messages: waiting, leases, .. } = self.lease_waiting(account, [&address])?;
        self.commit_leased(Unsubscribe { account, message, waiting }, leases).await?;
        Ok(self.end_waiting(account, &[address]).await?)
    }
}
