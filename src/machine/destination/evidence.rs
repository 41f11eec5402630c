//! Evidence about refusals from MAIL on. Such an answer may be about the site, or about one account: its domain, or
//! the mail that it sends. It concerns the site unless the site has lately accepted mail of an account that it has not
//! refused since.

use std::time::Duration;

use crate::base::id::AccountId;

/// Time for which an accepted message shows that the site serves its account, and a refused one that it does not.
const SERVES_FOR: Duration = Duration::from_secs(600);

/// The evidence of one destination about one kind of refusal. Times are the machine's own.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    /// The last three accounts whose messages the site answered and has not refused since, the newest first. With two,
    /// mail of two accounts that are then refused would displace the third one, which the site still serves.
    served: [Option<(AccountId, Duration)>; 3],
    /// The last account that was refused, and not served since.
    refused: Option<(AccountId, Duration)>,
}

/// The accounts that a refusal concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concerned {
    /// Only the refused account: the site serves another account.
    Account,
    /// The refused account, and perhaps all: the site has lately neither served nor refused another account.
    Unknown,
    /// All accounts: the site refused two of them, and serves none.
    All,
}

impl Evidence {
    /// Records that the site answered a message of `account`.
    pub(super) fn served(&mut self, account: AccountId, now: Duration) {
        let mut others = self.served.into_iter().flatten().filter(|(other, _)| *other != account);
        self.served = [Some((account, now)), others.next(), others.next()];
        self.refused = self.refused.filter(|(other, _)| *other != account);
    }

    /// Records that the site refused a message of `account`.
    pub(super) fn refused(&mut self, account: AccountId, now: Duration) -> Concerned {
        self.served = self.served.map(|served| served.filter(|(other, _)| *other != account));
        let before = self.refused.replace((account, now)).filter(|(_, at)| now < *at + SERVES_FOR);
        if self.serves_others(account, now) {
            Concerned::Account
        } else if before.is_some_and(|(other, _)| other != account) {
            Concerned::All
        } else {
            Concerned::Unknown
        }
    }

    /// Returns whether the site answered a message of another account lately.
    pub(super) fn serves_others(&self, account: AccountId, now: Duration) -> bool {
        self.served.iter().flatten().any(|(other, at)| *other != account && now < *at + SERVES_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::Concerned::{Account, All, Unknown};
    use super::*;
    use crate::base::id::Ulid;

    const fn account(byte: u8) -> AccountId {
        AccountId(Ulid([byte; 16]))
    }

    #[test]
    fn refusals_of_one_account_concern_it_alone_while_the_site_serves_another() {
        let (mut evidence, now) = (Evidence::default(), Duration::from_secs(1000));
        assert_eq!(evidence.refused(account(1), now), Unknown);
        evidence.served(account(2), now);
        assert_eq!([evidence.refused(account(1), now), evidence.refused(account(1), now)], [Account, Account]);
        assert_eq!(evidence.refused(account(1), now + SERVES_FOR), Unknown, "the other was served too long ago");
    }

    #[test]
    fn refusals_of_two_accounts_concern_all_until_one_of_them_is_served() {
        let (mut evidence, now) = (Evidence::default(), Duration::from_secs(1000));
        evidence.served(account(1), now);
        evidence.served(account(2), now);
        assert_eq!(evidence.refused(account(1), now), Account);
        assert_eq!([evidence.refused(account(2), now), evidence.refused(account(1), now)], [All, All]);
        evidence.served(account(2), now);
        assert_eq!(evidence.refused(account(1), now), Account);
    }

    #[test]
    fn refusals_of_two_accounts_do_not_concern_a_third_that_the_site_serves() {
        let (mut evidence, now) = (Evidence::default(), Duration::from_secs(1000));
        [3, 1, 2, 1, 2].into_iter().for_each(|byte| evidence.served(account(byte), now));
        assert_eq!([evidence.refused(account(1), now), evidence.refused(account(2), now)], [Account, Account]);
        assert_eq!(evidence.refused(account(3), now), All, "it refuses the third too");
        assert_eq!(evidence.refused(account(1), now + SERVES_FOR), Unknown, "the other refusals are too old");
    }
}
