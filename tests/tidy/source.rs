//! One Rust file: its lines, tokens and paths, and its parts that are compiled only for tests.

use super::lexer::{self, Kind, Token};
use super::paths::{self, SourcePath};

/// A Rust file.
pub(crate) struct SourceFile {
    /// Its name, relative to the repository's root.
    pub(crate) name: String,
    /// Its lines.
    pub(crate) lines: Vec<String>,
    /// Its tokens.
    pub(crate) tokens: Vec<Token>,
    /// Its paths.
    pub(crate) paths: Vec<SourcePath>,
    /// Whether the whole file is compiled only for tests.
    pub(crate) is_test: bool,
    /// Token ranges that are compiled only for tests.
    test_ranges: Vec<(usize, usize)>,
    /// Files and folders of modules that are compiled only for tests.
    test_modules: Vec<String>,
}

impl SourceFile {
    /// Parses the file `name` with this text.
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let tokens = lexer::tokens(text);
        let paths = paths::paths(&tokens);
        let mut source = Self {
            name: name.to_owned(),
            lines: text.lines().map(str::to_owned).collect(),
            tokens,
            paths,
            is_test: !name.starts_with("src/"),
            test_ranges: Vec::new(),
            test_modules: Vec::new(),
        };
        source.find_tests();
        source
    }

    /// Returns whether the token at this index is compiled only for tests.
    pub(crate) fn is_test_at(&self, token: usize) -> bool {
        self.is_test || self.test_ranges.iter().any(|(from, to)| (*from..*to).contains(&token))
    }

    /// Returns whether the line is compiled only for tests and benchmarks.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        let line_of = |at: usize| self.tokens.get(at).map_or(usize::MAX, |token| token.line);
        let mut ranges = self.test_ranges.iter();
        self.is_test || ranges.any(|(from, to)| (line_of(*from)..=line_of(to.saturating_sub(1))).contains(&line))
    }

    /// Returns the word at a token index.
    pub(crate) fn word(&self, at: usize) -> Option<&str> {
        match &self.tokens.get(at)?.kind {
            Kind::Word(word) => Some(word),
            Kind::Text(_) | Kind::PathSeparator | Kind::Mark(_) => None,
        }
    }

    /// Returns whether these single-character marks and words are at a token index.
    fn has(&self, at: usize, wanted: &[&str]) -> bool {
        wanted.iter().enumerate().all(|(offset, wanted)| match self.tokens.get(at + offset).map(|token| &token.kind) {
            Some(Kind::Word(word)) => word == wanted,
            Some(Kind::Mark(mark)) => wanted.chars().eq([*mark]),
            Some(Kind::Text(_) | Kind::PathSeparator) | None => false,
        })
    }

    fn find_tests(&mut self) {
        for at in 0..self.tokens.len() {
            if !self.has(at, &["#", "[", "cfg", "(", "test", ")", "]"]) {
                continue;
            }
            let end = self.item_end(at);
            self.test_ranges.push((at, end + 1));
            if let (true, Some(module)) = (self.has(end, &[";"]), (at..end).find(|at| self.has(*at, &["mod"]))) {
                self.note_test_module(at, module);
            }
        }
    }

    /// Returns the index of the last token of the item that begins at `at`: its semicolon, or the brace that closes its
    /// body.
    pub(crate) fn item_end(&self, at: usize) -> usize {
        let mut at = at;
        while let Some(token) = self.tokens.get(at) {
            if [Kind::Mark('{'), Kind::Mark(';')].contains(&token.kind) {
                return token.end;
            }
            at = token.end + 1;
        }
        self.tokens.len()
    }

    fn note_test_module(&mut self, from: usize, module: usize) {
        let named = self.tokens[from..module].iter().find_map(|token| match &token.kind {
            Kind::Text(text) => Some(text.clone()),
            Kind::Word(_) | Kind::PathSeparator | Kind::Mark(_) => None,
        });
        let (folder, file) = self.name.rsplit_once('/').unwrap_or(("", &self.name));
        let own = match file {
            "mod.rs" | "lib.rs" | "main.rs" => folder.to_owned(),
            _ => self.name.trim_end_matches(".rs").to_owned(),
        };
        let Some(word) = self.word(module + 1) else { return };
        let added = match named {
            Some(path) => vec![format!("{folder}/{path}")],
            None => vec![format!("{own}/{word}.rs"), format!("{own}/{word}/")],
        };
        self.test_modules.extend(added);
    }
}

/// Marks the files that are test modules, as declared by their parents.
pub(crate) fn mark_test_files(sources: &mut [SourceFile]) {
    let modules: Vec<String> = sources.iter().flat_map(|source| source.test_modules.clone()).collect();
    for source in sources {
        source.is_test |= modules.iter().any(|module| {
            if module.ends_with('/') { source.name.starts_with(module.as_str()) } else { source.name == *module }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_module_ends_with_its_brace() {
        let source = SourceFile::new("src/net/a.rs", "use a::b; #[cfg(test)] mod tests { fn c() { d::e } } use f::g;");
        let marked: Vec<_> = source.paths.iter().map(|path| source.is_test_at(path.token)).collect();
        assert_eq!(marked, [false, true, false]);
    }

    #[test]
    fn a_file_is_a_test_if_its_parent_declares_it_as_one() {
        let mut sources = vec![
            SourceFile::new("src/net/mod.rs", "pub mod dns;"),
            SourceFile::new("src/net/dns.rs", "#[cfg(test)]\nmod zone;\n#[cfg(test)] #[path = \"x.rs\"] mod y;"),
            SourceFile::new("src/net/dns/zone.rs", ""),
            SourceFile::new("src/net/dns/zone/part.rs", ""),
            SourceFile::new("src/net/x.rs", ""),
            SourceFile::new("src/net/zone.rs", ""),
        ];
        mark_test_files(&mut sources);
        let marked: Vec<_> = sources.iter().map(|source| source.is_test).collect();
        assert_eq!(marked, [false, false, true, true, true, false]);
    }
}
