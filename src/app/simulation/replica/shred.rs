//! Shredding: the content of a finished run expires while the machine is off. The next process destroys it. Then no
//! object of the bucket contains a body, or the key of a segment that had one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::judge::verified;
use crate::app::simulation::life;
use crate::app::simulation::service::Service;
use crate::app::simulation::world::{End, World};
use crate::base::secret::MasterKey;
use crate::store::content::compression;
use crate::store::replica::identity::Identity;
use crate::store::replica::{ObjectName, Sealer};

/// Beginning of every body.
pub(in crate::app::simulation) const CANARY: &str = "body of ";
/// Time after which all content has expired: the retention, and the rest of its last bucket.
const RETENTION: Duration = Duration::from_secs(32 * 24 * 3600);
/// Time in which a process destroys expired content: a doubt about the clock, and a listing of all keys.
const SWEEP: Duration = Duration::from_secs(3 * 3600);

/// Lets the content expire after a finished run, and searches the bucket for it.
pub(in crate::app::simulation) fn after_the_run(world: &Arc<World>) {
    let shreds = world.plan.replica.as_ref().is_some_and(|replica| replica.shreds);
    if !shreds || !world.state().findings.is_empty() {
        return;
    }
    let keys: Vec<_> = readable(world).into_iter().filter(|(name, _)| matches!(name, ObjectName::Key { .. })).collect();
    world.clocks.pass(RETENTION);
    if life::live(world) != Some(End::Finished) {
        world.find("liveness: no process ran after the retention".to_owned());
    }
    for (name, bytes) in readable(world) {
        let contains = |secret: &[u8]| bytes.windows(secret.len()).any(|window| window == secret);
        if contains(CANARY.as_bytes()) {
            world.find(format!("shredding: {name} contains a body"));
        }
        if keys.iter().any(|(_, key)| contains(key)) {
            world.find(format!("shredding: {name} contains a key of expired content"));
        }
    }
}

/// Returns whether the content of the run has expired.
pub(in crate::app::simulation) fn has_expired(world: &World) -> bool {
    world.state().lives.contains(&End::Finished)
}

/// Waits until expired content is destroyed, and judges the bucket.
pub(in crate::app::simulation) async fn destroyed(world: &Arc<World>, service: &Service) {
    sleep(SWEEP).await;
    let Some(replication) = service.engine.replication.get() else { return };
    // The collection after a base removes the objects before it.
    replication.make_base().await;
    verified(world, service, &world.objects.copy()).await;
}

/// Returns everything in the bucket that the master key opens: the names of objects, and their content. Without
/// encryption that is most of each object itself.
fn readable(world: &World) -> Vec<(ObjectName, Vec<u8>)> {
    let key = world.state().master_key.clone().expect("the store has a master key");
    let master = Arc::new(MasterKey::new(&key));
    let identity = world.objects.object(&ObjectName::Store.to_string()).expect("the bucket has a store");
    let store = Identity::decode(&identity, &master).expect("the store can be identified").store;
    let sealer = Sealer::new(master, store, true);
    let mut readable = Vec::new();
    for name in world.objects.names() {
        let (Ok(name), Some(bytes)) = (name.parse::<ObjectName>(), world.objects.object(&name)) else { continue };
        // A slot has fields before its body.
        let opened = [0, 4 + 32].into_iter().find_map(|clear| sealer.open(&name, clear, &bytes).ok());
        let Some((_, body)) = opened else { continue };
        readable.extend(compression::decompress(body.expose()).ok().map(|bytes| (name.clone(), bytes)));
        readable.push((name, body.expose().to_vec()));
    }
    readable
}
