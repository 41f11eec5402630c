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

/// One stream: its levels, with the underlying figures.
#[derive(Serialize)]
struct StreamView {
    bounce_level: Level,
    complaint_level: Level,
    windows: Vec<WindowView>,
}

/// Outcomes of the messages accepted in a window.
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
    ReputationView as "Reputation", "Bounce and complaint rates, compared with receivers' limits."
    {
        streams: "Each stream separately.",
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
    "The reputation of one stream. The worse of its windows counts. A level falls only when the rate is a fifth below \
     its threshold."
    {
        bounce_level: "The level of its bounce rate." => |schema| schema.example("ok"),
        complaint_level: "The level of its complaint rate." => |schema| schema.example("ok"),
        windows: "The last 24 hours, then the last seven days.",
    }
}

describe! {
    WindowView as "ReputationWindow",
    "Outcomes of the messages that were accepted in a window. Reports arrive late, so its rates may still rise."
    {
        window_hours: "Number of hours; the last is the current UTC hour." => |schema| schema.example(24),
        accepted: "Messages accepted." => |schema| schema.example(2041),
        delivered: "Delivered messages." => |schema| schema.example(2010),
        bounced: "Bounced messages, at once or later." => |schema| schema.example(12),
        complained: "Messages reported as spam." => |schema| schema.example(1),
        bounce_rate: "Bounces as a share of deliveries and bounces; null below 100 of them."
            => |schema| schema.example(0.005_935),
        complaint_rate: "Complaints as a share of deliveries; null below 100 deliveries."
            => |schema| schema.example(0.000_497),
    }
}
