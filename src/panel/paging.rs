//! Pages of a list: their addresses hold the filters and the place, so that each can be kept and handed on.

use std::str::FromStr;

use url::form_urlencoded;

use super::form::Form;
use crate::base::id::Ulid;
use crate::engine::listing::PageRequest;

/// Where the other pages of a list are.
#[derive(Debug)]
pub(super) struct Paging {
    /// The first page, where this is another.
    pub(super) newest: Option<String>,
    /// The next one.
    pub(super) older: Option<String>,
}

impl Paging {
    /// The pages around the one that was asked for by `query` with these filters.
    pub(super) fn new<T: From<Ulid> + ToString>(
        path: &str,
        filters: &[(&str, &str)],
        query: &Form,
        next: Option<Ulid>,
    ) -> Self {
        let older = next.map(|before| {
            let before = T::from(before).to_string();
            address(path, &[filters, &[("older", before.as_str())]].concat())
        });
        Self { newest: query.given("older").map(|_| address(path, filters)), older }
    }
}

/// The page that a query asks for. A place that is none of the list's is its beginning.
pub(super) fn request<T: FromStr + Into<Ulid>>(query: &Form, limit: usize) -> PageRequest {
    let before = query.given("older").and_then(|text| text.parse::<T>().ok());
    PageRequest { before: before.map(Into::into), limit }
}

/// The address at `path` with those of the parameters that say something.
pub(super) fn address(path: &str, params: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(params.iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_what_says_something() {
        assert_eq!(address("/keys", &[("a", ""), ("b", "x y&")]), "/keys?b=x+y%26");
        assert_eq!(address("/keys", &[]), "/keys");
    }
}
