//! Fields of other services' APIs that a send request does not have, and their replacements.
//!
//! Used for the hint about an unknown field. The most similar name would not help a user who migrates.

/// One recipient per message (contract 3).
pub(super) const ONE_RECIPIENT: &str = "`to` takes one address: send one request per recipient";
/// Display names have their own field (contract 3).
pub(super) const USE_FROM_NAME: &str = "use `from_name` for the display name";

/// Returns advice for the field `name` of a send request, for names that other services use.
pub(super) fn instead_of(name: &str) -> Option<&'static str> {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
    Some(match plain.to_ascii_lowercase().as_str() {
        "cc" | "bcc" => "send one request per recipient",
        "replyto" => "set Reply-To under `headers`",
        "tag" | "tags" => "use `metadata`",
        "sendat" | "scheduledat" => "scheduling is not supported",
        "body" => "use `text` or `html`",
        "template" | "templateid" | "templatealias" => "templates are not supported: render before sending",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_in_any_case_and_with_any_separators() {
        for name in ["reply_to", "replyTo", "Reply-To", "REPLY_TO"] {
            assert_eq!(instead_of(name), Some("set Reply-To under `headers`"), "{name}");
        }
        assert_eq!(instead_of("sendAt"), Some("scheduling is not supported"));
        assert_eq!(instead_of("unsubscribe"), None);
        assert_eq!(instead_of(&"b".repeat(1 << 20)), None);
    }
}
