//! Evidence about refusals by 421, and requested limits, from MAIL on. Such an answer may be about the site, or about
//! one account: its domain, or the mail that it sends. It counts for the site unless the site has lately accepted mail
//! of an account that it has not refused since.
//!
//! A site that was backed off because of one account alone is probed at once with the next message of another.

use std::time::Duration;

use crate::base::id::AccountId;

/// Time for which an accepted message shows that the site serves its account, and a refused one that it does not.
const SERVES_FOR: Duration = Duration::from_secs(600);

/// The evidence of one destination. Times are the machine's own.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    /// The last two accounts whose messages the site answered and has not refused since, the newest first.
    served: [Option<(AccountId, Duration)>; 2],
    /// The last account that was refused, and not served since.
    refused: Option<(AccountId, Duration)>,
    /// The account that alone caused the backoff.
    blamed: Option<AccountId>,
}

impl Evidence {
    /// Records that the site answered a message of `account`.
    pub(super) fn served(&mut self, account: AccountId, now: Duration) {
        let other = self.served.into_iter().flatten().find(|(other, _)| *other != account);
        self.served = [Some((account, now)), other];
        self.refused = self.refused.filter(|(other, _)| *other != account);
        self.blamed = None;
    }

    /// Records that the site refused a message of `account`. Returns whether this counts for the site.
    pub(super) fn refused(&mut self, account: AccountId, now: Duration) -> bool {
        self.served = self.served.map(|served| served.filter(|(other, _)| *other != account));
        let before = self.refused.replace((account, now)).filter(|(_, at)| now < *at + SERVES_FOR);
        let other = before.map(|(other, _)| other).filter(|other| *other != account);
        let counts = !self.serves_others(account, now);
        self.blamed = (counts && other.is_none()).then_some(account);
        counts
    }

    /// Returns whether the site answered a message of another account lately.
    pub(super) fn serves_others(&self, account: AccountId, now: Duration) -> bool {
        self.served.iter().flatten().any(|(other, at)| *other != account && now < *at + SERVES_FOR)
    }

    /// Records a failure, or a request to back off, that concerns all accounts.
    pub(super) const fn concerns_all(&mut self) {
        self.blamed = None;
    }

    /// Returns the account that alone caused the backoff.
    pub(super) const fn blamed(&self) -> Option<AccountId> {
        self.blamed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    const fn account(byte: u8) -> AccountId {
        AccountId(Ulid([byte; 16]))
    }

    #[test]
    fn refusals_of_one_account_do_not_count_while_the_site_serves_another() {
        let (mut evidence, now) = (Evidence::default(), Duration::from_secs(1000));
        assert!(evidence.refused(account(1), now), "no other account is known");
        assert_eq!(evidence.blamed(), Some(account(1)));
        evidence.served(account(2), now);
        assert!(!evidence.refused(account(1), now) && !evidence.refused(account(1), now));
        assert!(evidence.refused(account(1), now + SERVES_FOR), "the other was served too long ago");
    }

    #[test]
    fn refusals_of_two_accounts_count_until_one_of_them_is_served() {
        let (mut evidence, now) = (Evidence::default(), Duration::from_secs(1000));
        evidence.served(account(1), now);
        evidence.served(account(2), now);
        assert!(!evidence.refused(account(1), now));
        assert!(evidence.refused(account(2), now) && evidence.refused(account(1), now));
        assert_eq!(evidence.blamed(), None);
        evidence.served(account(2), now);
        assert!(!evidence.refused(account(1), now));
    }

    #[test]
    fn refusals_of_two_accounts_do_not_count_while_the_site_serves_a_third() {
        let (mut evidence, now) = (Evidence::default(), Duration::from_secs(1000));
        evidence.served(account(3), now);
        assert!(!evidence.refused(account(1), now) && !evidence.refused(account(2), now));
        assert!(evidence.refused(account(3), now), "it refuses the third too");
        let later = now + SERVES_FOR;
        assert!(evidence.refused(account(1), later));
        assert_eq!(evidence.blamed(), Some(account(1)), "the other refusals are too old");
    }
}
