//! The known name nearest to a misspelt one, for the hint beside "unknown field" (contract 1).

/// The one of `known` that differs from `name` least, where that is little enough to be a slip of the keys.
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // Beyond this a name is no slip, and the table below would cost what the caller chose.
    if name.len() > 64 {
        return None;
    }
    let most = name.chars().count() / 3 + 1;
    known
        .iter()
        .map(|candidate| (distance(&name.to_ascii_lowercase(), candidate), *candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, one row at a time.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
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
    }
}
