//! The `X-Service-*` headers, which set the options of the API for programs that only use SMTP. They are removed before
//! the message is signed.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::super::read::decoded_text;
use super::super::section::Field;
use super::ReadingFacts;
use crate::domain::limits::METADATA_COUNT;
use crate::domain::submission::{Expiry, Notes};
use crate::domain::violation::Violations;

const PREFIX: &str = "x-service-";
const IDEMPOTENCY_KEY: &str = "X-Service-Idempotency-Key";
const EXPIRES_AT: &str = "X-Service-Expires-At";
const METADATA: &str = "X-Service-Metadata";
/// Maximum number of characters of an idempotency key, as in the API.
const IDEMPOTENCY_KEY_CHARACTERS: usize = 255;

/// The values of the headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steering {
    /// The idempotency key.
    pub idempotency_key: Option<String>,
    /// Metadata and the expiry time of the message.
    pub notes: Notes,
}

/// The values read so far.
#[derive(Default)]
struct PartialOptions {
    idempotency_key: Option<String>,
    expires_at: Option<String>,
    metadata: Map<String, Value>,
}

/// The pairs of a JSON object, a repeated name included, which the API refuses too.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        from.deserialize_map(Reader)
    }
}

/// Returns whether a field sets an option and is not sent.
pub(super) fn is_steering(field: &Field<'_>) -> bool {
    field.name.get(..PREFIX.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(PREFIX.as_bytes()))
}

impl Steering {
    /// Reads the headers of a message. `None` if a value is invalid; all errors go to `violations`.
    pub(super) fn read(fields: &[Field<'_>], facts: &ReadingFacts<'_>, violations: &mut Violations) -> Option<Self> {
        let (mut gathered, mut seen) = (PartialOptions::default(), HashSet::new());
        for field in fields.iter().filter(|field| is_steering(field)) {
            let given = String::from_utf8_lossy(field.name);
            if seen.insert(given.to_lowercase()) {
                gathered.take(&given, &decoded_text(&field.unfolded()), violations);
            } else {
                violations.add(given, "is given more than once");
            }
        }
        gathered.validated(facts, violations)
    }
}

impl PartialOptions {
    /// Reads one header.
    fn take(&mut self, given: &str, value: &str, violations: &mut Violations) {
        match &given.to_lowercase()[PREFIX.len()..] {
            "idempotency-key" => self.idempotency_key = Some(value.to_owned()),
            "expires-at" => self.expires_at = Some(value.trim().to_owned()),
            "metadata" => match serde_json::from_str(value) {
                Ok(Pairs(pairs)) => pairs.into_iter().for_each(|(key, value)| self.put(key, value, violations)),
                Err(_) => {
                    violations.add(METADATA, r#"must be a JSON object of strings, such as {"order":"1001"}"#);
                }
            },
            other => match other.strip_prefix("metadata-") {
                Some(key) => self.put(key.to_owned(), value.into(), violations),
                None => violations.add(
                    given,
                    "is unknown; there are X-Service-Idempotency-Key, X-Service-Expires-At, X-Service-Metadata and \
                     X-Service-Metadata-<name>",
                ),
            },
        }
    }

    fn put(&mut self, key: String, value: Value, violations: &mut Violations) {
        // A header can contain thousands of pairs. One above the limit is enough to refuse it.
        if self.metadata.contains_key(&key) {
            violations.add(METADATA, "repeats a name, possibly one given by X-Service-Metadata-<name>");
        } else if self.metadata.len() <= METADATA_COUNT {
            self.metadata.insert(key, value);
        }
    }

    /// Checks the values as the API does.
    fn validated(self, facts: &ReadingFacts<'_>, violations: &mut Violations) -> Option<Steering> {
        let Self { idempotency_key, expires_at, metadata } = self;
        let is_key = |key: &String| {
            (1..=IDEMPOTENCY_KEY_CHARACTERS).contains(&key.len()) && key.bytes().all(|c| matches!(c, b' '..=b'~'))
        };
        if !idempotency_key.as_ref().is_none_or(is_key) {
            let fault = format!("must be 1 to {IDEMPOTENCY_KEY_CHARACTERS} printable ASCII characters");
            violations.add(IDEMPOTENCY_KEY, fault);
        }
        let mut object = Map::new();
        object.insert("metadata".to_owned(), metadata.into());
        object.extend(expires_at.map(|at| ("expires_at".to_owned(), at.into())));
        match Notes::lift(object, facts.limits) {
            Ok(notes) => Some(Steering { idempotency_key, notes }),
            Err(faults) => {
                for (field, sentences) in faults.by_field() {
                    let header = match field.strip_prefix("metadata") {
                        Some(key) => {
                            key.strip_prefix('.').map_or(METADATA.to_owned(), |key| format!("{METADATA}-{key}"))
                        }
                        None => EXPIRES_AT.to_owned(),
                    };
                    sentences.iter().for_each(|sentence| violations.add(header.clone(), sentence));
                }
                None
            }
        }
    }
}

impl Steering {
    /// Returns the expiry time of the message.
    pub const fn expires_at(&self) -> Option<Expiry> {
        self.notes.expires_at
    }
}
