//! `docs/dependencies.md`: the crates that the program is made of, as a page that people read. Rendered from the table
//! in `crates.rs`, so that nobody has to keep it.

use super::crates::{CRATES, Place};

/// The page.
pub(crate) fn page() -> String {
    let mut page = String::from(
        "# What Postrider is built from\n\n\
         Each crate that the program names itself, what it saves, and the folders of `src` that may name it. One that is\n\
         not here does not get in, and one that is here and not used is taken out: `tests/tidy` looks. What they bring\n\
         along stands in `Cargo.lock`, and in the list that each release carries (CycloneDX). Licences and sources are\n\
         held to `deny.toml`; OpenSSL, native-tls and ring are banned, for aws-lc-rs is the only cryptography.\n\n\
         | crate | what it saves | where |\n|---|---|---|\n",
    );
    for (name, place, reason) in CRATES {
        let place = match place {
            Place::Anywhere => "anywhere".to_owned(),
            Place::Only(folders) => folders.join(", "),
            Place::Tests => continue,
        };
        page.push_str(&format!("| {name} | {reason} | {place} |\n"));
    }
    page.push_str("\nIn tests alone:\n\n| crate | what it saves |\n|---|---|\n");
    for (name, _, reason) in CRATES.iter().filter(|(_, place, _)| matches!(place, Place::Tests)) {
        page.push_str(&format!("| {name} | {reason} |\n"));
    }
    page
}
