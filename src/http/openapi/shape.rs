//! JSON shapes of the API's own types. Each type in an answer implements [`Shape`] next to its fields, with
//! [`describe`] for structs and [`words`] for enumerations. Both name every field or variant, so that a new one without
//! a description does not compile.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::schema::Schema;
use crate::base::id::{
    AccountId, AlertId, AttemptId, DeliveryId, DmarcReportId, DomainId, EndpointId, EventId, KeyId, MessageId,
    SuppressionId,
};
use crate::base::time::Timestamp;

/// A type with a schema.
pub(in crate::http) trait Shape {
    /// Returns the schema of its JSON.
    fn schema() -> Schema;
}

/// A type with members that only some answers contain.
pub(in crate::http) trait FullShape: Shape {
    /// Returns the schema with all members.
    fn whole() -> Schema;
}

/// Returns the schema of a getter's result, whose type is that of the field.
pub(in crate::http) fn shape_of<V, T: Shape>(_: impl Fn(&V) -> &T) -> Schema {
    T::schema()
}

pub(in crate::http) fn refined(schema: Schema, refine: impl FnOnce(Schema) -> Schema) -> Schema {
    refine(schema)
}

/// Implements [`Shape`] for a struct from its fields. Each entry is `field: "description"`, with `= "name"` if the JSON
/// name differs, and with `=> |schema| …` if the type alone is not enough. Members of `flat` fields are included
/// directly. With `whole`, it also implements [`FullShape`], which adds the fields that only some answers have, and the
/// `plus` members.
macro_rules! describe {
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $json:literal) => { $json };
    (@refined $schema:expr) => { $schema };
    (@refined $schema:expr, $refine:expr) => { $crate::http::openapi::shape::refined($schema, $refine) };
    (@members $object:ident, $($field:ident $(= $json:literal)?: $text:literal $(=> $refine:expr)?),*) => {
        $($object = $object.member(
            describe!(@name $field $($json)?),
            describe!(@refined $crate::http::openapi::shape::shape_of(|view: &Self| &view.$field) $(, $refine)?)
                .says($text),
        );)*
    };
    (
        $type:ty as $name:literal, $says:literal
        { $($field:ident $(= $json:literal)?: $text:literal $(=> $refine:expr)?),* $(,)? }
        $(flat { $($flat:ident),* })?
        $(whole $whole:literal, $whole_says:literal
            { $($more:ident $(= $more_json:literal)?: $more_text:literal $(=> $more_refine:expr)?),* $(,)? }
            $(plus { $($plus:literal: $plus_type:ty, $plus_text:literal),* $(,)? })?
        )?
    ) => {
        impl $crate::http::openapi::shape::Shape for $type {
            fn schema() -> $crate::http::openapi::schema::Schema {
                let _every_field = |view: &Self| {
                    let Self { $($field: _,)* $($($flat: _,)*)? $($($more: _,)*)? } = view;
                };
                let mut object = $crate::http::openapi::schema::Schema::object();
                describe!(@members object, $($field $(= $json)?: $text $(=> $refine)?),*);
                $($(object = object.merged($crate::http::openapi::shape::shape_of(|view: &Self| &view.$flat));)*)?
                object.named($name, $says)
            }
        }
        $(impl $crate::http::openapi::shape::FullShape for $type {
            fn whole() -> $crate::http::openapi::schema::Schema {
                let mut object = <Self as $crate::http::openapi::shape::Shape>::schema().opened();
                describe!(@members object, $($more $(= $more_json)?: $more_text $(=> $more_refine)?),*);
                $($(object = object.member(
                    $plus,
                    <$plus_type as $crate::http::openapi::shape::Shape>::schema().says($plus_text),
                );)*)?
                object.named($whole, $whole_says)
            }
        })?
    };
}
pub(in crate::http) use describe;

/// Implements [`Shape`] for enumerations without data, from their own JSON.
macro_rules! words {
    ($($type:ty as $name:literal, $says:literal: $($variant:ident)+;)*) => {$(
        impl $crate::http::openapi::shape::Shape for $type {
            fn schema() -> $crate::http::openapi::schema::Schema {
                let _every_variant = |word: &Self| match word { $(Self::$variant)|+ => () };
                let words = [$(serde_json::json!(Self::$variant)),+];
                $crate::http::openapi::schema::Schema::words(words).named($name, $says)
            }
        }
    )*};
}
pub(super) use words;

macro_rules! identifiers {
    ($($id:ty)+) => {$(
        impl Shape for $id {
            fn schema() -> Schema {
                // A ULID in Crockford base 32; its first character encodes three bits.
                let pattern = format!("^{}_[0-7][0-9A-HJKMNP-TV-Z]{{25}}$", <$id>::PREFIX);
                let example = format!("{}_01M7XS2DXANT70XBRCN1YAAC4B", <$id>::PREFIX);
                Schema::string().pattern(&pattern).example(example)
            }
        }
    )+};
}
identifiers! {
    AccountId KeyId DomainId MessageId EventId EndpointId DeliveryId AttemptId SuppressionId AlertId DmarcReportId
}

macro_rules! counts {
    ($($count:ty)+) => {$(
        impl Shape for $count {
            fn schema() -> Schema {
                Schema::count()
            }
        }
    )+};
}
counts! { u8 u16 u32 u64 usize }

/// A fraction of one: the API uses floating-point numbers for nothing else.
impl Shape for f64 {
    fn schema() -> Schema {
        Schema::share()
    }
}

impl Shape for bool {
    fn schema() -> Schema {
        Schema::boolean()
    }
}

impl Shape for str {
    fn schema() -> Schema {
        Schema::string()
    }
}

impl Shape for String {
    fn schema() -> Schema {
        Schema::string()
    }
}

impl Shape for Timestamp {
    fn schema() -> Schema {
        let pattern = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}\+00:00$";
        Schema::string().format("date-time").pattern(pattern).example("2026-11-20T15:04:05.123+00:00")
    }
}

impl<T: Shape + ?Sized> Shape for &T {
    fn schema() -> Schema {
        T::schema()
    }
}

impl<T: Shape> Shape for Option<T> {
    fn schema() -> Schema {
        T::schema().or_null()
    }
}

impl<T: Shape> Shape for [T] {
    fn schema() -> Schema {
        Schema::array(T::schema())
    }
}

impl<T: Shape> Shape for Vec<T> {
    fn schema() -> Schema {
        Schema::array(T::schema())
    }
}

impl Shape for [(); 0] {
    fn schema() -> Schema {
        Schema::array(Schema::string()).with("maxItems", 0).example(serde_json::json!([]))
    }
}

impl<T: Shape> Shape for BTreeMap<String, T> {
    fn schema() -> Schema {
        Schema::map(T::schema())
    }
}

impl<T: Shape + ToOwned + ?Sized> Shape for Cow<'_, T> {
    fn schema() -> Schema {
        T::schema()
    }
}
