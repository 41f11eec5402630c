//! Rust's tokens, as far as the rules need them: words, `::`, string literals, and single characters for the rest.
//! Comments, numbers and character literals are dropped, because no rule uses them.

use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};

/// A token and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// Kind of the token.
    pub(crate) kind: Kind,
    /// The line, from 1.
    pub(crate) line: usize,
    /// Index of the bracket that closes this one; the token's own index for other tokens.
    pub(crate) end: usize,
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

/// Returns the tokens of `text`.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    flatten(text.parse().expect("a Rust file has balanced brackets"), &mut found);
    found
}

fn flatten(stream: TokenStream, found: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        let line = tree.span().start().line;
        let is_colon = |tree: &TokenTree| matches!(tree, TokenTree::Punct(mark) if mark.as_char() == ':');
        let is_separator = is_colon(&tree) && trees.next_if(is_colon).is_some();
        let kind = match tree {
            TokenTree::Ident(word) => Kind::Word(word.to_string().trim_start_matches("r#").to_owned()),
            TokenTree::Punct(_) if is_separator => Kind::PathSeparator,
            TokenTree::Punct(mark) => Kind::Mark(mark.as_char()),
            TokenTree::Literal(literal) => match text_of(&literal) {
                Some(text) => Kind::Text(text),
                None => continue,
            },
            TokenTree::Group(group) => {
                flatten_group(&group, found);
                continue;
            }
        };
        found.push(Token { kind, line, end: found.len() });
    }
}

fn flatten_group(group: &Group, found: &mut Vec<Token>) {
    let (open, close) = match group.delimiter() {
        Delimiter::Parenthesis => ('(', ')'),
        Delimiter::Brace => ('{', '}'),
        Delimiter::Bracket => ('[', ']'),
        Delimiter::None => return flatten(group.stream(), found),
    };
    let first = group.stream().into_iter().next();
    // A doc comment is an attribute too.
    if open == '[' && matches!(first, Some(TokenTree::Ident(word)) if word == "doc") {
        return;
    }
    let opening = found.len();
    found.push(Token { kind: Kind::Mark(open), line: group.span_open().start().line, end: opening });
    flatten(group.stream(), found);
    found[opening].end = found.len();
    found.push(Token { kind: Kind::Mark(close), line: group.span_close().start().line, end: found.len() });
}

/// Returns the content of a string literal; `None` for other literals.
fn text_of(literal: &Literal) -> Option<String> {
    let written = literal.to_string();
    let quoted = written.trim_start_matches(['b', 'c', 'r', '#']).trim_end_matches('#');
    Some(quoted.strip_prefix('"')?.strip_suffix('"')?.to_owned())
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
        assert_eq!(words(r#"a("b \" c", 'd', '\'', b"e", b'f') g"#), ["a", "g"]);
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

    #[test]
    fn a_bracket_has_the_index_of_the_one_that_closes_it() {
        let ends: Vec<_> = tokens("/// a\nb { c(d) }").iter().map(|token| token.end).collect();
        assert_eq!(ends, [0, 1, 7, 3, 6, 5, 6, 7]);
    }
}
