//! DNS records as lines of a zone file (RFC 1035 section 5). Names are absolute, and long texts are split as TXT
//! records require. `init` and `domain show --zone` print them.

use std::fmt::Write as _;

use serde_json::Value;

/// Maximum length of one string of a TXT record in bytes (RFC 1035 section 3.3.14).
const STRING_BYTES: usize = 255;

/// Returns a line for each record, followed by its purpose. A record that the operator must complete is commented out.
pub(super) fn zone(records: &[Value]) -> String {
    let lines: Vec<_> = records.iter().map(ZoneLine::of).collect();
    let names = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    let kinds = lines.iter().map(|line| line.kind.len()).max().unwrap_or(0);
    let mut text = String::new();
    for ZoneLine { mark, name, kind, value, purpose } in &lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{mark}{name:names$} IN {kind:kinds$} {value} ; {purpose}");
    }
    text
}

struct ZoneLine<'a> {
    /// Comment mark for a record with a missing part.
    mark: &'static str,
    name: String,
    kind: &'a str,
    value: String,
    purpose: &'a str,
}

impl<'a> ZoneLine<'a> {
    fn of(record: &'a Value) -> Self {
        let member = |name: &str| record[name].as_str().unwrap_or_default();
        let (name, kind, value) = (member("name"), member("type"), member("value"));
        let mark = if name.starts_with('(') || value.starts_with('(') { "; " } else { "" };
        Self {
            mark,
            name: if name.starts_with('(') { name.to_owned() } else { absolute(name) },
            kind,
            value: match kind {
                "TXT" => strings(value),
                "CNAME" | "MX" | "PTR" => absolute(value),
                _ => value.to_owned(),
            },
            purpose: member("purpose"),
        }
    }
}

/// Returns a name, or a value that ends in one, with a final dot, so that no origin is appended.
fn absolute(name: &str) -> String {
    format!("{}.", name.trim_end_matches('.'))
}

/// Returns the text as quoted strings of allowed length. Published values are ASCII.
fn strings(text: &str) -> String {
    let cuts = text.as_bytes().chunks(STRING_BYTES).map(|cut| {
        let escaped = String::from_utf8_lossy(cut).replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{escaped}\"")
    });
    cuts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(kind: &str, name: &str, value: &str) -> Value {
        json!({"purpose": "why", "type": kind, "name": name, "value": value})
    }

    #[test]
    fn names_become_absolute_with_or_without_a_final_dot() {
        let records =
            [record("CNAME", "rp.example.com", "mail.example.com"), record("MX", "b.example.", "10 mx.example.")];
        assert_eq!(
            zone(&records),
            "rp.example.com. IN CNAME mail.example.com. ; why\nb.example.      IN MX    10 mx.example. ; why\n"
        );
    }

    #[test]
    fn a_long_text_is_split_into_strings_of_allowed_length() {
        let key = "k".repeat(600);
        let line = zone(&[record("TXT", "s._domainkey.example.com", &key)]);
        let strings: Vec<_> = line.split('"').skip(1).step_by(2).collect();
        assert_eq!(strings.iter().map(|cut| cut.len()).collect::<Vec<_>>(), [255, 255, 90]);
        assert_eq!(strings.concat(), key);
        assert!(zone(&[record("TXT", "a", r#"say "no" \"#)]).contains(r#""say \"no\" \\""#));
    }

    #[test]
    fn an_incomplete_record_is_commented_out() {
        let line = zone(&[record("A", "mail.example.com", "(this server's public IPv4 address)")]);
        assert!(line.starts_with("; mail.example.com. IN A (this server's"), "{line}");
    }
}
