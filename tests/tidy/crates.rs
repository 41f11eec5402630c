//! The table of all dependencies: where each may be used, and its purpose.

use super::Finding;
use super::floors::folder;
use super::source::SourceFile;

/// The place in which a crate may be used.
pub(crate) enum Place {
    /// On any floor: it only supports writing Rust code, such as derives.
    Anywhere,
    /// In these folders.
    Only(&'static [&'static str]),
    /// In tests.
    Tests,
}

use Place::{Anywhere, Only, Tests};

/// Every dependency, where it may be used, and its purpose.
pub(crate) const CRATES: &[(&str, Place, &str)] = &[
    // Runtime and HTTP.
    (
        "tokio",
        Only(&["store", "engine", "net", "http", "panel", "app"]),
        "async runtime; the store only uses its channels",
    ),
    ("hyper", Only(&["net", "http", "panel", "app"]), "HTTP/1.1 and HTTP/2 as bytes"),
    ("hyper-util", Only(&["net", "app"]), "serves both versions of HTTP on one listener"),
    ("http-body-util", Only(&["net", "http", "panel", "app"]), "bodies as values"),
    ("bytes", Only(&["smtp", "engine", "net", "http", "panel", "app"]), "shares a message's bytes without a copy"),
    ("matchit", Only(&["http"]), "matches routes; the rest of the routing is our own table"),
    ("reqwest", Only(&["net"]), "fetches policies and certificates, follows event streams"),
    // TLS and cryptography: aws-lc-rs is the only provider.
    ("rustls", Only(&["net", "app"]), "TLS"),
    ("tokio-rustls", Only(&["net"]), "TLS over tokio's sockets"),
    ("webpki", Only(&["net"]), "the errors of rustls' certificate verification"),
    ("rustls-native-certs", Only(&["net"]), "the roots that the system trusts"),
    ("rcgen", Only(&["net"]), "creates self-signed certificates and signing requests"),
    ("instant-acme", Only(&["net"]), "speaks ACME over our own HTTPS client: signed requests, nonces, polling"),
    ("aws-lc-rs", Only(&["base", "mail", "net"]), "encrypts secrets, signs DKIM, and provides the cryptography of TLS"),
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
    ("getrandom", Only(&["net"]), "the system's randomness; other floors get an `Entropy`"),
    // The store.
    ("redb", Only(&["store"]), "the database"),
    ("postcard", Only(&["base", "domain", "store"]), "rows and cursors as bytes"),
    ("zstd", Only(&["store"]), "compresses bodies to a third of their size"),
    ("crc32fast", Only(&["store"]), "checksums of rows"),
    ("rustix", Only(&["store", "net", "app"]), "free space, process identity, peer credentials"),
    ("rtime-clock", Only(&["net"]), "reads whether the wall clock is synchronised, without unsafe code of ours"),
    // Mail and names.
    ("lettre", Only(&["mail"]), "builds MIME; its SMTP client is not used"),
    ("mail-parser", Only(&["mail", "net"]), "parses MIME of other programs"),
    ("memchr", Only(&["mail", "store"]), "searches for line ends, and texts in stored rows, with SIMD"),
    ("quick-xml", Only(&["mail"]), "parses the XML of DMARC reports as a stream"),
    ("flate2", Only(&["mail", "panel"]), "decompresses DMARC reports as a stream; compresses embedded files"),
    ("hickory-resolver", Only(&["net"]), "DNS with DNSSEC"),
    ("idna", Only(&["domain"]), "international domain names"),
    ("psl", Only(&["domain"]), "the public suffix list, for registrable domains"),
    ("url", Only(&["domain", "engine", "net", "http", "panel", "app"]), "parses URLs as browsers do"),
    // Data, configuration, command line, logs.
    ("serde", Anywhere, "derives"),
    ("serde_json", Only(&["domain", "mail", "store", "engine", "net", "http", "panel", "app"]), "JSON"),
    ("toml", Only(&["smtp", "net", "app"]), "rules and configuration"),
    ("csv", Only(&["http"]), "CSV of exports and of lists of suppressions"),
    ("jiff", Only(&["base", "domain", "panel", "app"]), "calendars and time zones, bundled"),
    ("askama", Only(&["panel"]), "templates with automatic escaping, checked at compile time"),
    ("pulldown-cmark", Only(&["panel"]), "renders the documentation's Markdown files in the panel"),
    ("qrcode", Only(&["panel"]), "the QR code for setting up a second factor"),
    ("clap", Only(&["app"]), "the command line"),
    ("clap_complete", Only(&["app"]), "shell completions generated from the grammar"),
    ("clap_mangen", Only(&["app"]), "manual pages generated from the grammar"),
    ("thiserror", Anywhere, "derives"),
    ("tracing", Only(&["store", "engine", "net", "http", "panel", "app"]), "the log; state machines do not log"),
    ("tracing-subscriber", Only(&["app"]), "writes the log"),
    ("mimalloc", Only(&["app"]), "allocates faster than libc, especially from many threads"),
    ("sd-notify", Only(&["app"]), "notifies systemd"),
    ("listenfd", Only(&["net"]), "uses sockets opened by systemd, without unsafe code of ours"),
    // Tests.
    ("proptest", Tests, "property tests"),
    ("mail-auth", Tests, "verifies our DKIM signatures and TLS reports with independent code"),
    ("hickory-server", Tests, "a name server for tests"),
    ("criterion", Tests, "benchmarks the parts of a request"),
    ("proc-macro2", Tests, "splits Rust sources into tokens for `tests/tidy`"),
    ("tempfile", Tests, "data directories for tests"),
];

/// Returns the places where `source` uses a crate that it must not use.
pub(crate) fn crates_out_of_place(source: &SourceFile) -> Vec<Finding> {
    let own = folder(&source.name);
    let mut findings = Vec::new();
    for path in &source.paths {
        let Some((name, place, _)) = CRATES.iter().find(|(name, ..)| name.replace('-', "_") == path.segments[0]) else {
            continue;
        };
        // Tests may use any crate, except those that depend on a higher floor.
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
                format!("{name} must not be used in {}: move this to a floor that may use it", own.unwrap_or("src"));
            findings.push(Finding::new(&source.name, path.line, what));
        }
    }
    findings
}

/// Returns dependencies of `manifest` that are not in the table, and entries of the table that are not in `manifest`.
pub(crate) fn unlisted_dependencies(file: &str, manifest: &str) -> Vec<Finding> {
    let dependencies = dependencies(manifest);
    let unlisted = dependencies.iter().filter(|(_, name)| !CRATES.iter().any(|(listed, ..)| listed == name));
    let what = |name: &str| format!("add {name} with its place and purpose to tests/tidy/crates.rs, or remove it");
    let mut findings: Vec<_> = unlisted.map(|(line, name)| Finding::new(file, *line, what(name))).collect();
    for (listed, ..) in CRATES {
        if !dependencies.iter().any(|(_, name)| name == listed) {
            findings.push(Finding::new(
                file,
                1,
                format!("{listed} is not a dependency: remove it from tests/tidy/crates.rs"),
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
