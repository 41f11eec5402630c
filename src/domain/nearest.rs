//! The known name nearest to a misspelt one, for the hint about an unknown field, parameter or configuration key.

/// Maximum length of a name that gets a hint. Longer names are not typing errors, and their table would be as large as
/// the caller wants.
const LONGEST: usize = 64;

/// Returns the name of `known` that `name` probably means: at most a third of it differs, ignoring case.
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    if name.len() > LONGEST {
        return None;
    }
    let lower = name.to_lowercase();
    let (differing, candidate) = known.iter().map(|known| (distance(&lower, known), *known)).min()?;
    (differing <= (candidate.len() / 3).max(1)).then_some(candidate)
}

/// Returns the number of typing errors between two texts: inserted, missing, replaced or swapped characters.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for i in 0..left.len() {
        let mut next = vec![i + 1];
        for j in 0..right.len() {
            let replaced = row[j] + usize::from(left[i] != right[j]);
            let mut least = replaced.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && left[i] == right[j - 1] && left[i - 1] == right[j] {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_finds_its_name_and_an_unrelated_word_none() {
        let known = ["from", "from_name", "unsubscribe_url", "text", "to"];
        assert_eq!(nearest("unsubscribe_ur", &known), Some("unsubscribe_url"));
        assert_eq!(nearest("From", &known), Some("from"));
        assert_eq!(nearest("form", &known), Some("from"));
        assert_eq!(nearest("txet", &known), Some("text"));
        assert_eq!(nearest("attachments", &known), None);
        assert_eq!(nearest(&"a".repeat(65), &known), None);
    }
}
