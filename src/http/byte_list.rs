//! Reads a JSON list of bytes, as some clients encode a file, into base64 without a JSON value per byte.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Returns the bytes as base64. Any other list becomes a list with null, which later checks reject as content.
pub(super) fn read<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Value, A::Error> {
    let (mut bytes, mut is_sound) = (Vec::new(), true);
    while let Some(item) = items.next_element_seed(Byte)? {
        match item {
            Some(byte) if is_sound => bytes.push(byte),
            Some(_) | None => is_sound = false,
        }
    }
    Ok(if is_sound { STANDARD.encode(bytes).into() } else { Value::Array(vec![Value::Null]) })
}

/// One element that is a byte.
struct Byte;

impl<'de> DeserializeSeed<'de> for Byte {
    type Value = Option<u8>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Option<u8>, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Byte {
    type Value = Option<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a byte")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Option<u8>, E> {
        Ok(u8::try_from(value).ok())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Option<u8>, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Option<u8>, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Option<u8>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<u8>, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Option<u8>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Option<u8>, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Option<u8>, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use crate::http::json::{parse_email, parse_list, parse_object};
    use serde_json::json;

    #[test]
    fn attachment_content_may_be_a_list_of_bytes() {
        let body = br#"{"attachments":[{"content":[104,105,255,0]},{"content":"aGk="}],"content":[1],"tags":[[1]]}"#;
        let email = parse_email(body).unwrap();
        assert_eq!(email["attachments"], json!([{"content": "aGn/AA=="}, {"content": "aGk="}]));
        assert_eq!((&email["content"], &email["tags"]), (&json!([1]), &json!([[1]])));
        let listed = parse_list(&[b"[".as_slice(), body, b"]"].concat()).unwrap();
        assert_eq!(listed[0]["attachments"][0]["content"], "aGn/AA==");
        assert_eq!(parse_object(body).unwrap()["attachments"][0]["content"], json!([104, 105, 255, 0]));
    }

    #[test]
    fn a_list_with_other_elements_is_not_content() {
        for content in ["[256]", "[-1]", "[1.5]", "[null]", "[true]", "[\"a\"]", "[[1]]", "[{\"a\":1}]", "[1,2,\"x\"]"]
        {
            let body = format!("{{\"attachments\":[{{\"content\":{content}}}]}}");
            assert_eq!(parse_email(body.as_bytes()).unwrap()["attachments"][0]["content"], json!([null]), "{content}");
        }
        let many = format!("{{\"attachments\":[{{\"content\":[{}1]}}]}}", "1,".repeat(1_000_000));
        assert_eq!(
            parse_email(many.as_bytes()).unwrap()["attachments"][0]["content"].as_str().unwrap().len(),
            1_333_336
        );
    }

    #[test]
    fn a_list_of_messages_stays_a_list() {
        assert_eq!(parse_list(b"[{},1]").unwrap(), [json!({}), json!(1)]);
        for bad in ["{}", "", "[", "[{\"a\":1,\"a\":2}]", "\"x\"", "[]x"] {
            assert!(parse_list(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
