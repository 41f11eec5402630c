//! Paths in a token sequence, such as `crate::a::b`, anywhere in a file, with the groups of a `use` expanded.

use super::lexer::{Kind, Token};

/// A path as written, one for each member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourcePath {
    /// Its segments; `*` for a glob.
    pub(crate) segments: Vec<String>,
    /// The line of its last segment.
    pub(crate) line: usize,
    /// Index of its first token.
    pub(crate) token: usize,
}

impl SourcePath {
    /// Returns whether it begins with these segments.
    pub(crate) fn begins_with(&self, segments: &[&str]) -> bool {
        self.segments.len() >= segments.len() && self.segments.iter().zip(segments).all(|(own, other)| own == other)
    }

    /// Returns whether it ends with these segments.
    pub(crate) fn ends_with(&self, segments: &[&str]) -> bool {
        let tail = self.segments.len().checked_sub(segments.len()).map(|from| &self.segments[from..]);
        tail.is_some_and(|tail| tail.iter().zip(segments).all(|(own, other)| own == other))
    }
}

/// Returns every path of two or more segments in `tokens`, and the names in a `use` of one segment.
pub(crate) fn paths(tokens: &[Token]) -> Vec<SourcePath> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let mut reader = Reader { tokens, at, start: at, found: Vec::new() };
        if matches!(tokens[at].kind, Kind::Word(_)) && begins_path(tokens, at) {
            reader.tree(&mut Vec::new());
            let is_used = at > 0 && tokens[at - 1].kind == Kind::Word("use".into());
            found.extend(reader.found.into_iter().filter(|path| is_used || path.segments.len() > 1));
        }
        at = reader.at.max(at + 1);
    }
    found
}

/// Returns whether a word is a first segment: nothing, or only a leading `::`, precedes it.
fn begins_path(tokens: &[Token], at: usize) -> bool {
    let kind_before = |back: usize| at.checked_sub(back).map(|before| &tokens[before].kind);
    match kind_before(1) {
        Some(Kind::PathSeparator) => !matches!(kind_before(2), Some(Kind::Word(_) | Kind::Mark('>' | '}'))),
        // A field or method is not a path.
        Some(Kind::Mark('.')) => false,
        Some(_) | None => true,
    }
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    start: usize,
    found: Vec<SourcePath>,
}

impl Reader<'_> {
    fn kind(&self) -> Option<&Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    /// Reads a path or use-tree that continues `prefix`.
    fn tree(&mut self, prefix: &mut Vec<String>) {
        let depth = prefix.len();
        loop {
            match self.kind().cloned() {
                Some(Kind::Word(word)) => prefix.push(word),
                Some(Kind::Mark('*')) => prefix.push("*".into()),
                Some(Kind::Mark('{')) if !prefix.is_empty() => {
                    self.group(prefix);
                    break;
                }
                Some(_) | None => {
                    self.finish(prefix);
                    break;
                }
            }
            self.at += 1;
            if self.kind() != Some(&Kind::PathSeparator) {
                self.finish(prefix);
                break;
            }
            self.at += 1;
        }
        prefix.truncate(depth);
    }

    fn finish(&mut self, segments: &[String]) {
        let line = self.tokens[self.at.saturating_sub(1)].line;
        self.found.push(SourcePath { segments: segments.to_vec(), line, token: self.start });
    }

    /// Reads the members of a group, up to its closing brace.
    fn group(&mut self, prefix: &mut Vec<String>) {
        self.at += 1;
        loop {
            match self.kind() {
                Some(Kind::Mark('}')) | None => {
                    self.at += 1;
                    return;
                }
                Some(Kind::Word(word)) if word != "as" => self.tree(prefix),
                Some(Kind::Mark('*')) => self.tree(prefix),
                // A comma, or a rename, which is skipped with its `as`.
                Some(Kind::Word(_)) => self.at += 2,
                Some(Kind::Mark(_) | Kind::PathSeparator | Kind::Text(_)) => self.at += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lexer::tokens;
    use super::*;

    fn written(text: &str) -> Vec<String> {
        paths(&tokens(text)).into_iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn a_use_group_is_expanded() {
        assert_eq!(
            written("use crate::{base::{id, time as when}, net::*};\n"),
            ["crate::base::id", "crate::base::time", "crate::net::*"]
        );
    }

    #[test]
    fn paths_are_found_in_expressions_and_attributes() {
        assert_eq!(
            written("let x: crate::a::B = super::super::c(y.d, <E as F>::g);"),
            ["crate::a::B", "super::super::c"]
        );
        assert_eq!(written("#[tokio::test] fn a() { ::redb::open() }"), ["tokio::test", "redb::open"]);
        assert_eq!(written("use tokio; a.b; c::<d>()"), ["tokio"]);
    }
}
