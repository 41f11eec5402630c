//! Settings of the bucket that decide whether it may hold a replica.

use super::{S3, xml};
use crate::engine::ports::{BoxFuture, BucketOperation, BucketResult, BucketSettings, Expiry, Versioning};

impl BucketSettings for S3 {
    fn versioning(&self) -> BoxFuture<'_, BucketResult<Versioning>> {
        Box::pin(async {
            let document = self.document(BucketOperation::Settings, "versioning", &[("versioning", "")]).await?;
            Ok(match document.as_deref().and_then(|document| xml::first(document, "Status")) {
                Some("Enabled") => Versioning::Enabled,
                Some("Suspended") => Versioning::Suspended,
                Some(_) | None => Versioning::Off,
            })
        })
    }

    fn has_object_lock(&self) -> BoxFuture<'_, BucketResult<bool>> {
        Box::pin(async {
            let document = self.document(BucketOperation::Settings, "object lock", &[("object-lock", "")]).await?;
            let enabled = document.as_deref().and_then(|document| xml::first(document, "ObjectLockEnabled"));
            Ok(enabled == Some("Enabled"))
        })
    }

    fn expiries(&self) -> BoxFuture<'_, BucketResult<Vec<Expiry>>> {
        Box::pin(async {
            let document = self.document(BucketOperation::Settings, "lifecycle", &[("lifecycle", "")]).await?;
            let document = document.unwrap_or_default();
            let rules = xml::elements(&document, "Rule").filter_map(|rule| expiry(rule, &self.settings.prefix));
            Ok(rules.collect())
        })
    }
}

/// Returns the rule if it removes current objects below `prefix`.
fn expiry(rule: &str, prefix: &str) -> Option<Expiry> {
    let is_enabled = xml::first(rule, "Status") == Some("Enabled");
    xml::first(rule, "Expiration").filter(|_| is_enabled)?;
    let of_rule = xml::text(rule, "Prefix").unwrap_or_default();
    let touches = of_rule.starts_with(prefix) || prefix.starts_with(&of_rule);
    touches.then(|| Expiry { id: xml::text(rule, "ID").unwrap_or_default(), prefix: of_rule })
}
