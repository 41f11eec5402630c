//! Our mailboxes: authenticated return paths, and four names (contract 6).

use super::Receiver;
use crate::base::id::{AccountId, Ulid};
use crate::domain::hostname::DomainName;
use crate::domain::return_path::{self, InvalidReturnPath, Parsed, ReturnPath};
use crate::domain::token_key::TokenKeys;
use crate::engine::accounts::accounts_of_hint;
use crate::engine::dmarc::MAILBOX as DMARC_MAILBOX;
use crate::mail::feedback::FEEDBACK_MAILBOX;
use crate::store::error::StoreError;
use crate::store::read::Read;
use crate::store::row::message::MessageRow;
use crate::store::schema::{self, Table};
use crate::store::snapshot::Snapshot;

/// Mailboxes required by RFC 2142, which people read elsewhere.
const PEOPLES_MAILBOXES: [&str; 2] = ["postmaster", "abuse"];

/// One of our mailboxes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mailbox {
    /// The return path of a message.
    ReturnPath(ReturnPath),
    /// Receives complaints from mailbox providers.
    Feedback,
    /// Receives DMARC reports.
    Dmarc,
    /// A mailbox for people.
    People,
}

/// Reason why an address is not one of our mailboxes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MailboxRefusal {
    /// The host is not ours, so the mail would be relayed.
    Host,
    /// There is no such mailbox; a forged token looks the same.
    Mailbox,
    /// An expired return path.
    Expired,
}

impl MailboxRefusal {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Host, Self::Mailbox, Self::Expired];

    /// Returns the name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Mailbox => "mailbox",
            Self::Expired => "expired",
        }
    }
}

/// Owner of the messages whose return paths are at a host.
enum Host {
    Everyones,
    Of(AccountId),
}

impl Host {
    fn is_for(&self, account: AccountId) -> bool {
        match self {
            Self::Everyones => true,
            Self::Of(owner) => *owner == account,
        }
    }
}

impl Receiver {
    /// Returns the mailbox of an address, and counts a foreign one. The bare `<Postmaster>` of RFC 5321 4.5.1 has an
    /// empty domain.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn mailbox(&self, local: &str, domain: &str) -> Result<Result<Mailbox, MailboxRefusal>, StoreError> {
        let found = self.look_up(local, domain)?;
        if let Err(why) = found {
            self.engine.meters.came_back.count_refused(why);
        }
        Ok(found)
    }

    fn look_up(&self, local: &str, domain: &str) -> Result<Result<Mailbox, MailboxRefusal>, StoreError> {
        let is_peoples = PEOPLES_MAILBOXES.iter().any(|name| local.eq_ignore_ascii_case(name));
        if domain.is_empty() && is_peoples {
            return Ok(Ok(Mailbox::People));
        }
        let Ok(name) = domain.parse::<DomainName>() else { return Ok(Err(MailboxRefusal::Host)) };
        let snapshot = self.engine.store.snapshot()?;
        let host = self.host(&snapshot, &name)?;
        if let Ok(token) = return_path::decode(local) {
            return self.return_path(&snapshot, &token, &name, host);
        }
        Ok(match host {
            None => Err(MailboxRefusal::Host),
            Some(_) if is_peoples => Ok(Mailbox::People),
            Some(_) if local.eq_ignore_ascii_case(FEEDBACK_MAILBOX) => Ok(Mailbox::Feedback),
            Some(_) if local.eq_ignore_ascii_case(DMARC_MAILBOX) => Ok(Mailbox::Dmarc),
            Some(_) => Err(MailboxRefusal::Mailbox),
        })
    }

    /// Accepts a return path at each of our hosts. At the host that it was created for, it is accepted even if the
    /// domain has lapsed since.
    fn return_path(
        &self,
        read: &Snapshot,
        token: &Parsed,
        name: &DomainName,
        host: Option<Host>,
    ) -> Result<Result<Mailbox, MailboxRefusal>, StoreError> {
        let stranger = if host.is_some() { MailboxRefusal::Mailbox } else { MailboxRefusal::Host };
        let path = match self.verify(read, token, &self.engine.settings.return_path_keys)? {
            Ok(path) => path,
            Err(InvalidReturnPath::Expired) if host.is_some() => return Ok(Err(MailboxRefusal::Expired)),
            Err(InvalidReturnPath::Expired | InvalidReturnPath::Malformed | InvalidReturnPath::Forged) => {
                return Ok(Err(stranger));
            }
        };
        let is_at_home = host.is_some_and(|host| host.is_for(path.account));
        let row: Option<MessageRow> = read.row(&schema::message(path.account, path.message))?;
        let was_given = |row: &MessageRow| row.return_path.rsplit_once('@').is_some_and(|(_, at)| at == name.as_str());
        let is_ours = is_at_home || row.as_ref().is_some_and(was_given);
        Ok(if is_ours { Ok(Mailbox::ReturnPath(path)) } else { Err(stranger) })
    }

    /// Checks a token made with `keys` against every account that matches its hint, and checks that its message exists.
    pub(super) fn verify(
        &self,
        read: &Snapshot,
        token: &Parsed,
        keys: &TokenKeys,
    ) -> Result<Result<ReturnPath, InvalidReturnPath>, StoreError> {
        let now = self.engine.clock.time().expiry;
        for account in accounts_of_hint(read, token.account_hint)? {
            match token.verify(account, keys, now) {
                Ok(path) => {
                    let is_there = read.get(Table::Messages, &schema::message(account, path.message))?.is_some();
                    return Ok(if is_there { Ok(path) } else { Err(InvalidReturnPath::Forged) });
                }
                Err(InvalidReturnPath::Expired) => return Ok(Err(InvalidReturnPath::Expired)),
                Err(InvalidReturnPath::Malformed | InvalidReturnPath::Forged) => {}
            }
        }
        Ok(Err(InvalidReturnPath::Forged))
    }

    /// Returns the owner of the host `name` if it is ours: the bounce host, or `rp.<domain>` of a verified domain.
    fn host(&self, read: &impl Read, name: &DomainName) -> Result<Option<Host>, StoreError> {
        if name.as_str() == self.engine.settings.bounce_host {
            return Ok(Some(Host::Everyones));
        }
        let Some(sending) = name.as_str().strip_prefix("rp.") else { return Ok(None) };
        let owner = read.get(Table::DomainOwners, sending.as_bytes())?;
        let account = owner.as_deref().and_then(|key| key.first_chunk::<16>());
        Ok(account.map(|account| Host::Of(AccountId(Ulid(*account)))))
    }
}
