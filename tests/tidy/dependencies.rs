//! `docs/dependencies.md`: the page about the program's crates, rendered from the table in `crates.rs`.

use super::crates::{CRATES, Place};

/// Renders the page.
pub(crate) fn page() -> String {
    let mut page = String::from(
        "# Dependencies\n\n\
         The direct dependencies of Postrider, their purpose, and the folders of `src` that may use them.\n\
         `tests/tidy` refuses unlisted dependencies and unused entries. `Cargo.lock` and the CycloneDX SBOM of each\n\
         release list the transitive dependencies. `deny.toml` restricts licences and sources. OpenSSL, native-tls\n\
         and ring are banned, because aws-lc-rs is the only cryptographic library.\n\n\
         | crate | purpose | where |\n|---|---|---|\n",
    );
    for (name, place, reason) in CRATES {
        let place = match place {
            Place::Anywhere => "anywhere".to_owned(),
            Place::Only(folders) => folders.join(", "),
            Place::Tests => continue,
        };
        page.push_str(&format!("| {name} | {reason} | {place} |\n"));
    }
    page.push_str("\nOnly in tests:\n\n| crate | purpose |\n|---|---|\n");
    for (name, _, reason) in CRATES.iter().filter(|(_, place, _)| matches!(place, Place::Tests)) {
        page.push_str(&format!("| {name} | {reason} |\n"));
    }
    page
}
