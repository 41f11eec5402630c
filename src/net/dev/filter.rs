//! Filter over captured messages (contract 12.2): by recipient, From address, part of the subject, or account. Case is
//! ignored.

use super::capture::CapturedMail;
use crate::base::id::AccountId;
use crate::domain::address::Address;

/// A filter. Absent members match every message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MailFilter {
    /// A recipient, in matching form.
    pub to: Option<String>,
    /// The sender of the From header, in matching form.
    pub from: Option<String>,
    /// A part of the subject, in lower case.
    pub subject: Option<String>,
    /// The sending account.
    pub account: Option<AccountId>,
}

impl MailFilter {
    /// Returns whether `mail` matches.
    pub(super) fn takes(&self, mail: &CapturedMail) -> bool {
        let subject = || mail.subject.as_deref().unwrap_or_default().to_lowercase();
        self.account.is_none_or(|account| mail.account_id == Some(account))
            && self.to.as_deref().is_none_or(|to| mail.rcpt_to.split(", ").any(|rcpt| is(rcpt, to)))
            && self.from.as_deref().is_none_or(|from| mail.from.as_deref().is_some_and(|own| is(own, from)))
            && self.subject.as_deref().is_none_or(|part| subject().contains(part))
    }
}

fn is(text: &str, match_key: &str) -> bool {
    text.parse::<Address>().is_ok_and(|address| address.match_key() == match_key)
}
