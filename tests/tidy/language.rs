//! Plain language that a test can check: no doc comment begins with a question word, and no retired word comes
//! back. CONTRIBUTING.md has the rules that need a reader's judgement.

use super::Finding;
use super::source::SourceFile;

/// Beginnings that turn a doc comment into a riddle: it has no noun as its subject.
const QUESTION_WORDS: [&str; 8] = ["What", "Whatever", "Who", "Whoever", "Whose", "How", "However", "That which"];

/// Retired words, each with the plain one.
const RETIRED: [(&str, &str); 1] = [("anew", "again")];

/// Returns the doc comments of a Rust file that begin with a question word.
pub(crate) fn question_words(source: &SourceFile) -> Vec<Finding> {
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
        question_words(&SourceFile::new("src/a.rs", text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_doc_comment_begins_with_a_noun_or_a_verb() {
        assert_eq!(found("//! The store.\n//! What it keeps.\n\n/// Whose it is.\nfn a() {}"), [4]);
        assert_eq!(found("/// Whatsoever.\n/// How so?\nfn a() {}\n//! However, no."), [4]);
        assert_eq!(found("// What a line comment asks is not judged."), [0; 0]);
    }

    #[test]
    fn retired_words_are_found() {
        let text = ["Read it an", "ew.\nRead it again."].concat();
        let lines: Vec<_> = retired_words("a.md", &text).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1]);
    }
}
