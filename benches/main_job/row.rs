//! The result of one row and the figures derived from it.

use std::time::Duration;

use crate::calibration::{Calibration, micros};
use crate::client::Latencies;
use crate::measure::Usage;
use crate::scenario::Point;

/// Maximum drift of the CPU unit; a row with more is unreliable.
pub(crate) const DRIFT_MAX: f64 = 0.15;

/// Measurements of one row.
pub(crate) struct Row {
    pub(crate) point: Point,
    pub(crate) messages: usize,
    pub(crate) accepted_in: Duration,
    /// From the first request to the last message at the sink; `None` for acceptance alone.
    pub(crate) delivered_in: Option<Duration>,
    /// Messages at the sink in excess of those sent.
    pub(crate) extra_at_sink: Option<u64>,
    pub(crate) answers: Latencies,
    /// One signature and one durable append, measured between the requests.
    pub(crate) beside: Option<Latencies>,
    pub(crate) usage: Usage,
    /// From the server's own metrics.
    pub(crate) syncs: Option<f64>,
    /// Requests to the replica's bucket; `None` without replication.
    pub(crate) bucket_requests: Option<u64>,
    /// Greatest time by which the bucket was behind the log while messages were accepted, in seconds.
    pub(crate) lag: Option<f64>,
    /// Number of the store's checkpoints during the row, from the server's metrics.
    pub(crate) checkpoints: Option<f64>,
    pub(crate) signatures: usize,
    pub(crate) idle_kb: u64,
    pub(crate) peak_kb: u64,
    pub(crate) load_average: f64,
    /// The units before and after the row.
    pub(crate) unit: Calibration,
    pub(crate) drift: f64,
}

impl Row {
    pub(crate) fn accept_rate(&self) -> f64 {
        self.messages as f64 / self.accepted_in.as_secs_f64()
    }

    pub(crate) fn delivery_rate(&self) -> Option<f64> {
        self.delivered_in.map(|time| self.messages as f64 / time.as_secs_f64())
    }

    /// Returns the server's CPU time per message, in ms.
    pub(crate) fn cpu_ms(&self) -> f64 {
        self.per_message(self.usage.server_seconds) * 1e3
    }

    /// Returns the CPU time of this process per message, in ms.
    pub(crate) fn client_ms(&self) -> f64 {
        self.per_message(self.usage.client_seconds) * 1e3
    }

    /// Returns the CPU time of a message divided by that of one RSA-2048 signature.
    pub(crate) fn sign_units(&self) -> f64 {
        self.cpu_ms() / (self.unit.sign.as_secs_f64() * 1e3)
    }

    pub(crate) fn written_kb(&self) -> f64 {
        self.per_message(self.usage.written as f64) / 1024.0
    }

    pub(crate) fn device_kb(&self) -> Option<f64> {
        self.usage.disk.map(|disk| self.per_message(disk.bytes as f64) / 1024.0)
    }

    /// Returns the device's flushes per message; `None` if the device does not count them.
    pub(crate) fn flushes(&self) -> Option<f64> {
        let counted = self.unit.flushes_per_sync > 0.0;
        self.usage.disk.filter(|_| counted).map(|disk| self.per_message(disk.flushes as f64))
    }

    pub(crate) fn syncs(&self) -> Option<f64> {
        self.syncs.map(|syncs| self.per_message(syncs))
    }

    pub(crate) fn is_steady(&self) -> bool {
        self.drift <= DRIFT_MAX
    }

    /// Returns the row as one line. All three ratios have the median answer as numerator. `p50_over_floor` divides it
    /// by one signature and one durable append, measured alternately before and after the row; `p50_over_beside` by the
    /// same, measured between the requests. `p50_over_units` divides it by the sum of both, each measured alone.
    pub(crate) fn json(&self) -> String {
        let units = (self.unit.sign + self.unit.sync).as_secs_f64();
        let floor = self.unit.floor.as_secs_f64();
        serde_json::json!({
            "row": self.point.label(),
            "messages": self.messages,
            "accept_per_second": round(self.accept_rate()),
            "delivered_per_second": self.delivery_rate().map(round),
            "extra_at_sink": self.extra_at_sink,
            "p50_us": micros(self.answers.at(0.50)),
            "p90_us": micros(self.answers.at(0.90)),
            "p99_us": micros(self.answers.at(0.99)),
            "p999_us": micros(self.answers.at(0.999)),
            "max_us": micros(self.answers.at(1.0)),
            "checkpoints": self.checkpoints,
            "p50_over_floor": round(self.answers.at(0.50).as_secs_f64() / floor),
            "beside_p50_us": self.beside.as_ref().map(|beside| micros(beside.at(0.50))),
            "p50_over_beside": self.beside.as_ref().map(|beside| {
                round(self.answers.at(0.50).as_secs_f64() / beside.at(0.50).as_secs_f64())
            }),
            "p50_over_units": round(self.answers.at(0.50).as_secs_f64() / units),
            "cpu_ms_per_message": round(self.cpu_ms()),
            "su": round(self.sign_units()),
            "client_cpu_ms_per_message": round(self.client_ms()),
            "write_bytes_kb_per_message": round(self.written_kb()),
            "device_kb_per_message": self.device_kb().map(round),
            "device_flushes_per_message": self.flushes().map(round),
            "syncs_per_message": self.syncs().map(round),
            "bucket_requests_per_message": self.bucket_requests.map(|count| round(self.per_message(count as f64))),
            "replica_lag_seconds": self.lag.map(round),
            "dkim_signatures": self.signatures,
            "idle_rss_kb": self.idle_kb,
            "peak_rss_kb": self.peak_kb,
            "load_average": self.load_average,
            "rsa2048_sign_us": micros(self.unit.sign),
            "append_4k_fdatasync_p50_us": micros(self.unit.sync),
            "sign_and_append_p50_us": micros(self.unit.floor),
            "unit_drift": round(self.drift),
        })
        .to_string()
    }

    fn per_message(&self, whole: f64) -> f64 {
        whole / self.messages as f64
    }
}

/// Rounds to three decimals, because more would be noise.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
