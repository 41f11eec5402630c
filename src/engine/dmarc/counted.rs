//! The reporter under which a report in the list is counted, if its own name has no counts: the signing domain counts
//! all names beyond its first ones.

use std::sync::Arc;

use crate::base::id::{AccountId, DomainId};
use crate::engine::Engine;
use crate::engine::listing::{self, Page, PageRequest};
use crate::store::error::StoreError;
use crate::store::row::dmarc::DmarcReportRow;
use crate::store::schema;

/// Maximum number of reports that are read, the newest first.
const REPORTS_READ: usize = 20_000;
const PAGE: usize = 500;

impl Engine {
    /// Returns the signing domain of the newest authentic report with this reporter's name. With `signed_by`, only
    /// reports of that domain count.
    pub(super) async fn signer_of_reporter(
        self: &Arc<Self>,
        account: AccountId,
        domain: DomainId,
        (name, signed_by): (String, Option<String>),
    ) -> Result<Option<String>, StoreError> {
        let engine = Arc::clone(self);
        let find = move || {
            let (snapshot, prefix) = (engine.store.snapshot()?, schema::dmarc::dmarc_domain(account, domain));
            let mut request = PageRequest { before: None, limit: PAGE };
            for _ in 0..REPORTS_READ / PAGE {
                let Page { rows, next } = listing::rows::<DmarcReportRow>(&snapshot, &prefix, request)?;
                let named = rows.into_iter().filter(|(_, row)| row.is_authentic && row.reporter == name);
                let mut signers = named.filter_map(|(_, row)| Some(row.from_domain?.registrant_domain().to_owned()));
                let signer = signers.find(|signer| signed_by.as_ref().is_none_or(|wanted| wanted == signer));
                if signer.is_some() || next.is_none() {
                    return Ok(signer);
                }
                request.before = next;
            }
            Ok(None)
        };
        self.blocking.run(account, find).await?
    }
}
