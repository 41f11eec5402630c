//! Parser of the Authentication-Results field (RFC 8601 2.2): a receiver's results of SPF, DKIM and DMARC.
//!
//! Receivers differ in white space, comments and quoting, so parsing is lenient: unreadable parts are skipped.

/// The results of one receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AuthenticationResults {
    /// The receiver's name for itself. Microsoft's servers write none.
    pub(super) authserv_id: Option<String>,
    /// One entry per method, in order.
    pub(super) methods: Vec<MethodResult>,
}

/// The result of one method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MethodResult {
    /// The method in lower case, without its version.
    pub(super) method: String,
    /// The result in lower case.
    pub(super) result: String,
    properties: Vec<(String, String)>,
}

impl MethodResult {
    /// Returns the value of a property, such as `header.d`.
    pub(super) fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().find(|(named, _)| named == name).map(|(_, value)| value.as_str())
    }
}

/// Parses an unfolded value. `None` if it does not begin with the name of a receiver or with a result.
pub(super) fn parse(value: &str) -> Option<AuthenticationResults> {
    let parts = parts(value);
    let (first, rest) = parts.split_first()?;
    // A version may follow the name.
    let name = first.first().filter(|name| !name.is_empty())?;
    let authserv_id = (!name.contains('=')).then(|| name.clone());
    let methods = if authserv_id.is_some() { rest } else { &parts[..] };
    let methods = methods.iter().filter_map(|words| method(words)).collect();
    Some(AuthenticationResults { authserv_id, methods })
}

fn method(words: &[String]) -> Option<MethodResult> {
    let mut pairs = words.iter().filter_map(|word| word.split_once('='));
    let (method, result) = pairs.next()?;
    let method = method.split('/').next().unwrap_or_default().to_ascii_lowercase();
    let properties = pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Some(MethodResult { method, result: result.to_ascii_lowercase(), properties })
}

/// Splits a value at semicolons into words, without comments and quotes. White space around `=`, `.` and `/` is
/// dropped, so that `header.d = example.com` is one word.
fn parts(value: &str) -> Vec<Vec<String>> {
    let (mut parts, mut words, mut word) = (Vec::new(), Vec::new(), String::new());
    let mut characters = value.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '(' => {
                skip_comment(&mut characters);
                end_word(&mut words, &mut word);
            }
            '"' => copy_quoted(&mut word, &mut characters),
            ';' => {
                words.push(std::mem::take(&mut word));
                parts.push(std::mem::take(&mut words));
            }
            _ if character.is_whitespace() => end_word(&mut words, &mut word),
            '=' | '/' if word.is_empty() => {
                word = words.pop().unwrap_or_default();
                word.push(character);
            }
            _ => word.push(character),
        }
    }
    words.push(word);
    parts.push(words);
    parts
}

/// Ends a word, unless its value follows.
fn end_word(words: &mut Vec<String>, word: &mut String) {
    if !word.is_empty() && !word.ends_with('=') {
        words.push(std::mem::take(word));
    }
}

/// Skips a comment after its opening parenthesis. Comments nest, and a backslash escapes.
fn skip_comment(characters: &mut impl Iterator<Item = char>) {
    let mut depth = 1;
    while depth > 0 {
        match characters.next() {
            Some('\\') => drop(characters.next()),
            Some('(') => depth += 1,
            Some(')') => depth -= 1,
            Some(_) => {}
            None => return,
        }
    }
}

/// Copies a quoted string after its opening quote.
fn copy_quoted(word: &mut String, characters: &mut impl Iterator<Item = char>) {
    while let Some(character) = characters.next() {
        match character {
            '"' => return,
            '\\' => word.extend(characters.next()),
            _ => word.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_fields_of_large_receivers() {
        let google = "mx.google.com; dkim=pass header.i=@example.com header.s=pr1 header.b=AbC; \
                      spf=pass (google.com: domain of b@rp.example.com designates 192.0.2.1 as permitted sender) \
                      smtp.mailfrom=b@rp.example.com; dmarc=pass (p=NONE sp=NONE dis=NONE) header.from=example.com";
        let read = parse(google).unwrap();
        assert_eq!(read.authserv_id.as_deref(), Some("mx.google.com"));
        let methods: Vec<_> = read.methods.iter().map(|found| (&*found.method, &*found.result)).collect();
        assert_eq!(methods, [("dkim", "pass"), ("spf", "pass"), ("dmarc", "pass")]);
        assert_eq!(read.methods[0].property("header.s"), Some("pr1"));
        assert_eq!(read.methods[1].property("smtp.mailfrom"), Some("b@rp.example.com"));
        let spaced =
            parse("a.example 1; DKIM/1 = Fail (bad (very) \\) bad) reason=\"no \\\"key\\\"; none\" header.d = x.test");
        let spaced = spaced.unwrap();
        assert_eq!((spaced.authserv_id.as_deref(), &*spaced.methods[0].result), (Some("a.example"), "fail"));
        assert_eq!(spaced.methods[0].property("header.d"), Some("x.test"));
        assert_eq!(spaced.methods[0].property("reason"), Some("no \"key\"; none"));
    }

    #[test]
    fn parses_the_field_of_microsoft_which_names_no_receiver() {
        let outlook = "spf=pass (sender IP is 192.0.2.1) smtp.mailfrom=rp.example.com; dkim=pass (signature was \
                       verified) header.d=example.com;dmarc=pass action=none header.from=example.com;compauth=pass \
                       reason=100";
        let read = parse(outlook).unwrap();
        assert_eq!(read.authserv_id, None);
        let methods: Vec<_> = read.methods.iter().map(|found| (&*found.method, &*found.result)).collect();
        assert_eq!(methods, [("spf", "pass"), ("dkim", "pass"), ("dmarc", "pass"), ("compauth", "pass")]);
        assert_eq!(read.methods[0].property("smtp.mailfrom"), Some("rp.example.com"));
    }

    #[test]
    fn parses_the_readable_parts_of_malformed_fields() {
        assert_eq!(parse(""), None);
        assert_eq!(parse(" ; spf=pass"), None);
        assert_eq!(parse("a.example; none").unwrap().methods, []);
        assert_eq!(parse("a.example; = ; spf=pass (open").unwrap().methods.last().unwrap().result, "pass");
        assert_eq!(parse("a.example; spf=\"pass").unwrap().methods[0].result, "pass");
    }
}
