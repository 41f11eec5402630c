//! Outside crates have floors too: the one table of what the program is made of, where each may be named, and what it
//! saves.

use super::Finding;
use super::floors::folder;
use super::source::SourceFile;

/// Where a crate may be named.
pub(crate) enum Place {
    /// On any floor: it is a way of writing Rust, and does nothing of its own.
    Anywhere,
    /// In these folders.
    Only(&'static [&'static str]),
    /// In tests.
    Tests,
}

use Place::{Anywhere, Only, Tests};

/// Every dependency, where it may be named, and why it is there.
pub(crate) const CRATES: &[(&str, Place, &str)] = &[
    // Runtime and HTTP.
    ("tokio", Only(&["store", "engine", "net", "http", "panel", "app"]), "waits; the store uses its channels alone"),
    ("hyper", Only(&["net", "http", "panel", "app"]), "HTTP/1.1 and HTTP/2 as bytes"),
    ("hyper-util", Only(&["net", "app"]), "serves both versions of HTTP on one listener"),
    ("http-body-util", Only(&["net", "http", "panel", "app"]), "bodies as values"),
    ("bytes", Only(&["smtp", "engine", "net", "http", "panel", "app"]), "shares a message's bytes without a copy"),
    ("matchit", Only(&["http"]), "finds a route; everything else about routing is our own table"),
    ("reqwest", Only(&["net"]), "fetches policies and certificates, follows event streams"),
    // TLS and cryptography: aws-lc-rs is the only provider.
    ("rustls", Only(&["net", "app"]), "TLS"),
    ("tokio-rustls", Only(&["net"]), "TLS over tokio's sockets"),
    ("rustls-native-certs", Only(&["net"]), "the roots that the system trusts"),
    ("rcgen", Only(&["net"]), "makes certificates of our own, and asks authorities for theirs"),
    ("instant-acme", Only(&["net"]), "speaks ACME over our own HTTPS client: signed requests, nonces, polling"),
    ("aws-lc-rs", Only(&["base", "mail", "net"]), "seals secrets, signs DKIM, and is what TLS is built on"),
    ("hmac", Only(&["base"]), "webhook signatures and return-path tokens"),
    ("sha2", Only(&["base", "domain", "mail", "engine", "net", "http", "panel", "app"]), "hashes keys and bodies"),
    ("hex", Only(&["base", "domain", "store", "engine", "net", "http", "panel", "app"]), "signatures as text"),
    (
        "base64",
        Only(&["base", "domain", "mail", "smtp", "engine", "net", "http", "panel", "app"]),
        "MIME, cursors, secrets",
    ),
    ("subtle", Only(&["base", "domain", "store", "engine", "http", "panel"]), "compares secrets in constant time"),
    ("zeroize", Only(&["base", "domain", "mail", "smtp", "store", "net", "app"]), "wipes secrets"),
    ("argon2", Only(&["engine"]), "hashes the passwords of the panel's users"),
    ("getrandom", Only(&["net"]), "the system's chance; everyone else is handed an `Entropy`"),
    // The store.
    ("redb", Only(&["store"]), "the database"),
    ("postcard", Only(&["base", "domain", "store"]), "rows and cursors as bytes"),
    ("zstd", Only(&["store"]), "bodies take a third of their room"),
    ("crc32fast", Only(&["store"]), "checksums of rows"),
    ("rustix", Only(&["store", "net", "app"]), "free space, process identity, peer credentials"),
    (
        "rtime-clock",
        Only(&["net"]),
        "asks the kernel whether the wall clock is synchronised, without unsafe code of ours",
    ),
    // Mail and names.
    ("lettre", Only(&["mail"]), "builds MIME; its SMTP client is not used"),
    ("mail-parser", Only(&["mail", "net"]), "reads MIME that others made"),
    ("memchr", Only(&["mail"]), "finds line ends many bytes at a time"),
    ("quick-xml", Only(&["mail"]), "reads the XML of DMARC reports event by event"),
    ("flate2", Only(&["mail"]), "unpacks DMARC reports, gzip and zip, in pieces"),
    ("hickory-resolver", Only(&["net"]), "DNS with DNSSEC"),
    ("idna", Only(&["domain"]), "international domain names"),
    ("url", Only(&["domain", "engine", "net", "http", "panel", "app"]), "parses URLs as browsers do"),
    // Data, configuration, command line, logs.
    ("serde", Anywhere, "derives"),
    ("serde_json", Only(&["domain", "mail", "store", "engine", "net", "http", "panel", "app"]), "JSON"),
    ("toml", Only(&["smtp", "net", "app"]), "rules and configuration"),
    ("jiff", Only(&["base", "domain", "panel", "app"]), "calendars and time zones, bundled"),
    ("askama", Only(&["panel"]), "pages that escape what they show, checked when the program is built"),
    ("pulldown-cmark", Only(&["panel"]), "the documentation as pages, from the files that are read in the source"),
    ("qrcode", Only(&["panel"]), "the square of a second factor's secret, for the telephone that reads it"),
    ("clap", Only(&["app"]), "the command line"),
    ("clap_complete", Only(&["app"]), "completions that follow the grammar by themselves"),
    ("clap_mangen", Only(&["app"]), "manual pages that follow the grammar by themselves"),
    ("thiserror", Anywhere, "derives"),
    ("tracing", Only(&["store", "engine", "net", "http", "panel", "app"]), "the log; machines are silent"),
    ("tracing-subscriber", Only(&["app"]), "writes the log"),
    ("mimalloc", Only(&["app"]), "allocates faster than libc, from many threads at once above all"),
    ("sd-notify", Only(&["app"]), "tells systemd"),
    ("listenfd", Only(&["net"]), "takes over sockets that systemd opened, without unsafe code of ours"),
    // Tests.
    ("proptest", Tests, "laws over many inputs"),
    ("mail-auth", Tests, "checks our DKIM signatures and reads our TLS reports with another's code"),
    ("hickory-server", Tests, "a name server for tests"),
    ("criterion", Tests, "measures the pieces of a request, with their spread"),
    ("tempfile", Tests, "data directories for tests"),
];

/// Where `source` names a crate that has no place in it.
pub(crate) fn crates_out_of_place(source: &SourceFile) -> Vec<Finding> {
    let own = folder(&source.name);
    let mut findings = Vec::new();
    for path in &source.paths {
        let Some((name, place, _)) = CRATES.iter().find(|(name, ..)| name.replace('-', "_") == path.segments[0]) else {
            continue;
        };
        // Tests may use what they need, so long as the program itself is not drawn up.
        let is_test = source.is_test_at(path.token);
        let allowed = match (place, own) {
            (Anywhere, _) => true,
            (Only(_) | Tests, _) if is_test => true,
            (Only(folders), Some(own)) => folders.contains(&own),
            (Tests, _) => false,
            (Only(folders), None) => folders.contains(&"app"),
        };
        if !allowed {
            let what =
                format!("{name} has no place in {}: let the floor that may know it do this", own.unwrap_or("src"));
            findings.push(Finding::new(&source.name, path.line, what));
        }
    }
    findings
}

/// Dependencies of `manifest` that are not in the table, and the table's that are not in it.
pub(crate) fn unlisted_dependencies(file: &str, manifest: &str) -> Vec<Finding> {
    let dependencies = dependencies(manifest);
    let unlisted = dependencies.iter().filter(|(_, name)| !CRATES.iter().any(|(listed, ..)| listed == name));
    let what = |name: &str| format!("give {name} its place and its reason in tests/tidy/crates.rs, or do without it");
    let mut findings: Vec<_> = unlisted.map(|(line, name)| Finding::new(file, *line, what(name))).collect();
    for (listed, ..) in CRATES {
        if !dependencies.iter().any(|(_, name)| name == listed) {
            findings.push(Finding::new(
                file,
                1,
                format!("{listed} is no dependency: take it out of tests/tidy/crates.rs"),
            ));
        }
    }
    findings
}

fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_table = false;
    for (line, text) in (1..).zip(manifest.lines()) {
        if let Some(section) = text.trim().strip_prefix('[') {
            let section = section.trim_end_matches(']');
            is_table = section.ends_with("dependencies");
            if let Some((_, name)) = section.split_once("dependencies.") {
                found.push((line, name.to_owned()));
            }
        } else if let (true, Some((name, _))) = (is_table && !text.trim_start().starts_with('#'), text.split_once('='))
        {
            found.push((line, name.trim().trim_end_matches(".workspace").to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> usize {
        crates_out_of_place(&SourceFile::new(file, text)).len()
    }

    #[test]
    fn a_misplaced_crate_is_found() {
        assert_eq!(found("src/http/x.rs", "use redb::Database;"), 1);
        assert_eq!(found("src/store/x.rs", "use redb::Database;"), 0);
        assert_eq!(found("src/machine/x.rs", "async fn a() { tokio::time::sleep(b).await }"), 1);
        assert_eq!(found("src/machine/x.rs", "use crate::tokio; // tokio::spawn\nlet a = \"tokio::spawn\";"), 0);
        assert_eq!(found("src/main.rs", "use hickory_resolver::Resolver;"), 1);
    }

    #[test]
    fn tests_may_use_any_crate_and_the_program_may_not_use_test_crates() {
        assert_eq!(found("src/http/x.rs", "#[cfg(test)] mod tests { use redb::Database; }"), 0);
        assert_eq!(found("src/http/x.rs", "use tempfile::tempdir;"), 1);
    }

    #[test]
    fn unlisted_dependencies_and_unused_entries_are_found() {
        let manifest =
            "[package]\nname = \"a\"\n[dependencies]\n# b = 1\nleftpad = \"1\"\ntokio = { version = \"1\" }\n";
        let findings = unlisted_dependencies("Cargo.toml", manifest);
        assert_eq!(findings[0], Finding::new("Cargo.toml", 5, findings[0].what.clone()));
        assert!(findings[0].what.contains("leftpad"));
        assert_eq!(findings.len(), CRATES.len(), "leftpad, and all but tokio");
        assert_eq!(
            dependencies("[target.x.dependencies.abc]\nversion = \"1\"\n[dev-dependencies]\nd = \"1\"").len(),
            2
        );
    }

    #[test]
    fn every_crate_has_a_reason() {
        assert!(CRATES.iter().all(|(.., reason)| !reason.is_empty()));
    }
}
