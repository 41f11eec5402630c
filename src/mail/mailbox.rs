//! The mailbox list of an address header (RFC 5322 3.4): quoted display names, comments, angle brackets.
//!
//! Strict on ambiguity: a text that some program might read as two addresses is not a single mailbox. Groups, obsolete
//! routes and an `@` in an unquoted display name are refused.

use crate::domain::address::Address;

/// One entry of the list.
#[derive(Debug)]
pub(super) struct Mailbox {
    /// The display name, unquoted.
    pub(super) display: Option<String>,
    /// The address.
    pub(super) address: Address,
}

/// Position of the parser relative to the angle brackets of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BracketState {
    Before,
    Inside,
    After,
}

/// An entry that is being parsed.
struct Draft {
    outside: String,
    inside: String,
    angle: BracketState,
    special: bool,
}

impl Draft {
    const fn new() -> Self {
        Self { outside: String::new(), inside: String::new(), angle: BracketState::Before, special: false }
    }

    fn push(&mut self, character: char) -> Option<()> {
        match self.angle {
            BracketState::Before => self.outside.push(character),
            BracketState::Inside => self.inside.push(character),
            BracketState::After if character.is_whitespace() => {}
            BracketState::After => return None,
        }
        Some(())
    }

    fn finish(self) -> Option<Mailbox> {
        let outside = self.outside.trim();
        match self.angle {
            BracketState::Before => Some(Mailbox { display: None, address: outside.parse().ok()? }),
            BracketState::Inside => None,
            BracketState::After if self.special => None,
            BracketState::After => {
                let display = (!outside.is_empty()).then(|| unquoted(outside));
                Some(Mailbox { display, address: self.inside.trim().parse().ok()? })
            }
        }
    }
}

/// Parses an unfolded value; `None` if it is not a mailbox list.
pub(super) fn list(value: &str) -> Option<Vec<Mailbox>> {
    let mut list = Vec::new();
    let mut draft = Draft::new();
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '(' => skip_comment(&mut characters)?,
            '"' => copy_quoted(&mut draft, &mut characters)?,
            '<' if draft.angle == BracketState::Before => draft.angle = BracketState::Inside,
            '>' if draft.angle == BracketState::Inside => draft.angle = BracketState::After,
            '<' | '>' => return None,
            ',' if draft.angle != BracketState::Inside => {
                list.push(std::mem::replace(&mut draft, Draft::new()).finish()?)
            }
            _ => {
                draft.special |= draft.angle == BracketState::Before && matches!(character, '@' | ':' | ';');
                draft.push(character)?;
            }
        }
    }
    list.push(draft.finish()?);
    Some(list)
}

fn skip_comment(characters: &mut std::str::Chars<'_>) -> Option<()> {
    let mut depth = 1_usize;
    while depth > 0 {
        match characters.next()? {
            '(' => depth += 1,
            ')' => depth -= 1,
            '\\' => drop(characters.next()?),
            _ => {}
        }
    }
    Some(())
}

fn copy_quoted(draft: &mut Draft, characters: &mut std::str::Chars<'_>) -> Option<()> {
    draft.push('"')?;
    loop {
        let character = characters.next()?;
        draft.push(character)?;
        match character {
            '"' => return Some(()),
            '\\' => draft.push(characters.next()?)?,
            _ => {}
        }
    }
}

fn unquoted(phrase: &str) -> String {
    let mut plain = String::with_capacity(phrase.len());
    let mut characters = phrase.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {}
            '\\' => plain.extend(characters.next()),
            _ => plain.push(character),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: &str) -> Option<String> {
        let list = list(value)?;
        let [entry] = list.as_slice() else { return None };
        Some(format!("{}|{}", entry.display.as_deref().unwrap_or_default(), entry.address))
    }

    #[test]
    fn parses_one_mailbox_in_every_common_form() {
        for (given, read) in [
            ("a@example.com", "|a@example.com"),
            ("<a@example.com>", "|a@example.com"),
            ("Ann Lee <a@example.com>", "Ann Lee|a@example.com"),
            (r#""Lee, Ann (@home) <x>" <a@example.com>"#, "Lee, Ann (@home) <x>|a@example.com"),
            (r#""a \"b\"" <a@example.com>"#, "a \"b\"|a@example.com"),
            ("a@example.com (Ann, b@example.net)", "|a@example.com"),
            ("=?utf-8?q?J=C3=B6?= <a@example.com>", "=?utf-8?q?J=C3=B6?=|a@example.com"),
            (r#""a@b"@example.com"#, r#"|"a@b"@example.com"#),
        ] {
            assert_eq!(one(given).as_deref(), Some(read), "{given}");
        }
    }

    #[test]
    fn an_ambiguous_text_is_not_a_single_mailbox() {
        for bad in [
            "",
            "Ann",
            "a@example.com, b@example.net",
            "a@example.com <b@example.net>",
            "<a@example.com> <b@example.net>",
            "<a@example.com> b@example.net",
            "group: a@example.com;",
            "a@example.com,",
            "\"a <a@example.com>",
            "(a <a@example.com>",
            "<a@example.com",
            "<@hop:a@example.com>",
            "<a@[192.0.2.1]>",
            "a@example.com b@example.net",
            "<<a@example.com>>",
            "a@localhost",
        ] {
            assert_eq!(one(bad), None, "{bad}");
        }
    }
}
