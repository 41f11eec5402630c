//! Writes the OpenMetrics 1.0 text format. It has no knowledge of the metrics.

use std::fmt::Write as _;

use crate::base::meter::Distribution;

/// Media type of the text.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A label's name and value.
pub(super) type Label<'a> = (&'a str, &'a str);

/// Unit of a histogram's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Microseconds, written as seconds.
    Microseconds,
    /// A number of objects.
    Things,
}

impl Unit {
    fn written(self, value: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a float is what the format has; 53 bits are 285 years of µs")]
        let value = value as f64;
        match self {
            Self::Microseconds => value / 1e6,
            Self::Things => value,
        }
    }
}

/// The text that is being written.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// Writes the counters of one family; `name` is without `_total`.
    pub(super) fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<Label<'a>>, u64)>,
    ) {
        self.family(name, "counter", help);
        for (labels, value) in samples {
            self.sample(name, "_total", &labels, value);
        }
    }

    /// Writes the gauges of one family.
    pub(super) fn gauges<'a, V: std::fmt::Display>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<Label<'a>>, V)>,
    ) {
        self.family(name, "gauge", help);
        for (labels, value) in samples {
            self.sample(name, "", &labels, value);
        }
    }

    /// Writes facts as labels of a constant.
    pub(super) fn info(&mut self, name: &str, help: &str, labels: &[Label<'_>]) {
        self.family(name, "info", help);
        self.sample(name, "_info", labels, 1);
    }

    /// Writes the histograms of one family.
    pub(super) fn histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        unit: Unit,
        samples: impl IntoIterator<Item = (Vec<Label<'a>>, Distribution)>,
    ) {
        self.family(name, "histogram", help);
        for (labels, read) in samples {
            let bounds = read.buckets.iter().map(|(bound, count)| (format!("{:?}", unit.written(*bound)), *count));
            for (bound, count) in bounds.chain([("+Inf".to_owned(), read.count)]) {
                let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
                self.sample(name, "_bucket", &labels, count);
            }
            self.sample(name, "_count", &labels, read.count);
            self.sample(name, "_sum", &labels, unit.written(read.sum));
        }
    }

    /// Returns the whole text.
    pub(super) fn finish(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if let Some(unit) = ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(&format!("_{unit}"))) {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {}", escaped(help));
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &[Label<'_>], value: impl std::fmt::Display) {
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let _ = match labels.is_empty() {
            true => writeln!(self.0, "{name}{suffix} {value}"),
            false => writeln!(self.0, "{name}{suffix}{{{}}} {value}", labels.join(",")),
        };
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_starts_with_its_type_and_help() {
        let mut text = Exposition::default();
        text.counters("a_sent", "Messages \"sent\".", [(vec![("stream", "x\"y\\z")], 3)]);
        text.gauges("a_free_bytes", "Free.", [(vec![], 7)]);
        text.info("a_build", "What runs.", &[("version", "1")]);
        assert_eq!(
            text.finish(),
            "# TYPE a_sent counter\n# HELP a_sent Messages \\\"sent\\\".\na_sent_total{stream=\"x\\\"y\\\\z\"} 3\n\
             # TYPE a_free_bytes gauge\n# UNIT a_free_bytes bytes\n# HELP a_free_bytes Free.\na_free_bytes 7\n\
             # TYPE a_build info\n# HELP a_build What runs.\na_build_info{version=\"1\"} 1\n# EOF\n"
        );
    }

    #[test]
    fn a_histogram_ends_at_infinity_and_is_in_seconds() {
        let mut text = Exposition::default();
        let read = Distribution { buckets: vec![(100, 1), (1_000_000, 2)], count: 3, sum: 2_500_000 };
        text.histograms("a_wait_seconds", "Waits.", Unit::Microseconds, [(vec![("to", "b")], read)]);
        let text = text.finish();
        for line in [
            "a_wait_seconds_bucket{to=\"b\",le=\"0.0001\"} 1",
            "a_wait_seconds_bucket{to=\"b\",le=\"1.0\"} 2",
            "a_wait_seconds_bucket{to=\"b\",le=\"+Inf\"} 3",
            "a_wait_seconds_count{to=\"b\"} 3",
            "a_wait_seconds_sum{to=\"b\"} 2.5",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
    }
}
