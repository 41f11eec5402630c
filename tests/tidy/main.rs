//! Rules about the sources that a test enforces. Imports point down, dependencies stay on their floors, clocks and
//! sockets are used only at the edge, and files are short and documented. Each finding has its place and a remedy.
//!
//! Sources are read as tokens, without a complete parser. A path counts anywhere; comments and strings do not.
//! Justified exceptions are listed in tables with their reasons.

mod citations;
mod crates;
mod dependencies;
mod floors;
mod language;
mod lexer;
mod paths;
mod source;
mod taste;
mod world;

use std::fmt;
use std::path::{Path, PathBuf};

use source::SourceFile;

/// A finding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, relative to the repository's root.
    file: String,
    /// The line, from 1.
    line: usize,
    /// The problem and its remedy.
    what: String,
}

impl Finding {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the files below `folder` that match `wanted`, sorted, relative to the root.
fn files(folder: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut open = vec![root().join(folder)];
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        for path in paths {
            let Some(name) = path.strip_prefix(root()).ok().and_then(Path::to_str).map(str::to_owned) else { continue };
            let skipped = ["target", ".git", "node_modules", "__pycache__"].iter().any(|skip| name.ends_with(skip));
            match (path.is_dir(), skipped) {
                (true, false) => open.push(path),
                (false, false) if wanted(&name) => found.push(name),
                (true | false, _) => {}
            }
        }
    }
    found.sort();
    found
}

fn read(file: &str) -> String {
    // Binary files have no lines to check.
    String::from_utf8(std::fs::read(root().join(file)).unwrap_or_default()).unwrap_or_default()
}

fn rust(folder: &str) -> Vec<SourceFile> {
    let names = files(folder, |name| name.ends_with(".rs"));
    let mut sources: Vec<_> = names.iter().map(|name| SourceFile::new(name, &read(name))).collect();
    source::mark_test_files(&mut sources);
    sources
}

#[track_caller]
fn nothing_of(findings: Vec<Finding>) {
    let list: String = findings.iter().map(|finding| format!("\n{finding}")).collect();
    assert!(findings.is_empty(), "{} findings:{list}", findings.len());
}

#[test]
fn imports_point_down() {
    let sources = rust("src");
    assert!(sources.len() > 50, "the sources were not found");
    nothing_of(sources.iter().flat_map(floors::upward_imports).collect());
}

#[test]
fn outside_crates_stay_on_their_floors() {
    nothing_of(rust("src").iter().flat_map(crates::crates_out_of_place).collect());
}

#[test]
fn every_dependency_has_a_reason() {
    nothing_of(crates::unlisted_dependencies("Cargo.toml", &read("Cargo.toml")));
}

#[test]
fn the_dependencies_page_matches_the_table() {
    let file = "docs/dependencies.md";
    let page = dependencies::page();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(root().join(file), &page).expect("the page can be written");
    }
    assert!(read(file) == page, "{file} is outdated. Update it with `UPDATE_GOLDEN=1 cargo test --test tidy`.");
}

/// A crate that is not in Cargo.lock can't be part of a build.
#[test]
fn no_other_cryptography_is_locked() {
    let lock = read("Cargo.lock");
    for banned in ["openssl", "openssl-sys", "native-tls"] {
        assert!(!lock.contains(&format!("name = \"{banned}\"")), "{banned} is in Cargo.lock: see deny.toml");
    }
}

#[test]
fn clocks_sockets_threads_and_files_are_used_only_at_the_edge() {
    let sources = rust("src");
    nothing_of(sources.iter().flat_map(world::touches_of_the_world).collect());
    nothing_of(world::exceptions_without_use(&sources));
}

#[test]
fn every_rust_file_has_a_header_and_a_bounded_size() {
    let sources = ["src", "tests", "benches", "fuzz"].into_iter().flat_map(rust);
    nothing_of(sources.flat_map(|source| taste::faults_of_taste(&source)).collect());
}

#[test]
fn sources_are_written_in_plain_language() {
    let sources = ["src", "tests", "benches", "fuzz"].into_iter().flat_map(rust);
    nothing_of(sources.flat_map(|source| language::faults_of_language(&source)).collect());
    let mut texts =
        files("", |name| [".rs", ".py", ".mjs", ".md", ".html", ".toml"].iter().any(|end| name.ends_with(end)));
    // The table of retired words itself.
    texts.retain(|name| name != "tests/tidy/language.rs");
    nothing_of(texts.iter().flat_map(|name| language::retired_words(name, &read(name))).collect());
}

#[test]
fn every_citation_of_the_contract_has_an_existing_section() {
    let sections = citations::sections(&read(citations::CONTRACT));
    assert!(sections.len() > 20, "the contract's sections were not found");
    let mut names: Vec<_> =
        ["src", "tests", "benches", "fuzz"].into_iter().flat_map(|folder| files(folder, |_| true)).collect();
    names.retain(|name| [".rs", ".py", ".mjs", ".md"].iter().any(|end| name.ends_with(end)));
    nothing_of(names.iter().flat_map(|name| citations::broken_citations(name, &read(name), &sections)).collect());
}
