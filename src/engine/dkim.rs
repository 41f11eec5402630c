//! A sending domain's DKIM keys: generating and rotating them (contract 2).

use std::sync::Arc;

use super::Engine;
use super::audit::Behalf;
use super::background_thread::JobFailure;
use crate::base::id::{AccountId, DomainId};
use crate::domain::sending_domain::{DkimAlgorithm, DkimState};
use crate::mail::dkim_key;
use crate::store::error::{OpError, StoreError};
use crate::store::op::dkim;
use crate::store::op::domain::{DomainRefusal, RecordDomainCheck};
use crate::store::op::domain_change::{AddStandby, RotateDkim, RotateStandby};
use crate::store::row::domain::{DkimKeyRow, DomainRow};

impl Engine {
    /// Rotates a domain's keys. Without a schedule, it gets new keys, which sign once their records are found. With a
    /// schedule, the standby keys sign from now on if a check finds their records; otherwise they remain on standby.
    ///
    /// # Errors
    /// The refusal, or the store's failure.
    pub async fn rotate_dkim(&self, on: impl Into<Behalf>, id: DomainId) -> Result<DomainRow, OpError<DomainRefusal>> {
        let on = on.into();
        let row = self.own_domain(&on, id)?;
        if row.rotation.days == 0 {
            let keys = self.new_keys(on.account, id, dkim::next_number(&row), DkimState::Pending).await?;
            let op = RotateDkim { account: on.account, domain: id, keys, limit: on.stream };
            return self.commit_on(on, op).await;
        }
        match dkim::further(&row.dkim).filter(|key| key.state == DkimState::Standby) {
            Some(standby) => {
                let selector = standby.selector.clone();
                let _verification = self.domain_verifications.begin(on.account).await?;
                let (findings, facts) = self.look(&row).await;
                let look = RecordDomainCheck { account: on.account, domain: id, findings, facts };
                let (account, limit) = (on.account, on.stream);
                let row = self.commit_on(on, RotateStandby { look, selector, limit }).await?;
                Ok(self.with_standby(account, id, row).await)
            }
            None => Ok(self.with_standby(on.account, id, row).await),
        }
    }

    /// Returns the domain with a pair of keys for its next rotation. If keys can't be generated now, the next check of
    /// the domain or the rotation's timer tries again.
    pub(super) async fn with_standby(&self, account: AccountId, id: DomainId, row: DomainRow) -> DomainRow {
        if !dkim::lacks_further(&row) {
            return row;
        }
        let added = match self.new_keys(account, id, dkim::next_number(&row), DkimState::Pending).await {
            Ok(keys) => self.store.commit(AddStandby { account, domain: id, keys }).await,
            Err(stop) => Err(stop),
        };
        match added {
            Ok(row) => row,
            Err(OpError::Refused(_)) => row,
            Err(OpError::Failed(error)) => {
                tracing::error!(
                    %error, domain = %id,
                    "could not generate DKIM keys for the next rotation; trying again at the next check"
                );
                row
            }
        }
    }

    /// Generates a key of each algorithm, with selectors of this number. An RSA key takes some 100 ms. So keys are
    /// generated on a low-priority thread, where they don't block async workers or signatures.
    pub(super) async fn new_keys(
        &self,
        account: AccountId,
        id: DomainId,
        number: u32,
        state: DkimState,
    ) -> Result<Vec<DkimKeyRow>, OpError<DomainRefusal>> {
        let (store, entropy, now) = (Arc::clone(&self.store), Arc::clone(&self.entropy), self.clock.now());
        let generate_key = self.settings.generate_dkim_key;
        let generate = move || {
            let keys = [DkimAlgorithm::RsaSha256, DkimAlgorithm::Ed25519Sha256].map(|algorithm| {
                let key = generate_key(algorithm, &*entropy)?;
                let selector = selector(id, algorithm, number);
                let context = DkimKeyRow::context(id, &selector);
                let private_key = store.master_key().seal(&context, key.pkcs8.expose(), &*entropy);
                let (record, retired_at) = (key.record, None);
                Ok(DkimKeyRow { selector, algorithm, state, created_at: now, retired_at, record, private_key })
            });
            keys.into_iter().collect::<Result<Vec<_>, dkim_key::GenerationFailed>>()
        };
        match self.key_generation.run(account, generate).await {
            Ok(Ok(keys)) => Ok(keys),
            Ok(Err(error)) => {
                tracing::error!(%error, domain = %id, "could not generate DKIM keys; the request failed");
                Err(OpError::Failed(StoreError::Panicked))
            }
            Err(JobFailure::Crowded) => Err(OpError::Refused(DomainRefusal::Crowded)),
            Err(JobFailure::Failed) => Err(OpError::Failed(StoreError::Panicked)),
        }
    }
}

/// Returns a selector that contains the domain's identifier, so that two accounts that register the same name can
/// publish side by side.
fn selector(domain: DomainId, algorithm: DkimAlgorithm, number: u32) -> String {
    let text = domain.to_string().to_ascii_lowercase();
    let tail = &text[text.len() - 6..];
    let kind = match algorithm {
        DkimAlgorithm::RsaSha256 => 'r',
        DkimAlgorithm::Ed25519Sha256 => 'e',
    };
    format!("pr-{tail}-{kind}{number}")
}

/// Returns whether a selector belongs to a key of this domain, past or present.
pub(super) fn is_selector_of(domain: DomainId, text: &str) -> bool {
    let own = selector(domain, DkimAlgorithm::RsaSha256, 1);
    let tail = own.strip_suffix("r1").and_then(|start| text.strip_prefix(start));
    let number = tail.and_then(|tail| tail.strip_prefix(['r', 'e']));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}
