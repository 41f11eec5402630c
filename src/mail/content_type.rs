//! Parameters of a Content-Type (RFC 2045 5.1), parsed as leniently as mail programs require.

/// Returns the unquoted value of the first parameter with this name, in any case.
pub(super) fn parameter(value: &[u8], wanted: &str) -> Option<Vec<u8>> {
    let mut rest = value;
    loop {
        rest = &rest[rest.iter().position(|c| *c == b';')? + 1..];
        let name_length = rest.iter().position(|c| matches!(c, b'=' | b';'))?;
        if rest[name_length] == b';' {
            continue;
        }
        let name = rest[..name_length].trim_ascii();
        let (found, after) = parameter_value(rest[name_length + 1..].trim_ascii_start());
        if name.eq_ignore_ascii_case(wanted.as_bytes()) {
            return Some(found);
        }
        rest = after;
    }
}

fn parameter_value(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let Some(inside) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|c| *c == b';' || c.is_ascii_whitespace()).unwrap_or(text.len());
        return (text[..end].to_vec(), &text[end..]);
    };
    let mut value = Vec::new();
    let mut place = 0;
    while let Some(character) = inside.get(place) {
        match character {
            b'"' => return (value, &inside[place + 1..]),
            b'\\' => {
                place += 1;
                value.extend(inside.get(place));
            }
            _ => value.push(*character),
        }
        place += 1;
    }
    (value, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_found_in_every_form() {
        for (value, boundary) in [
            ("multipart/report; boundary=abc", Some("abc")),
            ("multipart/report;BOUNDARY = \"a;b\"; report-type=x", Some("a;b")),
            ("multipart/report; name=\"boundary=x\"; boundary=y", Some("y")),
            ("multipart/report;; boundary=abc;", Some("abc")),
            ("multipart/report; charset; boundary=abc", Some("abc")),
            ("multipart/report; boundary=\"a\\\"b\"", Some("a\"b")),
            ("multipart/report; boundary=\"open", Some("open")),
            ("multipart/report; boundary=", Some("")),
            ("multipart/report; boundary", None),
            ("multipart/report", None),
        ] {
            let found = parameter(value.as_bytes(), "boundary").map(|found| String::from_utf8(found).unwrap());
            assert_eq!(found.as_deref(), boundary, "{value}");
        }
    }
}
