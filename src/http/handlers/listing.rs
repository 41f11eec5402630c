//! Requests for a page of a list, and the answers (contract 1). A cursor contains its filters, so it may be given
//! alone.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::cursor::Cursor;
use crate::base::id::{AccountId, Ulid};
use crate::domain::violation::Violations;
use crate::engine::listing::PageRequest;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;

/// Parameters of every list.
const PARAMETERS: [&str; 2] = ["limit", "cursor"];

/// A request for one page.
pub(super) struct Listing {
    list: String,
    account: AccountId,
    path: String,
    filters: Vec<(String, String)>,
    pub(super) page: PageRequest,
}

impl Listing {
    /// Parses the query of a list with the filters `known`. Errors go to `violations`.
    pub(super) fn read<C>(
        call: &Call<C>,
        list: impl Into<String>,
        account: AccountId,
        known: &[&'static str],
        violations: &mut Violations,
    ) -> Self {
        let list = list.into();
        let query = call.query(&[&PARAMETERS, known].concat(), violations);
        let asked = query.page(violations);
        let of_filter = |(name, _): &(&str, &str)| !PARAMETERS.contains(name);
        let given = query.pairs().filter(of_filter).map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut filters: Vec<_> = given.collect();
        filters.sort_unstable();
        let mut before = None;
        if let Some(text) = &asked.cursor
            && let Some(cursor) = violations.check("cursor", Cursor::decode(text, &list, account, &filters))
        {
            before = Some(cursor.before);
            filters = cursor.filters;
        }
        let page = PageRequest { before, limit: asked.limit };
        Self { list, account, path: call.path().to_owned(), filters, page }
    }

    /// Parses the query of a list without filters.
    pub(super) fn plain<C>(call: &Call<C>, list: impl Into<String>, account: AccountId) -> Result<Self, ApiError> {
        let mut violations = Violations::new();
        let listing = Self::read(call, list, account, &[], &mut violations);
        Ok(violations.or(|| Some(listing))?)
    }

    /// Returns the value of a filter, from the query or the cursor.
    pub(super) fn filter(&self, name: &str) -> Option<&str> {
        self.filters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns all filters, from the query or the cursor.
    pub(super) fn filters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.filters.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the parsed value of a filter.
    pub(super) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        name: &str,
        violations: &mut Violations,
    ) -> Option<T> {
        violations.check(name, self.filter(name)?.parse())
    }

    /// Returns the answer with serialised rows.
    pub(super) fn answer<R: AsRef<[u8]>>(self, rows: &[R], next: Option<Ulid>) -> Answer {
        self.answer_with(rows, next, &Map::new())
    }

    /// Returns the answer with serialised rows, and with `members` after the cursor.
    pub(super) fn answer_with<R: AsRef<[u8]>>(
        self,
        rows: &[R],
        next: Option<Ulid>,
        members: &Map<String, Value>,
    ) -> Answer {
        let Self { list, account, path, filters, page } = self;
        let cursor = next.map(|before| Cursor::new(&list, account, before, filters).encode());
        Answer::page(&path, page.limit, rows, cursor.as_deref(), members)
    }

    /// Returns the answer and serialises the rows.
    pub(super) fn answer_of<T: Serialize>(
        self,
        rows: impl Iterator<Item = T>,
        next: Option<Ulid>,
    ) -> Result<Answer, ApiError> {
        self.answer_of_with(rows, next, &Map::new())
    }

    /// Returns the answer and serialises the rows, with `members` after the cursor.
    pub(super) fn answer_of_with<T: Serialize>(
        self,
        rows: impl Iterator<Item = T>,
        next: Option<Ulid>,
        members: &Map<String, Value>,
    ) -> Result<Answer, ApiError> {
        let rows: Result<Vec<_>, _> = rows.map(|row| serde_json::to_vec(&row)).collect();
        let rows = rows.map_err(|error| {
            tracing::error!(%error, "could not write a list as JSON; answering 500");
            ApiError::Internal
        })?;
        Ok(self.answer_with(&rows, next, members))
    }
}
