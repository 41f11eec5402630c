//! The syntax of a BIMI assertion record (draft-brand-indicators-for-message-identification, 4.2): a list of tags.

/// Value of the version tag at the start of every record. Receivers compare it exactly.
const VERSION: &str = "BIMI1";

/// Returns whether `text` is meant as a BIMI record, valid or not: it has a version of BIMI, or a logo without any
/// version. A wildcard may put other TXT records beside it.
pub fn is_meant_by(text: &str) -> bool {
    match tag(text, "v") {
        Some(version) => version.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("BIMI")),
        None => tag(text, "l").is_some(),
    }
}

/// Returns whether receivers read `text` as a BIMI record: it begins with the version.
pub fn has_version(text: &str) -> bool {
    tags(text).next().is_some_and(|(name, value)| name.eq_ignore_ascii_case("v") && value == VERSION)
}

/// Returns the first tag that occurs a second time, because of which receivers ignore the record.
pub fn repeated_tag(text: &str) -> Option<&str> {
    let mut before: Vec<&str> = Vec::new();
    tags(text).map(|(name, _)| name).find(|name| {
        let is_repeated = before.iter().any(|other| other.eq_ignore_ascii_case(name));
        before.push(name);
        is_repeated
    })
}

/// Returns the value of a tag.
pub fn tag<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    tags(text).find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn tags(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let tags = text.split(';').filter_map(|tag| tag.split_once('='));
    tags.map(|(name, value)| (name.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_record_that_begins_with_the_exact_version_is_read() {
        for (text, is_meant, is_read) in [
            ("v=BIMI1; l=https://x.example/l.svg", true, true),
            (" V = BIMI1 ;l=", true, true),
            ("v=bimi1; l=https://x.example/l.svg", true, false),
            ("v=BIMI2; l=https://x.example/l.svg", true, false),
            ("l=https://x.example/l.svg; v=BIMI1", true, false),
            ("l=https://x.example/l.svg", true, false),
            ("v=spf1 -all", false, false),
            ("google-site-verification=x", false, false),
        ] {
            assert_eq!((is_meant_by(text), has_version(text)), (is_meant, is_read), "{text}");
        }
    }

    #[test]
    fn a_tag_that_occurs_twice_is_found_in_any_case() {
        assert_eq!(repeated_tag("v=BIMI1; l=a; a=b; L=c"), Some("L"));
        assert_eq!(repeated_tag("v=BIMI1; l=a; a=b;"), None);
    }
}
