//! The known name nearest to a misspelt one: the hint beside an unknown field, parameter or configuration key.

/// Longer names are no slip of the keys, and the table below would cost what the caller chose.
const LONGEST: usize = 64;

/// The one of `known` that `name` probably meant: at most a third of it differs, case aside.
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    if name.len() > LONGEST {
        return None;
    }
    let lower = name.to_lowercase();
    let (differing, candidate) = known.iter().map(|known| (distance(&lower, known), *known)).min()?;
    (differing <= (candidate.len() / 3).max(1)).then_some(candidate)
}

/// Levenshtein's distance in characters, one row at a time.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, r) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(l != *r);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_a_strange_word_finds_none() {
        let known = ["from", "from_name", "unsubscribe_url", "text", "to"];
        assert_eq!(nearest("unsubscribe_ur", &known), Some("unsubscribe_url"));
        assert_eq!(nearest("From", &known), Some("from"));
        assert_eq!(nearest("attachments", &known), None);
        assert_eq!(nearest(&"a".repeat(65), &known), None);
    }
}
