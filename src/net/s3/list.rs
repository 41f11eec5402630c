//! Lists of objects (ListObjectsV2), one page per request.

use super::{S3, xml};
use crate::engine::ports::{BucketError, BucketErrorKind, BucketOperation, BucketResult, ObjectInfo, ObjectPage};

/// Maximum number of names in a page.
const PAGE: &str = "1000";

impl S3 {
    /// Returns one page of the objects whose names begin with `prefix` and sort after `after`.
    pub(super) async fn page(&self, prefix: &str, after: &str) -> BucketResult<ObjectPage> {
        let operation = BucketOperation::List;
        let (full_prefix, full_after) =
            (format!("{}{prefix}", self.settings.prefix), format!("{}{after}", self.settings.prefix));
        let mut query = vec![("list-type", "2"), ("max-keys", PAGE), ("prefix", full_prefix.as_str())];
        if !after.is_empty() {
            query.push(("start-after", &full_after));
        }
        let document = self.document(operation, prefix, &query).await?.unwrap_or_default();
        let failed = |message: &str| BucketError {
            kind: BucketErrorKind::Refused,
            operation,
            name: prefix.to_owned(),
            message: message.to_owned(),
        };
        let is_last = xml::first(&document, "IsTruncated").ok_or_else(|| failed("the answer is not a list"))? != "true";
        let mut objects = Vec::new();
        for contents in xml::elements(&document, "Contents") {
            let key = xml::text(contents, "Key").ok_or_else(|| failed("the list has an object without a name"))?;
            let name = key.strip_prefix(&self.settings.prefix).filter(|name| name.starts_with(prefix));
            let name = name.ok_or_else(|| failed("the list has objects that do not begin with the prefix"))?.to_owned();
            let size = xml::first(contents, "Size").and_then(|size| size.parse().ok()).unwrap_or_default();
            objects.push(ObjectInfo { name, size });
        }
        // A service that ignores `start-after` would send the same page for ever.
        let is_ascending = objects.iter().map(|object| object.name.as_str()).is_sorted_by(|one, next| one < next);
        let follows = objects.first().is_none_or(|object| object.name.as_str() > after);
        if !is_ascending || !follows || (objects.is_empty() && !is_last) {
            return Err(failed("the list is not in the order of names, or ignores start-after"));
        }
        Ok(ObjectPage { objects, is_last })
    }
}
