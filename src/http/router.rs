//! Looks up a method and a path in the route table. There are no redirects, and similar paths are never treated as
//! equal (contract 1).

use hyper::Method;

use super::query::{PlusMeaning, decode};
use super::route::{Params, Route};
use super::service::Authenticator;

/// The routes, indexed for lookups.
pub struct Router<S: Authenticator> {
    paths: matchit::Router<usize>,
    places: Vec<Place<S>>,
}

/// A path with its rows, one per method.
struct Place<S: Authenticator> {
    path: &'static str,
    names: Vec<&'static str>,
    routes: Vec<Route<S>>,
    allow: String,
}

/// Result of looking up a request in the table.
pub(super) enum RouteMatch<'r, S: Authenticator> {
    /// The row, and the path's parameters.
    Row(&'r Route<S>, Params),
    /// The path is known with other methods: one of its rows, and the `Allow` header.
    OtherMethod(&'r Route<S>, &'r str),
    /// The path is unknown.
    Nothing,
}

/// The table contradicts itself: a bug, detected at the start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the route {0} can't be in the table: {1}")]
pub struct InvalidTable(&'static str, String);

impl<S: Authenticator> Router<S> {
    /// Creates a router for these rows.
    ///
    /// # Errors
    /// [`InvalidTable`] if a path is malformed or hides another, or a method is given twice.
    pub fn new(routes: impl IntoIterator<Item = Route<S>>) -> Result<Self, InvalidTable> {
        let mut router = Self { paths: matchit::Router::new(), places: Vec::new() };
        for route in routes {
            router.add(route)?;
        }
        router.places.iter_mut().for_each(Place::list_methods);
        Ok(router)
    }

    fn add(&mut self, route: Route<S>) -> Result<(), InvalidTable> {
        if let Some(place) = self.places.iter_mut().find(|place| place.path == route.path) {
            if place.routes.iter().any(|known| known.method == route.method) {
                return Err(InvalidTable(route.path, format!("{} is given twice", route.method)));
            }
            place.routes.push(route);
            return Ok(());
        }
        let inserted = self.paths.insert(route.path, self.places.len());
        inserted.map_err(|fault| InvalidTable(route.path, fault.to_string()))?;
        let names = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let names = names.map(|name| name.trim_start_matches('*')).collect();
        self.places.push(Place { path: route.path, names, routes: vec![route], allow: String::new() });
        Ok(())
    }

    /// Returns every row, for documents generated from the table.
    pub fn routes(&self) -> impl Iterator<Item = &Route<S>> {
        self.places.iter().flat_map(|place| &place.routes)
    }

    /// Returns whether a row matches this method and path.
    pub fn knows(&self, method: &Method, path: &str) -> bool {
        matches!(self.find(method, path), RouteMatch::Row(..))
    }

    pub(super) fn find(&self, method: &Method, path: &str) -> RouteMatch<'_, S> {
        let Ok(matched) = self.paths.at(path) else { return RouteMatch::Nothing };
        let Some(place) = self.places.get(*matched.value) else { return RouteMatch::Nothing };
        let Some(route) = place.route(method) else {
            return place
                .routes
                .first()
                .map_or(RouteMatch::Nothing, |route| RouteMatch::OtherMethod(route, &place.allow));
        };
        let values = matched.params.iter().map(|(_, value)| decode(value, PlusMeaning::IsPlus));
        // An undecodable path matches no route.
        match values.collect::<Option<Vec<_>>>() {
            Some(values) => RouteMatch::Row(route, place.names.iter().copied().zip(values).collect()),
            None => RouteMatch::Nothing,
        }
    }
}

impl<S: Authenticator> Place<S> {
    fn route(&self, method: &Method) -> Option<&Route<S>> {
        let with = |method: &Method| self.routes.iter().find(|route| route.method == *method);
        with(method).or_else(|| if *method == Method::HEAD { with(&Method::GET) } else { None })
    }

    fn list_methods(&mut self) {
        let mut methods: Vec<&str> = self.routes.iter().map(|route| route.method.as_str()).collect();
        if methods.contains(&"GET") && !methods.contains(&"HEAD") {
            methods.push("HEAD");
        }
        methods.sort_unstable();
        self.allow = methods.join(", ");
    }
}
