//! Paging of lists. The URL contains the filters and the position, so users can bookmark and share it.

use std::str::FromStr;

use url::form_urlencoded;

use super::form::Form;
use crate::base::id::Ulid;
use crate::engine::listing::PageRequest;

/// Links to the other pages of a list.
#[derive(Debug)]
pub(super) struct Paging {
    /// The first page, unless this is the first.
    pub(super) newest: Option<String>,
    /// The next page.
    pub(super) older: Option<String>,
}

impl Paging {
    /// Returns the links around the page that `query` asks for with these filters.
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

/// Returns the requested page. A position that the list does not have means its beginning.
pub(super) fn request<T: FromStr + Into<Ulid>>(query: &Form, limit: usize) -> PageRequest {
    let before = query.given("older").and_then(|text| text.parse::<T>().ok());
    PageRequest { before: before.map(Into::into), limit }
}

/// Returns `path` with the non-empty parameters.
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
    fn an_address_contains_only_non_empty_parameters() {
        assert_eq!(address("/keys", &[("a", ""), ("b", "x y&")]), "/keys?b=x+y%26");
        assert_eq!(address("/keys", &[]), "/keys");
    }
}
