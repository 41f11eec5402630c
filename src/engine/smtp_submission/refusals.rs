//! The last refusals of SMTP submission, by account, in memory. A restart starts empty.
//!
//! An account has at most [`OF_ACCOUNT_MAX`] refusals, all accounts together [`IN_ALL_MAX`]. The oldest are removed
//! first. Texts are truncated to [`TEXT_BYTES_MAX`], so the list takes at most 16 MiB.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::SubmissionStage;
use crate::base::id::{AccountId, KeyId};
use crate::base::time::Timestamp;
use crate::smtp::server::Answer;

/// Maximum number of refusals kept for one account.
const OF_ACCOUNT_MAX: usize = 100;
/// Maximum number of refusals kept for all accounts.
const IN_ALL_MAX: usize = 10_000;
/// Maximum size of a kept text, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// One refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmtpRefusal {
    /// Time of the answer.
    pub at: Timestamp,
    /// The stage of the session.
    pub stage: SubmissionStage,
    /// The answer with its codes, lines separated by LF.
    pub reply: String,
    /// The presented key.
    pub key: KeyId,
    /// The prefix of the presented key's secret.
    pub key_prefix: String,
    /// The address that the client connected from.
    pub client_address: String,
    /// The name given in EHLO or HELO.
    pub client_name: String,
    /// The path of MAIL FROM; empty without one.
    pub mail_from: String,
    /// The path of RCPT TO; empty if the refusal does not concern a single recipient.
    pub to: String,
    /// The From header; empty if the message was not read.
    pub from: String,
}

/// The refusals of all accounts.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    by_account: HashMap<AccountId, VecDeque<(u64, SmtpRefusal)>>,
    /// The account of each refusal, oldest first.
    order: BTreeMap<u64, AccountId>,
    next: u64,
}

impl Refusals {
    pub(super) fn add(&self, account: AccountId, refusal: SmtpRefusal) {
        let refusal = cut(refusal);
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = lists.next;
        lists.next += 1;
        lists.order.insert(number, account);
        let list = lists.by_account.entry(account).or_default();
        list.push_back((number, refusal));
        let surplus = if list.len() > OF_ACCOUNT_MAX { list.pop_front().map(|(number, _)| number) } else { None };
        if let Some(number) = surplus {
            lists.order.remove(&number);
        }
        if lists.order.len() > IN_ALL_MAX {
            lists.remove_oldest();
        }
    }

    /// Removes the refusals of an account.
    pub(in crate::engine) fn forget(&self, account: AccountId) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.by_account.remove(&account).unwrap_or_default();
        for (number, _) in list {
            lists.order.remove(&number);
        }
    }

    /// Returns the refusals of an account, newest first; only those of `key` if it is given.
    pub fn of(&self, account: AccountId, key: Option<KeyId>) -> Vec<SmtpRefusal> {
        let lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.by_account.get(&account).into_iter().flatten().rev().map(|(_, refusal)| refusal);
        list.filter(|refusal| key.is_none_or(|key| refusal.key == key)).cloned().collect()
    }
}

impl Lists {
    fn remove_oldest(&mut self) {
        let Some((_, account)) = self.order.pop_first() else { return };
        if let Some(list) = self.by_account.get_mut(&account) {
            list.pop_front();
            if list.is_empty() {
                self.by_account.remove(&account);
            }
        }
    }
}

/// Returns the answer as sent, lines separated by LF.
pub(super) fn text_of(answer: &Answer) -> String {
    let mut bytes = Vec::new();
    answer.write_to(&mut bytes);
    String::from_utf8_lossy(&bytes).trim_end().replace("\r\n", "\n")
}

fn cut(mut refusal: SmtpRefusal) -> SmtpRefusal {
    let SmtpRefusal { reply, key_prefix, client_address, client_name, mail_from, to, from, .. } = &mut refusal;
    for text in [reply, key_prefix, client_address, client_name, mail_from, to, from] {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        text.shrink_to_fit();
    }
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    fn account(number: u8) -> AccountId {
        AccountId(Ulid([number; 16]))
    }

    fn refusal(text: &str) -> SmtpRefusal {
        SmtpRefusal { reply: text.to_owned(), ..SmtpRefusal::default() }
    }

    #[test]
    fn an_account_keeps_its_last_hundred_refusals() {
        let refusals = Refusals::default();
        refusals.add(account(2), refusal("other"));
        for number in 0..150 {
            refusals.add(account(1), refusal(&number.to_string()));
        }
        let list = refusals.of(account(1), None);
        assert_eq!((list.len(), &*list[0].reply, &*list[99].reply), (100, "149", "50"));
        assert_eq!(refusals.of(account(2), None), [refusal("other")]);
        assert_eq!(refusals.0.lock().unwrap().order.len(), 101);
    }

    #[test]
    fn the_oldest_refusals_of_all_accounts_are_removed_first() {
        let refusals = Refusals::default();
        for number in 0..=100_u8 {
            (0..100).for_each(|_| refusals.add(account(number), refusal("x")));
        }
        assert!(refusals.of(account(0), None).is_empty());
        assert!((1..=100).all(|number| refusals.of(account(number), None).len() == 100));
        let lists = refusals.0.lock().unwrap();
        assert_eq!((lists.order.len(), lists.by_account.len()), (IN_ALL_MAX, 100));
    }

    #[test]
    fn refusals_can_be_filtered_by_key_and_long_texts_are_truncated_at_a_character() {
        let refusals = Refusals::default();
        let key = KeyId(Ulid([9; 16]));
        refusals.add(account(1), SmtpRefusal { key, client_name: "\u{e4}".repeat(300), ..SmtpRefusal::default() });
        refusals.add(account(1), SmtpRefusal { from: "y".repeat(257), ..SmtpRefusal::default() });
        let own = refusals.of(account(1), Some(key));
        assert_eq!((own.len(), own[0].client_name.len()), (1, 256));
        assert_eq!(refusals.of(account(1), None)[0].from.len(), 256);
    }
}
