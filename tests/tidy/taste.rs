//! Formal rules: a file has a header and a bounded length, lines have a bounded width, and no unfinished work is
//! committed.

use super::Finding;
use super::lexer::Kind;
use super::source::SourceFile;

/// Maximum number of lines of a file.
const LINES_MAX: usize = 400;
/// Maximum number of columns of a line, as in rustfmt.toml.
const COLUMNS_MAX: usize = 120;

/// Returns the problems of a Rust file.
pub(crate) fn faults_of_taste(source: &SourceFile) -> Vec<Finding> {
    let finding = |line, what: &str| Finding::new(&source.name, line, what);
    let mut findings = Vec::new();
    let first = source.lines.first().map_or("", String::as_str);
    if !first.starts_with("//!") && !first.starts_with("#![doc = include_str!") {
        findings.push(finding(1, "begin with `//!`: the file's purpose, its callers, and its invariants"));
    }
    if source.lines.len() > LINES_MAX {
        findings.push(finding(LINES_MAX + 1, "split the file: it has over 400 lines"));
    }
    for (line, text) in (1..).zip(&source.lines) {
        // Test data may be wider, because it must stay byte for byte; comments may not.
        let is_data = !text.trim_start().starts_with("//") && source.is_test_line(line);
        if text.chars().count() > COLUMNS_MAX && !is_data {
            findings.push(finding(line, "break the line: it has over 120 columns"));
        }
    }
    for (at, pair) in source.tokens.windows(2).enumerate() {
        let is_unfinished = source.word(at).is_some_and(|word| ["todo", "unimplemented", "dbg"].contains(&word));
        if is_unfinished && pair[1].kind == Kind::Mark('!') {
            findings.push(finding(pair[0].line, "finish it: no `todo!`, `unimplemented!` or `dbg!` is committed"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        faults_of_taste(&SourceFile::new("src/a.rs", text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_file_starts_with_its_header() {
        assert_eq!(found("//! A noun.\n\nuse a::b;\n"), [0; 0]);
        assert_eq!(found("use a::b;\n"), [1]);
        assert_eq!(found(""), [1]);
    }

    #[test]
    fn length_and_width_are_bounded() {
        assert_eq!(found(&"//!\n".repeat(LINES_MAX)), [0; 0]);
        assert_eq!(found(&"//!\n".repeat(LINES_MAX + 1)), [LINES_MAX + 1]);
        assert_eq!(found(&format!("//! {}\n//! {}", "ä".repeat(116), "ä".repeat(117))), [2]);
        let wide = format!("const A: &str = \"{}\";", "a".repeat(120));
        assert_eq!(found(&format!("//!\n{wide}\n#[cfg(test)]\nmod tests {{\n{wide}\n}}")), [2]);
    }

    #[test]
    fn unfinished_work_is_found_in_code_but_not_in_comments() {
        assert_eq!(found("//! No `todo!` here.\nfn a() {\n    todo!()\n}\nfn b() { dbg!(\"todo!()\") }"), [3, 5]);
    }
}
