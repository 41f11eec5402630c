//! Strict JSON: the check of a request's body before its fields are parsed (contract 1, `invalid_json`), and the
//! canonical form for comparing bodies (contract 3, idempotency).
//!
//! serde_json alone accepts repeated keys and nests to 128. This module parses each body once and refuses repeated keys
//! and deep nesting.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

use super::byte_list;
use super::error::ApiError;

/// Reads JSON that is UTF-8.
type Reader<'b> = serde_json::Deserializer<serde_json::de::StrRead<'b>>;

/// Maximum nesting of arrays and objects, including the body itself.
const DEPTH_MAX: usize = 32;

/// Maximum number of values and members of a body. The largest accepted message has a few hundred. A parsed value takes
/// many times the memory of its text, which the budget of bodies does not count.
const VALUES_MAX: usize = 100_000;

/// Maximum number of values and members of a list of messages: 500 messages of 500.
const LIST_VALUES_MAX: usize = 250_000;

/// Parses `body` as an object.
///
/// # Errors
/// [`ApiError::InvalidJson`] if it is not JSON in UTF-8, is not an object, repeats a key at any depth, contains a lone
/// surrogate or a number out of range, nests too deep, or has too many values.
pub fn parse_object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    parse_with(body, Lists::Values)
}

fn parse_with(body: &[u8], lists: Lists) -> Result<Map<String, Value>, ApiError> {
    read(body, VALUES_MAX, |reader, left| reader.deserialize_any(ObjectVisitor { depth: 1, left, lists }))
}

/// Parses `body` with `parse`. At most `most` values are allowed, and nothing after them.
fn read<'b, T>(
    body: &'b [u8],
    most: usize,
    parse: impl FnOnce(&mut Reader<'b>, &Cell<usize>) -> serde_json::Result<T>,
) -> Result<T, ApiError> {
    if body.is_empty() {
        return Err(ApiError::InvalidJson("The request body is empty. Send a JSON object.".to_owned()));
    }
    let text = std::str::from_utf8(body).map_err(|fault| {
        ApiError::InvalidJson(format!("The request body is not UTF-8: see byte {}.", fault.valid_up_to() + 1))
    })?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let left = Cell::new(most);
    let parsed = parse(&mut reader, &left).and_then(|parsed| reader.end().map(|()| parsed));
    parsed.map_err(|fault| invalid(&fault.to_string()))
}

fn invalid(fault: &str) -> ApiError {
    ApiError::InvalidJson(format!("Invalid JSON: {fault}."))
}

/// Parses an email in Resend's form, whose attachments may be lists of bytes. Each list is converted to base64 while it
/// is read.
///
/// # Errors
/// The errors of [`parse_object`].
pub fn parse_email(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    parse_with(body, Lists::Email)
}

/// Parses `body` as a list of emails.
///
/// # Errors
/// The errors of [`parse_object`], for a list.
pub fn parse_list(body: &[u8]) -> Result<Vec<Value>, ApiError> {
    let value = read(body, LIST_VALUES_MAX, |reader, left| {
        ValueSeed { depth: 0, left, lists: Lists::Email }.deserialize(reader)
    })?;
    if let Value::Array(items) = value { Ok(items) } else { Err(invalid("expected a list")) }
}

/// Returns a digest of a request to `address` with this body. It differs for any other address, and from every
/// [`canonical_hash`].
pub fn named_hash(address: &str, body: &Value) -> [u8; 32] {
    let mut form = Vec::with_capacity(1024);
    // The canonical form of an object never begins with `@`.
    form.push(b'@');
    write_text(address, &mut form);
    write_value(body, &mut form);
    Sha256::digest(&form).into()
}

/// Returns a digest of `object`. Bodies that are equal after parsing have the same digest: white space, key order and
/// escapes do not matter.
pub fn canonical_hash(object: &Map<String, Value>) -> [u8; 32] {
    let mut form = Vec::with_capacity(1024);
    write_object(object, &mut form);
    Sha256::digest(&form).into()
}

/// Writes a kind byte, a length, and the members in order of their keys: no two objects have the same form.
fn write_object(object: &Map<String, Value>, form: &mut Vec<u8>) {
    form.push(b'o');
    write_length(object.len(), form);
    // The map is sorted by key unless a dependency enables serde_json's `preserve_order`.
    let mut members: Vec<_> = object.iter().collect();
    members.sort_unstable_by_key(|(key, _)| *key);
    for (key, value) in members {
        write_text(key, form);
        write_value(value, form);
    }
}

fn write_value(value: &Value, form: &mut Vec<u8>) {
    match value {
        Value::Null => form.push(b'n'),
        Value::Bool(false) => form.push(b'f'),
        Value::Bool(true) => form.push(b't'),
        Value::Number(number) => write_number(number, form),
        Value::String(text) => {
            form.push(b's');
            write_text(text, form);
        }
        Value::Array(items) => {
            form.push(b'a');
            write_length(items.len(), form);
            items.iter().for_each(|item| write_value(item, form));
        }
        Value::Object(object) => write_object(object, form),
    }
}

fn write_number(number: &Number, form: &mut Vec<u8>) {
    if let Some(whole) = number.as_u64() {
        form.push(b'u');
        form.extend_from_slice(&whole.to_le_bytes());
    } else if let Some(negative) = number.as_i64() {
        form.push(b'i');
        form.extend_from_slice(&negative.to_le_bytes());
    } else {
        // The two zeroes are equal after parsing.
        let real = number.as_f64().filter(|real| *real != 0.0).unwrap_or(0.0);
        form.push(b'd');
        form.extend_from_slice(&real.to_bits().to_le_bytes());
    }
}

fn write_text(text: &str, form: &mut Vec<u8>) {
    write_length(text.len(), form);
    form.extend_from_slice(text.as_bytes());
}

fn write_length(length: usize, form: &mut Vec<u8>) {
    form.extend_from_slice(&(length as u64).to_le_bytes());
}

/// Treatment of lists, by position. A list of bytes would take dozens of times the memory of its text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    /// Each list stays a list of JSON values.
    Values,
    /// Each list stays a list of JSON values. Lists of the member `attachments` may contain files.
    Email,
    /// Each list stays a list of JSON values. In its objects, the member `content` is a file.
    Files,
    /// Lists are bytes, and become base64.
    Bytes,
}

impl Lists {
    fn of_member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Email, "attachments") => Self::Files,
            (Self::Files, "content") => Self::Bytes,
            (Self::Values | Self::Email | Self::Files | Self::Bytes, _) => Self::Values,
        }
    }
}

/// Reads an object at nesting `depth`, with `left` more values allowed.
struct ObjectVisitor<'a> {
    depth: usize,
    left: &'a Cell<usize>,
    lists: Lists,
}

impl<'de> Visitor<'de> for ObjectVisitor<'_> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        if self.depth > DEPTH_MAX {
            return Err(A::Error::custom(format_args!("nested deeper than {DEPTH_MAX}")));
        }
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            match object.entry(key) {
                serde_json::map::Entry::Vacant(place) => {
                    let lists = self.lists.of_member(place.key());
                    place.insert(members.next_value_seed(ValueSeed { depth: self.depth, left: self.left, lists })?);
                }
                serde_json::map::Entry::Occupied(twice) => {
                    let key: String = twice.key().chars().take(64).collect();
                    return Err(A::Error::custom(format_args!("the key {key:?} is given twice")));
                }
            }
        }
        Ok(object)
    }
}

/// Reads any value inside a container at nesting `depth`.
#[derive(Clone, Copy)]
struct ValueSeed<'a> {
    depth: usize,
    left: &'a Cell<usize>,
    lists: Lists,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.ok_or_else(|| D::Error::custom(format_args!("more than {VALUES_MAX} values")))?);
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        if self.lists == Lists::Bytes {
            return byte_list::read(items);
        }
        let inner = Self { depth: self.depth + 1, ..self };
        if inner.depth > DEPTH_MAX {
            return Err(A::Error::custom(format_args!("nested deeper than {DEPTH_MAX}")));
        }
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Value, A::Error> {
        ObjectVisitor { depth: self.depth + 1, left: self.left, lists: self.lists }
            .visit_map(members)
            .map(Value::Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(body: &[u8]) -> String {
        match parse_object(body) {
            Err(ApiError::InvalidJson(message)) => message,
            other => panic!("{:?} gave {other:?}", String::from_utf8_lossy(body)),
        }
    }

    #[test]
    fn a_body_with_too_many_values_is_rejected_before_it_takes_memory() {
        let with = |count: usize| format!("{{\"a\":[{}0]}}", "0,".repeat(count - 1));
        assert!(parse_object(with(VALUES_MAX - 1).as_bytes()).is_ok());
        assert!(refusal(with(VALUES_MAX).as_bytes()).contains("more than 100000 values"));
        let members: String = (0..VALUES_MAX).map(|n| format!("\"m{n}\":0,")).collect();
        assert!(refusal(format!("{{{members}\"z\":0}}").as_bytes()).contains("more than"));
    }

    #[test]
    fn invalid_json_is_rejected_with_its_position() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(32), "]".repeat(32));
        for (body, says) in [
            (&b""[..], "empty"),
            (b" ", "EOF"),
            (b"[1]", "expected a JSON object"),
            (b"\"x\"", "expected a JSON object"),
            (b"{} {}", "trailing characters"),
            (b"{\"a\":1,}", "trailing comma"),
            (b"{\"a\":1,\n\"a\":2}", "\"a\" is given twice at line 2 column"),
            (b"{\"a\":[{\"b\":1,\"\\u0062\":2}]}", "\"b\" is given twice"),
            (b"{\"a\":\"\\ud800\"}", "line 1"),
            (b"{\"a\":\"\\ud800\\u0041\"}", "surrogate"),
            (b"{\"a\":\"\\udc00\"}", "surrogate"),
            (b"{\"a\":1e999}", "out of range"),
            (b"{\"a\":NaN}", "line 1"),
            (b"{\"a\":\"\xff\"}", "not UTF-8: see byte 7"),
            (b"\xef\xbb\xbf{}", "line 1"),
            (deep.as_bytes(), "deeper than 32"),
        ] {
            let message = refusal(body);
            assert!(message.contains(says), "{message}");
        }
        let deepest = format!("{{\"a\":{}{}}}", "[".repeat(31), "]".repeat(31));
        assert!(parse_object(deepest.as_bytes()).is_ok());
    }

    #[test]
    fn equal_bodies_hash_equally_whatever_their_notation() {
        let hash = |body: &str| canonical_hash(&parse_object(body.as_bytes()).unwrap());
        let one = hash(r#"{"a":"é","b":[1,{"x":null,"y":-0.0}]}"#);
        assert_eq!(one, hash("{ \"b\" : [1, {\"y\": 0.0, \"x\": null}],\n \"a\": \"\\u00e9\" }"));
        for other in [
            r#"{"a":"é","b":[1,{"x":null,"y":0}]}"#,
            r#"{"a":"é","b":[1.0,{"x":null,"y":0.0}]}"#,
            r#"{"a":"é","b":[{"x":null,"y":0.0},1]}"#,
            r#"{"a":"é","b":[1,{"x":false,"y":0.0}]}"#,
            r#"{"a":"é","b":[1],"x":null,"y":0.0}"#,
        ] {
            assert_ne!(one, hash(other), "{other}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            // Eighths are exact. serde_json may round the last bit of other fractions.
            any::<i32>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(".{0,4}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_serialised_object_is_read_back_with_the_same_hash(value in values()) {
            let object = Map::from_iter([("v".to_owned(), value)]);
            let read = parse_object(serde_json::to_string_pretty(&object).unwrap().as_bytes()).unwrap();
            prop_assert_eq!(&read, &object);
            prop_assert_eq!(canonical_hash(&read), canonical_hash(&object));
        }
    }
}
