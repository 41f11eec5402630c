//! Stories of the description: it is whole, its examples fit, and the committed copy is what is served.

use std::path::Path;

use super::*;

#[test]
fn the_committed_copy_is_what_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
    let served = &DOCUMENT[..];
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, served).unwrap();
    }
    let committed = std::fs::read(&path).unwrap_or_default();
    assert!(
        committed == served,
        "docs/openapi.json is stale: the API's description has changed. Renew it with `UPDATE_GOLDEN=1 cargo test --lib \
         the_committed_copy`, review the difference, and commit it."
    );
}
