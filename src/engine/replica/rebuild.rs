//! Builds a data directory from a base, for a standby or a restore.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::error::ReplicaError;
use super::follow::{Cursor, LogFollower};
use super::objects::{ReplicaObjects, unreadable};
use crate::base::time::Timestamp;
use crate::engine::executor::Executor;
use crate::store::archive::{ArchiveError, Head as ArchiveHead, Totals};
use crate::store::master_key::Raw;
use crate::store::replica::manifest::Manifest;
use crate::store::replica::name::ObjectName;
use crate::store::replica::{Follower, Position, content};
use crate::store::restore::{BaseContent, Lineage, Restoration, RestoreError, restore_base};

/// Maximum number of concurrent fetches: four parts are 64 MiB.
const AHEAD: usize = 4;

/// Arguments of a rebuild from a base.
pub(super) struct Rebuild<'a> {
    /// The directory, which exists and is empty.
    pub(super) directory: &'a Path,
    /// The master key of the store.
    pub(super) key: Raw,
    /// Whether the directory is a copy or a standby.
    pub(super) lineage: Lineage,
    /// Names of further files of the data directory.
    pub(super) beside: &'static [&'static str],
}

/// Returns the newest manifest whose rows are not later than `until`.
///
/// # Errors
/// Errors of the bucket; [`ReplicaError::NoBase`] if no manifest qualifies.
pub(super) async fn base_before(objects: &ReplicaObjects, until: Option<Timestamp>) -> Result<Manifest, ReplicaError> {
    for slot in objects.bases().await?.into_iter().rev() {
        let found = objects.manifest(slot).await?;
        if let Some(manifest) = found.filter(|manifest| until.is_none_or(|until| manifest.taken_at <= until)) {
            return Ok(manifest);
        }
    }
    Err(ReplicaError::NoBase)
}

/// Builds a data directory from the base of `manifest`.
///
/// # Errors
/// Errors of the bucket, the objects, the directory. On failure the directory is removed.
pub(super) async fn rebuild(
    objects: &ReplicaObjects,
    manifest: &Manifest,
    rebuild: Rebuild<'_>,
    mut progress: impl FnMut(&ArchiveHead, Totals) + Send + 'static,
) -> Result<Restoration, ReplicaError> {
    let keys = keys_of(objects, manifest).await?;
    let parts = Source::new(fetch_parts(objects, manifest), objects.executor).await;
    let pieces = Source::new(fetch_pieces(objects, manifest), objects.executor).await;
    let Rebuild { directory, key, lineage, beside } = rebuild;
    let (disk, directory) = (objects.disk.clone(), directory.to_owned());
    let built = objects.executor.run(move || {
        let rows = PartStream { parts, current: io::Cursor::new(Vec::new()) };
        let content = move || Ok(BaseContent { pieces: Pieces(pieces), keys });
        restore_base(rows, (&disk, &directory), &key, (beside, lineage), content, &mut progress)
    });
    let built = built.await.map_err(|error| ReplicaError::Io {
        what: "building the data directory".to_owned(),
        error: io::Error::other(error),
    })?;
    built.map_err(cause)
}

/// Returns the bucket's failure that prevented the read of a base's object. It may be transient.
fn cause(error: RestoreError) -> ReplicaError {
    match error {
        RestoreError::Backup(ArchiveError::Io(error)) => match error.downcast::<ReplicaError>() {
            Ok(error) => error,
            Err(error) => ReplicaError::Restore(RestoreError::Backup(error.into())),
        },
        error => ReplicaError::Restore(error),
    }
}

/// Builds a data directory from the base of `manifest`, and opens it at its position in the log.
///
/// # Errors
/// Errors of [`rebuild`] and of [`follow_from`].
pub(super) async fn build(
    objects: &ReplicaObjects,
    manifest: &Manifest,
    plan: Rebuild<'_>,
    progress: impl FnMut(&ArchiveHead, Totals) + Send + 'static,
) -> Result<LogFollower, ReplicaError> {
    let directory = plan.directory;
    rebuild(objects, manifest, plan, progress).await?;
    follow_from(objects, manifest, directory).await
}

/// Opens the store that was built from the base of `manifest`, at its position in the log.
///
/// # Errors
/// Errors of the bucket, a log that lacks the base's slot, or the store.
pub(super) async fn follow_from(
    objects: &ReplicaObjects,
    manifest: &Manifest,
    directory: &Path,
) -> Result<LogFollower, ReplicaError> {
    let broken = |why: &str| ReplicaError::Broken { slot: manifest.slot, why: why.to_owned() };
    let slot = objects.slot(manifest.slot).await?.ok_or_else(|| broken("the slot of the base is missing"))?;
    if slot.digest != manifest.slot_sha256 {
        return Err(broken("the slot of the base differs from the slot in its manifest"));
    }
    let mut follower = Follower::open(&objects.disk, directory, objects.clock.now(), Arc::clone(&objects.entropy))?;
    // The base may end inside its own slot, which is read again.
    let position = Position {
        store: objects.sealer.store(),
        epoch: slot.link.head.epoch,
        slot: manifest.slot - 1,
        hash: slot.link.previous,
        sequence: manifest.sequence,
    };
    follower.end_slot(position)?;
    follower.checkpoint()?;
    Ok(LogFollower::at(follower, Cursor::of(position)))
}

/// Fetches the keys of the content of a base. A missing key belongs to expired content, or is asked for again once the
/// store is built.
async fn keys_of(objects: &ReplicaObjects, manifest: &Manifest) -> Result<Vec<u8>, ReplicaError> {
    let mut segments: Vec<_> = manifest.content.iter().map(|range| (range.bucket, range.segment)).collect();
    segments.dedup();
    let mut keys = Vec::new();
    for (bucket, segment) in segments {
        let name = ObjectName::Key { bucket, segment };
        let found = objects.bucket.read(&name.to_string()).await?;
        if let Some(bytes) = found.filter(|bytes| !bytes.is_empty()) {
            let slot = content::open_key(&name, &bytes, &objects.sealer).map_err(|fault| unreadable(&name, fault))?;
            keys.extend_from_slice(slot.expose());
        }
    }
    Ok(keys)
}

type Fetched<T> = mpsc::Receiver<JoinHandle<Result<T, ReplicaError>>>;

fn fetch_parts(objects: &ReplicaObjects, manifest: &Manifest) -> Fetched<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let (objects, slot, parts) = (objects.clone(), manifest.slot, manifest.parts.clone());
    tokio::spawn(async move {
        for (part, info) in (1..).zip(parts) {
            let objects = objects.clone();
            let fetching = tokio::spawn(async move {
                let name = ObjectName::Part { slot, part };
                let bytes = objects.read_exact(&name, &info.sha256).await?;
                let part = content::open_part(&name, &bytes, &objects.sealer);
                Ok(part.map_err(|fault| unreadable(&name, fault))?.expose().to_vec())
            });
            if sender.send(fetching).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// A part of a segment; `None` if it is missing.
type Piece = Option<((Timestamp, u32), u64, Vec<u8>)>;

fn fetch_pieces(objects: &ReplicaObjects, manifest: &Manifest) -> Fetched<Piece> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let (objects, mut content) = (objects.clone(), manifest.content.clone());
    content.sort();
    tokio::spawn(async move {
        for range in content {
            let objects = objects.clone();
            let fetching = tokio::spawn(async move {
                let (bucket, segment, offset) = (range.bucket, range.segment, range.offset);
                let name = ObjectName::Content { bucket, segment, offset };
                let found = objects.bucket.read(&name.to_string()).await?;
                let Some(bytes) = found else {
                    // Expired content may be removed by collection while the base still names it. Its key is removed
                    // first.
                    let key = ObjectName::Key { bucket, segment }.to_string();
                    let key = objects.bucket.read(&key).await?.filter(|key| !key.is_empty());
                    let is_over = key.is_none() && objects.may_have_expired(bucket).await?;
                    return if is_over { Ok(None) } else { Err(ReplicaError::Missing { name: name.to_string() }) };
                };
                let piece = content::open_piece(&name, &bytes, &objects.sealer);
                let piece = piece.map_err(|fault| unreadable(&name, fault))?;
                Ok(Some(((bucket, segment), offset, piece.expose().to_vec())))
            });
            if sender.send(fetching).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// The parts as one stream.
struct PartStream {
    parts: Source<Vec<u8>>,
    current: io::Cursor<Vec<u8>>,
}

impl Read for PartStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.current.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match self.parts.next()? {
                Some(part) => self.current = io::Cursor::new(part),
                None => return Ok(0),
            }
        }
    }
}

struct Pieces(Source<Piece>);

impl Iterator for Pieces {
    type Item = Result<((Timestamp, u32), u64, Vec<u8>), RestoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.next() {
                Ok(Some(Some(piece))) => return Some(Ok(piece)),
                Ok(Some(None)) => {}
                Ok(None) => return None,
                Err(error) => return Some(Err(RestoreError::Backup(error.into()))),
            }
        }
    }
}

/// Fetched objects, for work on an executor.
enum Source<T> {
    /// The objects are being fetched, and the work waits for each on its thread.
    Fetching(Fetched<T>),
    /// All objects were fetched before the work began.
    Fetched(std::vec::IntoIter<io::Result<T>>),
}

impl<T> Source<T> {
    async fn new(mut fetched: Fetched<T>, executor: Executor) -> Self {
        if executor == Executor::Threads {
            return Self::Fetching(fetched);
        }
        let mut all = Vec::new();
        while let Some(fetching) = fetched.recv().await {
            let fetched = fetching.await.map_err(io::Error::other);
            all.push(fetched.and_then(|fetched| fetched.map_err(io::Error::other)));
        }
        Self::Fetched(all.into_iter())
    }

    /// Returns the next object.
    fn next(&mut self) -> io::Result<Option<T>> {
        match self {
            Self::Fetching(fetched) => {
                let Some(fetching) = fetched.blocking_recv() else { return Ok(None) };
                let fetched = tokio::runtime::Handle::current().block_on(fetching).map_err(io::Error::other)?;
                fetched.map(Some).map_err(io::Error::other)
            }
            Self::Fetched(all) => all.next().transpose(),
        }
    }
}
