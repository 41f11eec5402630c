//! Language rules that a test can check: no doc comment begins with a question word, no retired word returns, and no
//! function is longer than 70 lines. CONTRIBUTING.md has the rules that need a reader's judgement.

use super::Finding;
use super::lexer::Kind;
use super::source::SourceFile;

/// Maximum number of lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Functions that are tables with one row after the other: the routes, and the partners of each table's rows.
const TABLES: [&str; 2] = ["routes", "partners"];

/// Words that must not begin a doc comment: the sentence would have no noun as its subject.
const QUESTION_WORDS: [&str; 8] = ["What", "Whatever", "Who", "Whoever", "Whose", "How", "However", "That which"];

/// Retired words, each with the plain one.
const RETIRED: [(&str, &str); 1] = [("anew", "again")];

/// Returns the places of a Rust file that break a rule.
pub(crate) fn faults_of_language(source: &SourceFile) -> Vec<Finding> {
    let mut findings = question_words(source);
    findings.extend(long_functions(source));
    findings
}

/// Returns the doc comments that begin with a question word.
fn question_words(source: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_inside = false;
    for (line, text) in (1..).zip(&source.lines) {
        let text = text.trim_start();
        let comment = text.strip_prefix("///").or_else(|| text.strip_prefix("//!")).map(str::trim_start);
        let begins = |word: &&&str| {
            comment.and_then(|comment| comment.strip_prefix(**word)).is_some_and(|rest| rest.starts_with([' ', ',']))
        };
        if let (false, Some(word)) = (is_inside, QUESTION_WORDS.iter().find(begins)) {
            findings.push(Finding::new(
                &source.name,
                line,
                format!("begin with a noun or a verb in the third person, not with \"{word}\""),
            ));
        }
        is_inside = comment.is_some();
    }
    findings
}

/// Returns the functions that are too long to read.
fn long_functions(source: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, token) in source.tokens.iter().enumerate() {
        let is_function = token.kind == Kind::Word("fn".to_owned()) && !source.is_test_at(at);
        let name = source.word(at + 1).filter(|_| is_function);
        let Some(name) = name.filter(|name| !TABLES.contains(name)) else { continue };
        let Some(last) = source.tokens.get(source.item_end(at)) else { continue };
        let lines = last.line - token.line + 1;
        if lines > FUNCTION_LINES_MAX {
            findings.push(Finding::new(
                &source.name,
                token.line,
                format!("split `{name}`: it has {lines} lines, and the limit is {FUNCTION_LINES_MAX}"),
            ));
        }
    }
    findings
}

/// Returns the lines of a text that have a retired word.
pub(crate) fn retired_words(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if let Some((word, plain)) = RETIRED.iter().find(|(retired, _)| retired.eq_ignore_ascii_case(word)) {
                findings.push(Finding::new(file, line, format!("write \"{plain}\" for \"{word}\"")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        faults_of_language(&SourceFile::new("src/a.rs", text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_doc_comment_begins_with_a_noun_or_a_verb() {
        assert_eq!(found("//! The store.\n//! What it keeps.\n\n/// Whose it is.\nfn a() {}"), [4]);
        assert_eq!(found("/// Whatsoever.\n/// How so?\nfn a() {}\n//! However, no."), [4]);
        assert_eq!(found("// What a line comment asks is not judged."), [0; 0]);
    }

    #[test]
    fn a_function_has_at_most_70_lines() {
        let of = |lines: usize| format!("fn a() {{\n{}}}", "b();\n".repeat(lines - 2));
        assert_eq!(found(&of(FUNCTION_LINES_MAX)), [0; 0]);
        assert_eq!(found(&of(FUNCTION_LINES_MAX + 1)), [1]);
        assert_eq!(found(&format!("trait A {{ fn a(b: [u8; 2]); }}\n{}", of(71))), [2]);
        assert_eq!(found(&of(71).replace("a()", "a(b: [u8; 2]) -> [u8; 1]")), [1]);
    }

    #[test]
    fn retired_words_are_found() {
        let text = ["Read it an", "ew.\nRead it again."].concat();
        let lines: Vec<_> = retired_words("a.md", &text).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1]);
    }
}
