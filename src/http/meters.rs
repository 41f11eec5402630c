//! Meters of the API: requests by route and status class, their durations, and the refusals that matter to an operator.
//! Labels come from the route table and from fixed lists, never from paths, addresses or accounts.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;

use crate::base::meter::{Counter, Distribution, Histogram};
use crate::base::time::Timestamp;

/// Route name under which requests for unknown paths are counted.
pub const UNKNOWN: &str = "unknown";
/// Error codes of the counted refusals.
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
/// Error codes of the limits on the operator's page.
pub const LIMITS: [&str; 7] = [
    "rate_limited",
    "quota_exceeded",
    "storage_quota_exceeded",
    "payload_too_large",
    "overloaded",
    "storage_full",
    "request_timeout",
];
/// Number of hours for which reached limits are counted.
const LIMIT_HOURS: usize = 24;
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The API's meters.
#[derive(Debug)]
pub struct RequestMeters {
    routes: HashMap<&'static str, RouteMeters>,
    refusals: [Counter; REFUSALS.len()],
    limits: Mutex<VecDeque<LimitsOfHour>>,
}

/// Number of times that each of [`LIMITS`] was reached in one hour, counted from the epoch.
#[derive(Debug)]
struct LimitsOfHour {
    hour: u64,
    reached: [u64; LIMITS.len()],
}

#[derive(Debug)]
struct RouteMeters {
    classes: [Counter; CLASSES.len()],
    duration: Histogram,
}

/// A snapshot of one route's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteCount {
    /// Name in the route table.
    pub route: &'static str,
    /// Number of requests by status class, such as `2xx`.
    pub classes: Vec<(&'static str, u64)>,
    /// Durations of answers, in microseconds.
    pub duration: Distribution,
}

impl RequestMeters {
    /// Creates meters for routes with these names.
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        let meters = || RouteMeters { classes: Default::default(), duration: Histogram::of_durations() };
        let routes = names.into_iter().chain([UNKNOWN]).map(|name| (name, meters())).collect();
        Self { routes, refusals: Default::default(), limits: Mutex::default() }
    }

    /// Counts an answer of `route`, and the time that it took.
    pub(super) fn answered(&self, route: &str, status: StatusCode, took: Duration) {
        let Some(meters) = self.routes.get(route) else { return };
        if let Some(class) = meters.classes.get(usize::from(status.as_u16() / 100).saturating_sub(1)) {
            class.count();
        }
        meters.duration.observe_duration(took);
    }

    /// Counts a refusal at `now` by its error code, if that is in [`REFUSALS`] or [`LIMITS`].
    pub(super) fn refused(&self, code: &str, now: Timestamp) {
        if let Some(place) = LIMITS.iter().position(|limit| *limit == code) {
            self.reach(place, hour_of(now));
        }
        if let Some(place) = REFUSALS.iter().position(|refusal| *refusal == code) {
            self.refusals[place].count();
        }
    }

    fn reach(&self, place: usize, hour: u64) {
        let mut hours = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if hours.back().is_none_or(|last| last.hour != hour) {
            hours.push_back(LimitsOfHour { hour, reached: Default::default() });
            if hours.len() > LIMIT_HOURS {
                hours.pop_front();
            }
        }
        if let Some(reached) = hours.back_mut().and_then(|last| last.reached.get_mut(place)) {
            *reached += 1;
        }
    }

    /// Returns each of [`LIMITS`] that was reached in the 24 hours up to `now`, and how often, at most since the start.
    pub fn limits_reached(&self, now: Timestamp) -> Vec<(&'static str, u64)> {
        let from = hour_of(now).saturating_sub(LIMIT_HOURS as u64 - 1);
        let hours = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |place: usize| -> u64 {
            let lately = hours.iter().filter(|hour| hour.hour >= from);
            lately.filter_map(|hour| hour.reached.get(place)).sum()
        };
        let counted = LIMITS.into_iter().enumerate().map(|(place, limit)| (limit, count(place)));
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the requested routes, by name.
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

    /// Returns the counts of [`REFUSALS`].
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REFUSALS.into_iter().zip(self.refusals.iter().map(Counter::read))
    }
}

const fn hour_of(now: Timestamp) -> u64 {
    now.as_secs() / 3600
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_counted_by_route_name_and_status_class() {
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
    fn only_relevant_refusals_are_counted() {
        let meters = RequestMeters::new([]);
        meters.refused("quota_exceeded", Timestamp::ZERO);
        meters.refused("validation_failed", Timestamp::ZERO);
        let counted: Vec<_> = meters.refusals().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("quota_exceeded", 1)]);
    }

    #[test]
    fn limits_are_counted_for_a_day() {
        let meters = RequestMeters::new([]);
        let hour = |hours: u64| Timestamp::ZERO + Duration::from_secs(hours * 3600);
        meters.refused("rate_limited", hour(0));
        meters.refused("rate_limited", hour(1));
        meters.refused("validation_failed", hour(1));
        for hours in 2..40 {
            meters.refused("overloaded", hour(hours));
        }
        assert_eq!(meters.limits_reached(hour(39)), [("overloaded", 24)]);
        assert_eq!(meters.limits_reached(hour(60)), [("overloaded", 3)]);
        assert_eq!(meters.limits_reached(hour(70)), []);
        meters.refused("rate_limited", hour(70));
        assert_eq!(meters.limits_reached(hour(70)), [("rate_limited", 1)]);
    }
}
