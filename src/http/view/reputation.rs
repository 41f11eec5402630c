//! Bounce and complaint levels of an account's streams, as `GET /v1/me` shows them.

use serde::Serialize;

use crate::domain::stream::Stream;
use crate::engine::reputation::{Reputation, StreamReputation};
use crate::http::openapi::shape::describe;
use crate::machine::reputation::{Level, Rate};
use crate::store::row::outcomes::OutcomeCounts;

/// Both streams.
#[derive(Serialize)]
pub(in crate::http) struct ReputationView {
    streams: StreamsView,
}

#[derive(Serialize)]
struct StreamsView {
    transactional: StreamView,
    marketing: StreamView,
}

/// One stream: its levels, and what they come from.
#[derive(Serialize)]
struct StreamView {
    bounce_level: Level,
    complaint_level: Level,
    windows: Vec<WindowView>,
}

/// Outcomes of the messages that a window accepted.
#[derive(Serialize)]
struct WindowView {
    window_hours: u32,
    accepted: u64,
    delivered: u64,
    bounced: u64,
    complained: u64,
    bounce_rate: Option<f64>,
    complaint_rate: Option<f64>,
}

impl ReputationView {
    pub(in crate::http) fn new(reputation: &Reputation) -> Self {
        let stream = |stream| StreamView::new(reputation.of(stream));
        let (transactional, marketing) = (stream(Stream::Transactional), stream(Stream::Marketing));
        Self { streams: StreamsView { transactional, marketing } }
    }
}

impl StreamView {
    fn new(stream: &StreamReputation) -> Self {
        Self {
            bounce_level: stream.levels.bounces,
            complaint_level: stream.levels.complaints,
            windows: stream.windows.iter().map(|(hours, counts)| WindowView::new(*hours, counts)).collect(),
        }
    }
}

impl WindowView {
    fn new(window_hours: u32, counts: &OutcomeCounts) -> Self {
        let figures = counts.figures();
        let share = |rate: Rate| rate.millionths().map(|millionths| f64::from(millionths) / 1e6);
        Self {
            window_hours,
            accepted: counts.accepted,
            delivered: counts.delivered,
            bounced: counts.bounced(),
            complained: counts.complained,
            bounce_rate: share(figures.bounces),
            complaint_rate: share(figures.complaints),
        }
    }
}

describe! {
    ReputationView as "Reputation", "How bounces and complaints stand against what receivers bear."
    {
        streams: "Each stream for itself.",
    }
}

describe! {
    StreamsView as "StreamReputations", "Both streams."
    {
        transactional: "The transactional stream.",
        marketing: "The marketing stream.",
    }
}

describe! {
    StreamView as "StreamReputation",
    "How one stream stands. The worse of its windows counts; a level falls only a fifth below its threshold."
    {
        bounce_level: "How bad its bounces are." => |schema| schema.example("ok"),
        complaint_level: "How bad its complaints are." => |schema| schema.example("ok"),
        windows: "The last 24 hours, then the last seven days.",
    }
}

describe! {
    WindowView as "ReputationWindow",
    "What became of the messages that were accepted in a window. Reports come late, so its rates may still rise."
    {
        window_hours: "How many hours it has; the last is the present UTC hour." => |schema| schema.example(24),
        accepted: "Messages accepted." => |schema| schema.example(2041),
        delivered: "Those that a server took." => |schema| schema.example(2010),
        bounced: "Those that bounced, at once or later." => |schema| schema.example(12),
        complained: "Those that were called spam." => |schema| schema.example(1),
        bounce_rate: "The share of bounces among what was delivered or bounced; null below 100 of them."
            => |schema| schema.example(0.005_935),
        complaint_rate: "The share of complaints among what was delivered; null below 100 deliveries."
            => |schema| schema.example(0.000_497),
    }
}
