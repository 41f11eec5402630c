//! Links by which recipients unsubscribe with one click (RFC 8058), where an account has us host them. A link names its
//! message by a token that nobody else can make, and works for as long as the message's row is there.

use super::Engine;
use super::accounts::accounts_of_hint;
use super::settings::Settings;
use super::waiting::Leased;
use crate::base::id::{AccountId, MessageId};
use crate::domain::return_path::{self, ReturnPath};
use crate::domain::unsubscribe_url::UnsubscribeUrl;
use crate::store::error::{Stop, StoreError};
use crate::store::op::NotThere;
use crate::store::op::unsubscribe::Unsubscribe;
use crate::store::read::Read;
use crate::store::row::message::MessageRow;
use crate::store::schema;

/// Where the links stand under the public address.
pub const LINKS: &str = "/unsubscribe/";

/// Subject of an unsubscribe link.
#[derive(Clone, Debug)]
pub struct Link {
    path: ReturnPath,
    /// The message that carried it.
    pub message: MessageRow,
}

impl Settings {
    /// The link of a message; none where the public address is not known yet.
    pub(super) fn unsubscribe_link(&self, account: AccountId, message: MessageId) -> Option<UnsubscribeUrl> {
        let token = return_path::token(account, message, &self.unsubscribe_keys);
        let public = self.public_url.get()?;
        format!("{}{LINKS}{token}", public.trim_end_matches('/')).parse().ok()
    }
}

impl Engine {
    /// Returns the subject of the link with this token; `None` if it is not one of ours.
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

    /// Does what the link is for: the address gets no more mail of the account's.
    ///
    /// # Errors
    /// [`NotThere`], or the store's failure.
    pub async fn unsubscribe(&self, link: &Link) -> Result<(), Stop<NotThere>> {
        let ReturnPath { account, message } = link.path;
        let address = link.message.to.clone();
        let Leased { messages: waiting, leases, .. } = self.lease_waiting(account, [&address])?;
        self.commit_leased(Unsubscribe { account, message, waiting }, leases).await?;
        Ok(self.end_waiting(account, &[address]).await?)
    }
}
