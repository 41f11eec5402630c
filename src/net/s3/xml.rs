//! Reads the few elements needed of an S3 service's XML. Not an XML parser: it searches for elements by name, which
//! never contain themselves in these documents. Takes linear time for any text.

/// Returns the raw content of the first element `name`.
pub(super) fn first<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    elements(xml, name).next()
}

/// Returns the decoded text of the first element `name`.
pub(super) fn text(xml: &str, name: &str) -> Option<String> {
    first(xml, name).map(decoded)
}

/// Returns the contents of all elements `name`, in order.
pub(super) fn elements<'a>(xml: &'a str, name: &str) -> Elements<'a> {
    Elements { rest: xml, name: name.to_owned() }
}

/// Iterator over the contents of the elements of one name.
pub(super) struct Elements<'a> {
    rest: &'a str,
    name: String,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        loop {
            let at = self.rest.find('<')?;
            let tag = &self.rest[at + 1..];
            let Some(behind) = tag.strip_prefix(self.name.as_str()) else {
                self.rest = tag;
                continue;
            };
            let is_tag = behind.starts_with(['>', '/', ' ', '\t', '\r', '\n']);
            let Some(end) = behind.find('>').filter(|_| is_tag) else {
                self.rest = tag;
                continue;
            };
            let inner = &behind[end + 1..];
            if behind[..end].ends_with('/') {
                self.rest = inner;
                return Some("");
            }
            let close = format!("</{}>", self.name);
            // An element without an end tag is the last.
            let length = inner.find(&close).unwrap_or(inner.len());
            self.rest = inner.get(length + close.len()..).unwrap_or_default();
            return (length < inner.len() || inner.is_empty()).then(|| &inner[..length]);
        }
    }
}

/// Replaces the character references of a text. An invalid reference stays as it is.
fn decoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        // The longest reference is "&#x10FFFF;".
        let end = rest.bytes().take(10).position(|byte| byte == b';');
        match end.and_then(|end| Some((character(&rest[1..end])?, end))) {
            Some((character, end)) => {
                out.push(character);
                rest = &rest[end + 1..];
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

fn character(reference: &str) -> Option<char> {
    Some(match reference {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        other => {
            let number = other.strip_prefix('#')?;
            let number = match number.strip_prefix('x') {
                Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
                None => number.parse(),
            };
            char::from_u32(number.ok()?)?
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn elements_are_found_by_name() {
        let xml = "<?xml version=\"1.0\"?><R xmlns=\"u\"><KeyCount>2</KeyCount><Contents><Key>a&amp;b&#x2f;c</Key>\
                   <Size>1</Size></Contents><Contents><Key>d</Key></Contents><Empty/><Spaced a=\"1\">x</Spaced></R>";
        let keys: Vec<_> = elements(xml, "Contents").map(|contents| text(contents, "Key").unwrap()).collect();
        assert_eq!(keys, ["a&b/c", "d"]);
        assert_eq!((first(xml, "Empty"), first(xml, "Spaced")), (Some(""), Some("x")));
        assert_eq!(first(xml, "Key"), Some("a&amp;b&#x2f;c"), "KeyCount is another element");
        assert_eq!(first(xml, "Absent"), None);
        assert_eq!(first("<Key>never ends", "Key"), None);
    }

    #[test]
    fn an_invalid_character_reference_stays_as_it_is() {
        assert_eq!(decoded("a & b &unknown; &#xd800; &amp"), "a & b &unknown; &#xd800; &amp");
        assert_eq!(decoded("&lt;&gt;&quot;&apos;&#228;"), "<>\"'ä");
    }

    proptest! {
        #[test]
        fn any_text_is_read_completely(xml in "([<>/a&;#]|Key|ä){0,60}") {
            for element in elements(&xml, "Key") {
                prop_assert!(element.len() < xml.len());
                let _ = decoded(element);
            }
        }
    }
}
