//! Rust's tokens, as far as the rules need them: words, `::`, string literals, and single characters for the rest.
//! Comments, numbers, lifetimes and character literals are dropped, because no rule uses them.

/// A token and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// Kind of the token.
    pub(crate) kind: Kind,
    /// The line, from 1.
    pub(crate) line: usize,
}

/// Kind of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier or keyword.
    Word(String),
    /// The content of a string literal, with its escapes.
    Text(String),
    /// `::`.
    PathSeparator,
    /// Any other character.
    Mark(char),
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
}

/// Returns the tokens of `text`.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { rest: text, line: 1, tokens: Vec::new() };
    while let Some(first) = lexer.rest.chars().next() {
        lexer.step(first);
    }
    lexer.tokens
}

impl Lexer<'_> {
    fn step(&mut self, first: char) {
        if self.rest.starts_with("//") {
            self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.skip(block_comment(self.rest));
        } else if let Some(opening) = string_opening(self.rest) {
            self.string(opening);
        } else if first == '\'' {
            self.skip(quote(self.rest));
        } else if first.is_alphabetic() || first == '_' {
            self.word();
        } else if first.is_ascii_digit() {
            self.skip(self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("::") {
            self.push(Kind::PathSeparator, 2);
        } else if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else {
            self.push(Kind::Mark(first), first.len_utf8());
        }
    }

    fn push(&mut self, kind: Kind, length: usize) {
        self.tokens.push(Token { kind, line: self.line });
        self.skip(length);
    }

    fn skip(&mut self, length: usize) {
        let (skipped, rest) = self.rest.split_at(length);
        self.line += skipped.matches('\n').count();
        self.rest = rest;
    }

    fn word(&mut self) {
        if self.rest.starts_with("r#") {
            self.skip(2);
        }
        let length = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        self.push(Kind::Word(self.rest[..length].to_owned()), length.max(1));
    }

    fn string(&mut self, opening: Opening) {
        let body = &self.rest[opening.length..];
        let end = match opening.hashes {
            Some(hashes) => body.find(&format!("\"{}", "#".repeat(hashes))).unwrap_or(body.len()),
            None => unescaped(body, '"'),
        };
        let closing = 1 + opening.hashes.unwrap_or(0);
        let whole = (opening.length + end + closing).min(self.rest.len());
        self.push(Kind::Text(body[..end].to_owned()), whole);
    }
}

/// Opening of a string literal.
struct Opening {
    /// Length in bytes, including the quotation mark.
    length: usize,
    /// Number of `#` of a raw string; `None` for a string with escapes.
    hashes: Option<usize>,
}

fn string_opening(text: &str) -> Option<Opening> {
    let prefix = ["br", "cr", "b", "c", "r", ""]
        .into_iter()
        .find(|prefix| text.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('"') || rest.starts_with('#')))?;
    let rest = &text[prefix.len()..];
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    if !rest[hashes..].starts_with('"') || (hashes > 0 && !prefix.ends_with('r')) {
        return None;
    }
    Some(Opening { length: prefix.len() + hashes + 1, hashes: prefix.ends_with('r').then_some(hashes) })
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Returns the position of `end` without a backslash before it.
fn unescaped(text: &str, end: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match (escaped, character) {
            (true, _) => escaped = false,
            (false, '\\') => escaped = true,
            (false, character) if character == end => return at,
            (false, _) => {}
        }
    }
    text.len()
}

/// Returns the length of a character literal or a lifetime.
fn quote(text: &str) -> usize {
    let body = &text[1..];
    let mut characters = body.chars();
    match (characters.next(), characters.next()) {
        (Some('\\'), _) => (1 + unescaped(body, '\'') + 1).min(text.len()),
        (Some(first), Some('\'')) => 1 + first.len_utf8() + 1,
        (_, _) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let word = |token: Token| match token.kind {
            Kind::Word(word) => Some(word),
            Kind::Text(_) | Kind::PathSeparator | Kind::Mark(_) => None,
        };
        tokens(text).into_iter().filter_map(word).collect()
    }

    #[test]
    fn comments_and_strings_contain_no_words() {
        assert_eq!(words("a // use b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(words(r#"a("b \" c", 'd', '\'', b"e", b'f') g"#), ["a", "b", "g"]);
        assert_eq!(words("a r\"b\\\" c br##\"d \"# e\"## r#type f"), ["a", "c", "type", "f"]);
    }

    #[test]
    fn a_lifetime_does_not_open_a_character() {
        assert_eq!(words("fn a<'b>(c: &'b str, d: 'static)"), ["fn", "a", "b", "c", "b", "str", "d", "static"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let found = tokens("/* 1\n2 */ \"3\n4\"\n a :: b");
        let lines: Vec<_> = found.iter().map(|token| token.line).collect();
        assert_eq!(lines, [2, 4, 4, 4]);
        assert_eq!(found[2].kind, Kind::PathSeparator);
    }
}
