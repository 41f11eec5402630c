//! The words of a subject for searches, which match prefixes of words in any case. The message index and the check of a
//! single row both use this file, so that they always agree.

/// Number of characters of a prefix that are indexed.
const BEGINNING: usize = 12;
/// Number of characters of a prefix in scripts without spaces, where a word may begin at every character.
const BEGINNING_UNSPACED: usize = 2;

/// Returns the words to search for in `text`: in lower case, split at spaces and punctuation.
pub fn wanted(text: &str) -> Vec<String> {
    text.to_lowercase().split(divides).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Returns whether each of `wanted` is a prefix of a word in `subject`.
pub fn has_all(subject: &str, wanted: &[String]) -> bool {
    if wanted.is_empty() {
        return true;
    }
    let lower = subject.to_lowercase();
    // Most subjects lack a word, and finding text is several times as fast as finding the beginnings of words.
    wanted.iter().all(|wanted| lower.contains(wanted.as_str()))
        && wanted.iter().all(|wanted| starts(&lower).any(|rest| rest.starts_with(wanted.as_str())))
}

/// Calls `each` with all word prefixes that find `subject`.
pub fn for_each_beginning(subject: &str, each: &mut dyn FnMut(&str)) {
    let lower = subject.to_lowercase();
    for rest in starts(&lower) {
        let characters = rest.char_indices().take(longest(rest)).take_while(|(_, character)| !divides(*character));
        characters.for_each(|(at, character)| each(&rest[..at + character.len_utf8()]));
    }
}

/// Returns the longest prefix of a wanted word for which [`for_each_beginning`] calls back.
pub fn beginning(word: &str) -> &str {
    word.char_indices().nth(longest(word)).map_or(word, |(end, _)| &word[..end])
}

/// Returns the text from each beginning of a word. In scripts without spaces a word begins at every character.
fn starts(lower: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    lower.char_indices().filter_map(move |(at, character)| {
        let divides = divides(character);
        let begins = !divides && (!is_inside || is_unspaced(character));
        is_inside = !divides;
        begins.then(|| &lower[at..])
    })
}

fn longest(word: &str) -> usize {
    if word.starts_with(is_unspaced) { BEGINNING_UNSPACED } else { BEGINNING }
}

fn divides(character: char) -> bool {
    character.is_whitespace()
        || character.is_control()
        || character.is_ascii_punctuation()
        || matches!(character, '\u{a1}' | '\u{ab}' | '\u{bb}' | '\u{bf}')
        || matches!(character, '\u{2000}'..='\u{206f}' | '\u{3000}'..='\u{303f}')
}

/// Returns whether the script of `character` has no spaces: Thai to Khmer, kana and ideographs.
const fn is_unspaced(character: char) -> bool {
    matches!(character, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(subject: &str, wanted: &str) -> bool {
        has_all(subject, &super::wanted(wanted))
    }

    #[test]
    fn a_search_matches_word_prefixes_in_any_case_and_order() {
        let subject = "Re: Your order #10482-A, größer 🎉";
        for wanted in ["order", "ORD", "10482", "10482-a", "a order your", "Größ", "🎉", "re:", ""] {
            assert!(finds(subject, wanted), "{wanted}");
        }
        for wanted in ["rder", "0482", "order invoice", "ordering"] {
            assert!(!finds(subject, wanted), "{wanted}");
        }
    }

    #[test]
    fn text_without_spaces_matches_at_any_character() {
        assert!(finds("ご注文は東京都庁へ", "東京都") && finds("ご注文は東京都庁へ", "注文"));
        assert!(!finds("ご注文は東京都庁へ", "京東"));
    }

    #[test]
    fn a_word_is_indexed_by_prefixes_up_to_the_limit() {
        let shown = |subject: &str| {
            let mut shown = Vec::new();
            for_each_beginning(subject, &mut |beginning| shown.push(beginning.to_owned()));
            shown
        };
        assert_eq!(shown("größ, A"), ["g", "gr", "grö", "größ", "a"]);
        assert_eq!(shown("0123456789abcdef").last().unwrap(), beginning("0123456789abcdef"));
        assert_eq!(shown("東京都"), ["東", "東京", "京", "京都", "都"]);
        assert_eq!((beginning("東京都"), beginning("größe")), ("東京", "größe"));
    }
}
