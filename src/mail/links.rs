//! The links in a message: the values of `href` and `src` in its HTML, and the URLs in its text.

/// Maximum length of a link in bytes. Longer ones are ignored.
const LINK_BYTES_MAX: usize = 8192;
const SCHEMES: [&str; 3] = ["https://", "http://", "mailto:"];

/// Returns the links of `html`, then those of `text`, without duplicates.
pub(super) fn links(html: &str, text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for link in of_html(html).into_iter().chain(of_text(text)) {
        if link.len() <= LINK_BYTES_MAX && !found.contains(&link) {
            found.push(link);
        }
    }
    found
}

fn is_link(value: &str) -> bool {
    SCHEMES.iter().any(|scheme| value.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme)))
}

/// Returns the values of `href` and `src` in tags, with character references resolved. Comments are skipped.
fn of_html(html: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.split_once("-->").map_or("", |(_, after)| after);
            continue;
        }
        if rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            rest = attributes(rest, &mut found);
        }
    }
    found
}

/// Reads one tag to its end, and returns the rest.
fn attributes<'h>(tag: &'h str, found: &mut Vec<String>) -> &'h str {
    let mut rest = tag.trim_start_matches(|c: char| !c.is_ascii_whitespace() && c != '>' && c != '/');
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        if rest.is_empty() || rest.starts_with('>') {
            return rest;
        }
        let name_end =
            rest.find(|c: char| c.is_ascii_whitespace() || matches!(c, '=' | '>' | '/')).unwrap_or(rest.len());
        // A lone `=` would be a name of length zero.
        let (name, after) = rest.split_at(name_end.max(1).min(rest.len()));
        let Some(value) = after.trim_start().strip_prefix('=') else {
            rest = after;
            continue;
        };
        let (value, after) = attribute_value(value.trim_start());
        if matches!(name.to_ascii_lowercase().as_str(), "href" | "src") {
            let value = resolved(value.trim());
            found.extend(is_link(&value).then_some(value));
        }
        rest = after;
    }
}

/// Returns the value, and the rest after it.
fn attribute_value(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(inside) = text.strip_prefix(quote) {
            return inside.split_once(quote).unwrap_or((inside, ""));
        }
    }
    text.split_at(text.find(|c: char| c.is_ascii_whitespace() || c == '>').unwrap_or(text.len()))
}

/// Resolves the character references that occur in URLs.
fn resolved(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(start) = rest.find('&') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let reference = rest[1..].split_once(';').and_then(|(name, after)| Some((character(name)?, after)));
        match reference {
            Some((character, after)) => {
                out.push(character);
                rest = after;
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn character(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)
        }
    }
}

/// Returns the http and https URLs of a text, without the punctuation after them.
fn of_text(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in text.split(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"')) {
        let lower = word.to_ascii_lowercase();
        let starts = ["https://", "http://"].into_iter().filter_map(|scheme| lower.find(scheme));
        let Some(start) = starts.min() else { continue };
        const PUNCTUATION: [char; 8] = ['.', ',', ';', ':', '!', '?', '\'', ']'];
        // A token may end with `_`. It is emphasis only if there is one before the link.
        let is_emphasis = |c: char| c == '*' || (c == '_' && word[..start].ends_with('_'));
        let mut link = word[start..].trim_end_matches(|c| PUNCTUATION.contains(&c) || is_emphasis(c));
        if link.ends_with(')') && !link.contains('(') {
            link = link.trim_end_matches(')').trim_end_matches(['.', ',', ';', ':', '!', '?']);
        }
        found.push(link.to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_html_come_first_resolved_and_without_duplicates() {
        let html = "<p>x</p><A class=b HREF='https://e.test/?a=1&amp;b=2'>go</A><img src=http://e.test/i.png alt>\
            <!-- <a href=\"https://hidden.test/\"> --><a href=\"#top\">t</a><img src=\"cid:logo\"/><a href=\"mailto:a@e.test\">\
            <a href=\"https://e.test/&#x41;\">< a href=x";
        let text = "Go to https://e.test/?a=1&b=2 or (https://e.test/t), <https://e.test/u>. See http://e.test/w_(x).";
        assert_eq!(
            links(html, text),
            [
                "https://e.test/?a=1&b=2",
                "http://e.test/i.png",
                "mailto:a@e.test",
                "https://e.test/A",
                "https://e.test/t",
                "https://e.test/u",
                "http://e.test/w_(x)",
            ]
        );
    }

    #[test]
    fn malformed_markup_does_not_stop_the_search() {
        for html in ["<", "<a", "<a href", "<a href=", "<a href=\"https://e.test/", "<a =x>", "<!--", "<é><a ='"] {
            links(html, "");
        }
        assert_eq!(links("<a =x href=https://e.test/>", ""), ["https://e.test/"]);
    }

    #[test]
    fn a_link_of_a_text_keeps_its_last_character_unless_that_is_punctuation_or_emphasis() {
        for (text, link) in [
            ("Reset: https://e.test/r?t=ab_", "https://e.test/r?t=ab_"),
            ("_https://e.test/a_ now", "https://e.test/a"),
            ("**https://e.test/a.** or", "https://e.test/a"),
            ("*Reset: https://e.test/r?t=ab*", "https://e.test/r?t=ab"),
            ("HTTPS://e.test/a.", "HTTPS://e.test/a"),
        ] {
            assert_eq!(links("", text), [link], "{text}");
        }
    }
}
