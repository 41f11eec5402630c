//! Samples of the store's size, taken as long as the service runs.

use std::sync::Weak;
use std::time::Duration;

use crate::engine::Engine;

/// Time between two samples.
const BETWEEN: Duration = Duration::from_secs(600);

/// Takes samples until the engine is dropped.
pub(super) async fn note(engine: Weak<Engine>) {
    while let Some(engine) = engine.upgrade() {
        let noted = tokio::task::spawn_blocking(move || engine.note_store_size());
        if let Err(error) = noted.await {
            tracing::error!(%error, "could not record the size of the store; its growth lacks this sample");
        }
        tokio::time::sleep(BETWEEN).await;
    }
}
