//! Citations of the contract. Each section that a source cites must exist in `docs/internals/contract.md`. Documents
//! that are not in the repository must not be cited.

use std::collections::BTreeSet;

use super::Finding;

/// The document that sources cite as "contract 5" or "contract 10.2".
pub(crate) const CONTRACT: &str = "docs/internals/contract.md";

/// Names of documents that are not part of the repository.
const ELSEWHERE: [&str; 3] = ["spec", "hardening", "adoption"];

/// Returns the numbers of a document's sections: `## 5. Title` is 5, `### 10.2 Title` is 10.2.
pub(crate) fn sections(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter(|line| line.starts_with("##"));
    let numbers = headings.filter_map(|line| line.trim_start_matches('#').split_whitespace().next());
    let numbers = numbers.map(|number| number.trim_end_matches('.'));
    numbers.filter(|number| is_number(number)).map(str::to_owned).collect()
}

/// Reports citations of sections that do not exist, and of documents that are not in the repository.
pub(crate) fn broken_citations(file: &str, text: &str, sections: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_start_matches('(')).collect();
        for (at, pair) in words.windows(2).enumerate() {
            let document = pair[0].to_lowercase();
            if document == "contract" {
                let cited = numbers(&words[at + 1..]);
                let missing = cited.into_iter().filter(|number| !sections.contains(*number));
                findings.extend(missing.map(|number| {
                    Finding::new(file, line, format!("cite a section of {CONTRACT}: it has no section {number}"))
                }));
            } else if ELSEWHERE.contains(&document.as_str()) && starts_with_section(pair[1]) {
                let what =
                    format!("cite {CONTRACT} instead of `{} {}`, which is not in the repository", pair[0], pair[1]);
                findings.push(Finding::new(file, line, what));
            }
        }
    }
    findings
}

/// Returns the section numbers at the start of `words`: one, or several joined by `and` or `to`.
fn numbers<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut found = Vec::new();
    for word in words {
        match number(word) {
            Some(number) => found.push(number),
            None if ["and", "to"].contains(word) && !found.is_empty() => {}
            None => break,
        }
        // Punctuation ends the citation: a number after it is about something else.
        if number(word).is_some_and(|number| number != *word) {
            break;
        }
    }
    found
}

/// Returns the section number in a word, without the punctuation around it.
fn number(word: &str) -> Option<&str> {
    let number = word.trim_end_matches(|end: char| !end.is_ascii_digit());
    is_number(number).then_some(number)
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns whether a word begins like a section number of other documents: `6.2`, `B4`.
fn starts_with_section(word: &str) -> bool {
    let word = word.trim_end_matches(|end: char| !end.is_ascii_alphanumeric());
    is_number(word) || matches!(word.as_bytes(), [b'A'..=b'D'] | [b'A'..=b'D', b'0'..=b'9'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# The contract\n\n## 1. Conventions\n\n### Errors\n\n## 10. Peers\n\n### 10.2 Boundaries\n";

    fn lines(text: &str) -> Vec<usize> {
        broken_citations("src/a.rs", text, &sections(DOCUMENT)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn numbered_headings_are_sections() {
        assert_eq!(sections(DOCUMENT).iter().map(String::as_str).collect::<Vec<_>>(), ["1", "10", "10.2"]);
    }

    #[test]
    fn a_citation_of_a_missing_section_is_found() {
        let text = "(contract 1)\n(contract 2)\ncontract 1 and 10.2.\ncontract 1 and 10.3\nContract 1, Errors\n";
        assert_eq!(lines(text), [2, 4]);
    }

    #[test]
    fn numbers_after_a_citation_are_not_sections() {
        assert_eq!(
            lines(
                "(contract 1: at least 12 s)\n(contract 1), 256 MiB\nContract 10's 20 MiB\ncontract 10). 7 of them\na contract of 7 pages"
            ),
            [0; 0]
        );
    }

    #[test]
    fn citations_of_external_documents_are_found() {
        assert_eq!(lines(&["spec", " 6.2\n", "adoption", " B4)\n", "adoption", " of 5\n"].concat()), [1, 2]);
    }
}
