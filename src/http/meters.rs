//! What the API counts: requests by route and status class, how long they took, and refusals that an operator should
//! know of. Labels come from the route table and from fixed lists: no path, address or account ever is one.

use std::collections::HashMap;
use std::time::Duration;

use hyper::StatusCode;

use crate::base::meter::{Counter, Distribution, Histogram};

/// The name under which requests for unknown paths are counted.
pub const UNKNOWN: &str = "unknown";
/// The refusals that are counted, by the machine word of their error.
pub const REFUSALS: [&str; 8] = [
    "rate_limited",
    "quota_exceeded",
    "recipient_suppressed",
    "unauthenticated",
    "overloaded",
    "storage_full",
    "storage_failed",
    "shutting_down",
];
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The API's meters.
#[derive(Debug)]
pub struct RequestMeters {
    routes: HashMap<&'static str, RouteMeters>,
    refusals: [Counter; REFUSALS.len()],
}

#[derive(Debug)]
struct RouteMeters {
    classes: [Counter; CLASSES.len()],
    duration: Histogram,
}

/// A route's numbers, as they stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteCount {
    /// Its name in the route table.
    pub route: &'static str,
    /// Requests by the class of their answer's status, such as `2xx`.
    pub classes: Vec<(&'static str, u64)>,
    /// How long answers took, in microseconds.
    pub duration: Distribution,
}

impl RequestMeters {
    /// Meters for routes of these names.
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        let meters = || RouteMeters { classes: Default::default(), duration: Histogram::of_durations() };
        let routes = names.into_iter().chain([UNKNOWN]).map(|name| (name, meters())).collect();
        Self { routes, refusals: Default::default() }
    }

    /// Counts an answer of the route called `route` that took so long.
    pub(super) fn answered(&self, route: &str, status: StatusCode, took: Duration) {
        let Some(meters) = self.routes.get(route) else { return };
        if let Some(class) = meters.classes.get(usize::from(status.as_u16() / 100).saturating_sub(1)) {
            class.count();
        }
        meters.duration.observe_duration(took);
    }

    /// Counts a refusal by the machine word of its error, where it is one of [`REFUSALS`].
    pub(super) fn refused(&self, code: &str) {
        if let Some(place) = REFUSALS.iter().position(|refusal| *refusal == code) {
            self.refusals[place].count();
        }
    }

    /// The routes that were asked for, by name.
    pub fn routes(&self) -> Vec<RouteCount> {
        let count = |(route, meters): (&&'static str, &RouteMeters)| RouteCount {
            route,
            classes: CLASSES.into_iter().zip(meters.classes.iter().map(Counter::read)).collect(),
            duration: meters.duration.read(),
        };
        let mut routes: Vec<_> = self.routes.iter().map(count).filter(|route| route.duration.count > 0).collect();
        routes.sort_unstable_by_key(|route| route.route);
        routes
    }

    /// Each of [`REFUSALS`], and how many there were.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REFUSALS.into_iter().zip(self.refusals.iter().map(Counter::read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_counted_under_its_routes_name_and_the_class_of_its_status() {
        let meters = RequestMeters::new(["messages.create", "messages.show"]);
        meters.answered("messages.create", StatusCode::ACCEPTED, Duration::from_millis(2));
        meters.answered("messages.create", StatusCode::UNPROCESSABLE_ENTITY, Duration::from_millis(1));
        meters.answered(UNKNOWN, StatusCode::NOT_FOUND, Duration::ZERO);
        meters.answered("/v1/messages/msg_x", StatusCode::OK, Duration::ZERO);
        let routes = meters.routes();
        assert_eq!(routes.iter().map(|route| route.route).collect::<Vec<_>>(), ["messages.create", UNKNOWN]);
        assert_eq!(routes[0].classes, [("1xx", 0), ("2xx", 1), ("3xx", 0), ("4xx", 1), ("5xx", 0)]);
        assert_eq!((routes[0].duration.count, routes[0].duration.sum), (2, 3_000));
    }

    #[test]
    fn a_refusal_is_counted_where_an_operator_should_know_of_it() {
        let meters = RequestMeters::new([]);
        meters.refused("quota_exceeded");
        meters.refused("validation_failed");
        let counted: Vec<_> = meters.refusals().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("quota_exceeded", 1)]);
    }
}
