//! RCPT: checks whether the API would accept a message to this recipient, and adds the recipient to the transaction.

use std::collections::HashSet;

use super::{SmtpRefusal, SmtpSender, SmtpSession, SubmissionStage, failed};
use crate::domain::account::Account;
use crate::domain::address::Address;
use crate::engine::Caller;
use crate::machine::quota::Quota;
use crate::smtp::server::Answer;
use crate::store::error::StoreError;
use crate::store::op::admission::StorageRoom;
use crate::store::op::suppression;
use crate::store::read::Read as _;
use crate::store::schema;

/// Maximum total size of all copies of one message, in bytes.
pub(super) const COPIES_BYTES_MAX: u64 = 200 << 20;

/// The transaction between MAIL and the end of its message.
pub(super) struct Transaction {
    pub(super) sender: SmtpSender,
    /// Each mailbox once, in the order of RCPT.
    pub(super) recipients: Vec<Address>,
    match_keys: HashSet<String>,
}

impl Transaction {
    pub(super) fn new(sender: SmtpSender) -> Self {
        Self { sender, recipients: Vec::new(), match_keys: HashSet::new() }
    }
}

impl SmtpSession {
    /// Adds a recipient, given as the path without its angle brackets. A repeated mailbox is accepted, and gets one
    /// message.
    pub fn recipient(&mut self, path: &str) -> Answer {
        let answer = match self.add_recipient(path) {
            Ok(()) => Answer::new(250, "2.1.5", "OK"),
            Err(answer) => answer,
        };
        if !answer.is_positive() {
            let mail_from = self.transaction.as_ref().map(|transaction| transaction.sender.mail_from.clone());
            let mail_from = mail_from.unwrap_or_default();
            let refusal = SmtpRefusal { mail_from, to: path.to_owned(), ..SmtpRefusal::default() };
            self.refused(SubmissionStage::Rcpt, &answer, refusal);
        }
        answer
    }

    fn add_recipient(&mut self, path: &str) -> Result<(), Answer> {
        let (Some(login), Some(transaction)) = (&self.login, &mut self.transaction) else {
            return Err(Answer::new(503, "5.5.1", "MAIL comes before RCPT"));
        };
        let address: Address = path
            .parse()
            .map_err(|error| Answer::new(553, "5.1.3", format!("The recipient <{path}> is not valid: it {error}")))?;
        let (engine, caller) = (&self.engine, &login.caller);
        check_key(engine, caller)?;
        let match_key = address.match_key();
        if !transaction.match_keys.contains(&match_key) {
            let copies = transaction.recipients.len() + 1;
            check_size(&transaction.sender, copies)?;
            check_suppression(engine, caller, &address, &match_key)?;
            check_quota(engine, caller, copies)?;
        }
        engine.admit_request(caller).map_err(|seconds| {
            Answer::new(450, "4.7.1", format!("Too many messages with this key: try again in {seconds} seconds"))
        })?;
        if transaction.match_keys.insert(match_key) {
            transaction.recipients.push(address);
        }
        Ok(())
    }
}

/// Checks the total size of all copies, which bounds memory and disk use. Remaining recipients can be sent in another
/// transaction (RFC 5321 4.5.3.1.10).
fn check_size(sender: &SmtpSender, copies: usize) -> Result<(), Answer> {
    let copies = u64::try_from(copies).unwrap_or(u64::MAX);
    if sender.size.unwrap_or(0).saturating_mul(copies) > COPIES_BYTES_MAX {
        let text = "Too many recipients for a message of this size: the limit is 200 MiB for all copies together";
        return Err(Answer::new(452, "4.5.3", text));
    }
    Ok(())
}

/// Refuses mail with a key that was revoked or has expired since MAIL, and mail of a suspended account.
pub(super) fn check_key(engine: &super::Engine, caller: &Caller) -> Result<(), Answer> {
    if let Some(key) = &caller.key {
        let owner = engine.key_owner(&key.hash).map_err(|error| failed(&error))?;
        let key = owner.and_then(|owner| owner.key).filter(|key| key.is_live(engine.clock.now()));
        key.ok_or_else(Answer::key_has_ended)?;
    }
    check_suspension(engine, caller)
}

/// Refuses mail of a suspended account.
fn check_suspension(engine: &super::Engine, caller: &Caller) -> Result<(), Answer> {
    match engine.suspension_of(caller).map_err(|error| failed(&error))? {
        Some(suspension) => {
            let reason = suspension.reason.as_str();
            let text = format!("The account is suspended ({reason}): ask the operator of this service");
            Err(Answer::new(550, "5.7.1", text))
        }
        None => Ok(()),
    }
}

pub(super) fn check_suppression(
    engine: &super::Engine,
    caller: &Caller,
    address: &Address,
    match_key: &str,
) -> Result<(), Answer> {
    let found = engine.store.snapshot().and_then(|snapshot| {
        suppression::find(&snapshot, caller.account, &schema::named(caller.account, match_key.as_bytes()))
    });
    match found.map_err(|error| failed(&error))? {
        None => Ok(()),
        Some(row) => Err(suppressed(address, &format!("{} since {}", row.reason.as_str(), row.created_at))),
    }
}

/// Returns the answer to a suppressed recipient.
pub(super) fn suppressed(address: &Address, why: &str) -> Answer {
    let text = format!("<{address}> is suppressed ({why}): remove the suppression to send to it again");
    Answer::new(550, "5.7.1", text)
}

/// Checks that the quota and the storage allow this number of additional messages.
fn check_quota(engine: &super::Engine, caller: &Caller, messages: usize) -> Result<(), Answer> {
    let read = || -> Result<(Option<Account>, Quota, bool), StoreError> {
        let snapshot = engine.store.snapshot()?;
        let key = caller.account.as_bytes();
        let storage = StorageRoom { max: engine.settings.stored_bytes_per_account, wanted: 1 };
        let has_storage = storage.has_room(&snapshot, caller.account)?;
        Ok((snapshot.row(key)?, snapshot.row::<Quota>(key)?.unwrap_or_default(), has_storage))
    };
    let (account, quota, has_storage) = read().map_err(|error| failed(&error))?;
    let limits = account.map_or(engine.settings.quota, |account| account.quota);
    let messages = u64::try_from(messages).unwrap_or(u64::MAX);
    quota.check(messages, limits, engine.clock.now()).map_err(|exhausted| {
        engine.quota_refused(caller.account, &exhausted);
        quota_exhausted(exhausted)
    })?;
    if has_storage { Ok(()) } else { Err(storage_full()) }
}

/// Returns the answer if the quota is used up.
pub(super) fn quota_exhausted(exhausted: crate::machine::quota::QuotaExhausted) -> Answer {
    let (window, seconds) = (exhausted.window.as_str(), exhausted.retry_after_secs);
    let text = format!("The account's quota of this {window} is used up: try again in {seconds} seconds");
    Answer::new(452, "4.7.1", text)
}

/// Returns the answer if the account's storage is full.
pub(super) fn storage_full() -> Answer {
    let text = "The account's storage for messages is full: shorten content_retention_days, or ask the operator";
    Answer::new(452, "4.2.2", text)
}
