//! Verification of bases with their parts and content, and of content keys.

use std::collections::BTreeMap;

use super::inventory::Segment;
use super::{READS_AT_ONCE, Verification, read, read_all};
use crate::base::digest::{Digest, sha256};
use crate::base::time::Timestamp;
use crate::engine::ports::BucketResult;
use crate::store::replica::manifest::Manifest;
use crate::store::replica::{ObjectFault, ObjectName, content};

/// Bases with readable manifests: their slots, and the digests of those slots.
#[derive(Debug, Default)]
pub(super) struct Bases {
    pub(super) slots: BTreeMap<u64, Digest>,
}

impl Verification<'_> {
    /// Verifies every base.
    pub(super) async fn bases(&mut self) -> BucketResult<Bases> {
        let mut bases = Bases::default();
        for slot in self.inventory.manifests.clone() {
            let name = ObjectName::Manifest(slot);
            // The garbage collection removed the object after the list was taken.
            let Some(bytes) = read(self.bucket, &name.to_string()).await? else { continue };
            match Manifest::open(slot, &bytes, &self.sealer) {
                Ok(manifest) => {
                    bases.slots.insert(slot, manifest.slot_sha256);
                    self.parts(&manifest).await?;
                    self.needed(&manifest);
                }
                Err(error) => self.findings.add(name, error.to_string()),
            }
        }
        self.unfinished();
        Ok(bases)
    }

    /// Reports bases without a manifest, unless a later one is complete: they are not finished.
    fn unfinished(&mut self) {
        let newest = self.inventory.manifests.last().copied().unwrap_or_default();
        let slots: std::collections::BTreeSet<_> = self.inventory.parts.keys().map(|(slot, _)| *slot).collect();
        for slot in slots.into_iter().filter(|slot| *slot < newest && !self.inventory.manifests.contains(slot)) {
            self.findings.add(ObjectName::Manifest(slot), "is missing: the base was not finished, and not removed");
        }
    }

    async fn parts(&mut self, manifest: &Manifest) -> BucketResult<()> {
        let slot = manifest.slot;
        let numbered: Vec<_> = (1_u32..).zip(&manifest.parts).collect();
        for some in numbered.chunks(READS_AT_ONCE) {
            let names: Vec<_> = some.iter().map(|(part, _)| ObjectName::Part { slot, part: *part }).collect();
            for ((name, (_, info)), bytes) in names.iter().zip(some).zip(read_all(self.bucket, &names).await?) {
                let problem = match bytes {
                    None => Some("is missing, and the base needs it".to_owned()),
                    Some(bytes) if bytes.len() as u64 != info.bytes => {
                        Some(format!("has {} bytes, and the manifest names {}", bytes.len(), info.bytes))
                    }
                    Some(bytes) if sha256(&bytes) != info.sha256 => {
                        Some("does not have the SHA-256 that the manifest names".to_owned())
                    }
                    Some(bytes) if self.depth.deep => {
                        content::open_part(name, &bytes, &self.sealer).err().map(|error| error.to_string())
                    }
                    Some(_) => None,
                };
                if let Some(problem) = problem {
                    self.findings.add(name, problem);
                }
            }
        }
        let count = u32::try_from(manifest.parts.len()).unwrap_or(u32::MAX);
        let beyond: Vec<_> = self.inventory.parts.range((slot, count.saturating_add(1))..=(slot, u32::MAX)).collect();
        for ((slot, part), _) in beyond {
            let name = ObjectName::Part { slot: *slot, part: *part };
            self.findings.add(name, "is not named by the manifest of its base");
        }
        Ok(())
    }

    /// Checks the content and the keys that a base's rows need, until the content's deadline.
    fn needed(&mut self, manifest: &Manifest) {
        for range in manifest.content.iter().filter(|range| range.bucket > self.depth.now) {
            let (bucket, segment, offset) = (range.bucket, range.segment, range.offset);
            let name = ObjectName::Content { bucket, segment, offset };
            match self.inventory.contents.get(&((bucket, segment), offset)) {
                None => self.findings.add(name, format!("is missing, and the base of slot {} needs it", manifest.slot)),
                Some(size) if *size < range.length => {
                    let problem =
                        format!("has {size} bytes, and the base of slot {} needs {}", manifest.slot, range.length);
                    self.findings.add(name, problem);
                }
                Some(_) => {}
            }
            if !self.inventory.keys.contains_key(&(bucket, segment)) {
                let name = ObjectName::Key { bucket, segment };
                self.findings.add(name, format!("is missing, and the base of slot {} needs it", manifest.slot));
            }
        }
    }

    /// Checks that expired keys are gone and, if `deep`, that the others open.
    pub(super) async fn keys(&mut self) -> BucketResult<()> {
        let keys: Vec<_> = self.inventory.keys.iter().map(|(segment, size)| (*segment, *size)).collect();
        for some in keys.chunks(READS_AT_ONCE) {
            for ((bucket, segment), size) in some {
                let is_overdue = self.depth.now > *bucket + self.depth.key_grace;
                if is_overdue && *size > 0 {
                    let name = ObjectName::Key { bucket: *bucket, segment: *segment };
                    self.findings.add(name, format!("is overdue: its content had to be deleted at {bucket}"));
                }
            }
            if self.depth.deep {
                let names: Vec<_> = some.iter().map(|(segment, _)| key_name(*segment)).collect();
                let read = read_all(self.bucket, &names).await?;
                self.open_each(&names, read, |name, bytes, sealer| match content::open_key(name, bytes, sealer) {
                    Ok(_) | Err(ObjectFault::Empty) => None,
                    Err(error) => Some(error),
                });
            }
        }
        Ok(())
    }

    /// Opens every content object.
    pub(super) async fn contents(&mut self) -> BucketResult<()> {
        let places: Vec<_> = self.inventory.contents.keys().copied().collect();
        for some in places.chunks(READS_AT_ONCE) {
            let name = |((bucket, segment), offset): &(Segment, u64)| ObjectName::Content {
                bucket: *bucket,
                segment: *segment,
                offset: *offset,
            };
            let names: Vec<_> = some.iter().map(name).collect();
            let read = read_all(self.bucket, &names).await?;
            self.open_each(&names, read, |name, bytes, sealer| content::open_piece(name, bytes, sealer).err());
        }
        Ok(())
    }

    fn open_each(
        &mut self,
        names: &[ObjectName],
        read: Vec<Option<bytes::Bytes>>,
        open: impl Fn(&ObjectName, &[u8], &crate::store::replica::Sealer) -> Option<ObjectFault>,
    ) {
        for (name, bytes) in names.iter().zip(read) {
            // The garbage collection removed the object after the list was taken.
            let Some(bytes) = bytes else { continue };
            if let Some(error) = open(name, &bytes, &self.sealer) {
                self.findings.add(name, error.to_string());
            }
        }
    }
}

fn key_name((bucket, segment): (Timestamp, u32)) -> ObjectName {
    ObjectName::Key { bucket, segment }
}
