//! The service's clock as JSON.

use serde::Serialize;

use crate::base::time::{Timestamp, iso};
use crate::machine::service_clock::{Doubt, ServiceTime};

/// The service's time and the wall clock.
#[derive(Serialize)]
pub(in crate::http) struct ClockView {
    state: &'static str,
    #[serde(serialize_with = "iso::serialize")]
    service_time: Timestamp,
    #[serde(serialize_with = "iso::serialize")]
    wall_clock: Timestamp,
    cause: Option<&'static str>,
}

impl ClockView {
    pub(in crate::http) fn new(time: &ServiceTime, doubt: Option<&Doubt>) -> Self {
        let state = if time.is_doubtful() { "doubtful" } else { "trusted" };
        let cause = doubt.map(|doubt| doubt.cause.as_str());
        Self { state, service_time: time.now, wall_clock: time.wall, cause }
    }
}
