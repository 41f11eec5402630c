//! SVG charts: stacked bars, and a rate against its thresholds. The plot is stretched to the page width, so it contains
//! no text. The scale beside it has a fixed size, and the labels below belong to the page. Style sheet classes set
//! colours and dashes. The table behind the chart repeats every value.

use std::fmt::{self, Write as _};

use askama::filters::HtmlSafe;

use super::components::grouped;

/// Size of the plot in its own units. The width is only a scale.
const WIDTH: u64 = 1000;
const HEIGHT: u64 = 160;
/// Minimum distance between two labels beside a plot, in tenths.
const TICK_APART: u64 = 140;
/// Maximum number of labels below a wide plot with more columns than [`ALL_LABELLED`].
const LABELS_MAX: usize = 6;
/// Maximum number of labels below a narrow plot, as on a phone.
const NARROW_LABELS_MAX: usize = 4;
/// Maximum number of columns for which a wide plot labels each one.
const ALL_LABELLED: usize = 8;
/// Maximum bar width in tenths: about 40 pixels of a wide plot.
const BAR_WIDTH: u64 = 450;

/// A chart, ready to render. It contains only our own text: digits, month names, titles.
#[derive(Debug)]
pub(super) struct Chart {
    name: &'static str,
    title: &'static str,
    about: String,
    ticks: Vec<(u64, String)>,
    drawn: String,
    columns: Vec<Column>,
}

/// One step of a chart: its label, and a link to the messages that it counts.
#[derive(Debug)]
pub(super) struct Column {
    /// Label of the step.
    pub(super) label: String,
    /// Values of the step, in words.
    pub(super) words: String,
    /// Link to the messages that the step counts.
    pub(super) link: Option<String>,
}

/// One bar: its parts from the bottom up, each with its CSS class.
#[derive(Debug)]
pub(super) struct Bar {
    /// CSS classes and counts.
    pub(super) parts: Vec<(&'static str, u64)>,
}

/// A rate over time in millionths. `None` where too few messages were sent for a rate.
#[derive(Debug)]
pub(super) struct Rates {
    /// One value per step.
    pub(super) steps: Vec<Option<u32>>,
    /// Warning and alarm thresholds of receivers, in millionths.
    pub(super) thresholds: (u32, u32),
}

/// Heading of a chart: its identifiers, its title, and a description for screen readers.
#[derive(Debug)]
pub(super) struct Heading {
    /// Prefix of the element identifiers.
    pub(super) name: &'static str,
    /// Title of the chart.
    pub(super) title: &'static str,
    /// Description of the chart's content, in one sentence.
    pub(super) about: String,
}

impl Chart {
    /// Draws stacked bars with one column each. The last bar is a step that is still in progress.
    pub(super) fn of_bars(heading: Heading, bars: &[Bar], columns: Vec<Column>) -> Self {
        let highest = bars.iter().map(|bar| bar.parts.iter().map(|(_, count)| count).sum()).max().unwrap_or(0);
        let top = round_up(highest.max(4));
        let mut drawn = grid([top / 2, top].map(|value| level(value, top)));
        let step = WIDTH * 10 / (bars.len() as u64).max(1);
        for (place, bar) in bars.iter().enumerate() {
            drawn.push_str(if place + 1 == bars.len() { "<g class=\"now\">" } else { "<g>" });
            let wide = (step - step / 5).min(BAR_WIDTH);
            let left = place as u64 * step + (step - wide) / 2;
            let mut below = 0;
            for (class, count) in bar.parts.iter().filter(|(_, count)| *count > 0) {
                let (from, to) = (level(below, top), level(below + count, top));
                // A value above zero always stays visible.
                let high = (from - to).max(10);
                let _ =
                    write!(drawn, "<rect class=\"{class}\" {}/>", rectangle(left, wide, from - high.min(from), high));
                below += count;
            }
            drawn.push_str("</g>");
        }
        let ticks = [0, top / 2, top].map(|value| (level(value, top), grouped(value)));
        Self::new(heading, ticks.into(), drawn, columns)
    }

    /// Draws a rate as a line, with its thresholds across the plot.
    pub(super) fn of_rates(heading: Heading, rates: &Rates, columns: Vec<Column>) -> Self {
        let (warn, alarm) = rates.thresholds;
        let highest = rates.steps.iter().flatten().copied().max().unwrap_or(0);
        // Both thresholds always fit into the plot.
        let top = u64::from(highest.max(alarm)) * 6 / 5;
        let mut drawn = String::new();
        for (class, value) in [("warn", warn), ("alarm", alarm)] {
            let _ = write!(drawn, "<path class=\"{class}\" d=\"M0 {}H{WIDTH}\"/>", tenths(level(value.into(), top)));
        }
        let step = WIDTH * 10 / (rates.steps.len() as u64).max(1);
        let (mut line, mut dots, mut is_drawing) = (String::new(), String::new(), false);
        for (place, rate) in rates.steps.iter().enumerate() {
            let Some(rate) = rate else {
                is_drawing = false;
                continue;
            };
            let (x, y) = (tenths(place as u64 * step + step / 2), tenths(level((*rate).into(), top)));
            let _ = write!(line, "{}{x} {y}", if is_drawing { 'L' } else { 'M' });
            let _ = write!(dots, "M{x} {y}h0");
            is_drawing = true;
        }
        if !dots.is_empty() {
            let _ = write!(drawn, "<path class=\"rate\" d=\"{line}\"/><path class=\"dots\" d=\"{dots}\"/>");
        }
        let mut ticks: Vec<(u64, String)> = Vec::new();
        for value in [0, alarm, warn, highest] {
            let at = level(value.into(), top);
            // Labels that would overlap are left out. The legend below the chart names the thresholds too.
            if ticks.iter().all(|(other, _)| other.abs_diff(at) >= TICK_APART) {
                ticks.push((at, percent(value)));
            }
        }
        Self::new(heading, ticks, drawn, columns)
    }

    fn new(heading: Heading, ticks: Vec<(u64, String)>, drawn: String, columns: Vec<Column>) -> Self {
        let Heading { name, title, about } = heading;
        Self { name, title, about, ticks, drawn, columns }
    }

    /// Writes the columns over the plot. The last column has a label, and every nth before it. Labels with the class
    /// `more` are hidden in a narrow plot.
    fn write_columns(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.columns.len();
        let every = if count <= ALL_LABELLED { 1 } else { count.div_ceil(LABELS_MAX) };
        let every_narrow = every * count.div_ceil(every).div_ceil(NARROW_LABELS_MAX).max(1);
        f.write_str("<ol class=\"columns\">")?;
        for (place, Column { label, words, link }) in self.columns.iter().enumerate() {
            f.write_str("<li>")?;
            match link {
                Some(link) => write!(f, "<a href=\"{link}\"><span class=\"tip\">{words}</span></a>")?,
                None => write!(f, "<span class=\"step\"><span class=\"tip\">{words}</span></span>")?,
            }
            let before_last = count - 1 - place;
            if before_last.is_multiple_of(every) {
                let class = if before_last.is_multiple_of(every_narrow) { "x" } else { "x more" };
                write!(f, "<span class=\"{class}\" aria-hidden=\"true\">{label}</span>")?;
            }
            f.write_str("</li>")?;
        }
        f.write_str("</ol>")
    }
}

impl fmt::Display for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, title, about, drawn, .. } = self;
        write!(
            f,
            "<div class=\"plot\"><svg class=\"scale\" width=\"56\" height=\"{}\" aria-hidden=\"true\">",
            HEIGHT + 12
        )?;
        for (y, words) in &self.ticks {
            write!(f, "<text x=\"50\" y=\"{}\">{words}</text>", tenths(y + 100))?;
        }
        write!(
            f,
            "</svg><div class=\"field\">\
             <svg class=\"drawn\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-labelledby=\"{name}-title {name}-about\"><title id=\"{name}-title\">{title}</title>\
             <desc id=\"{name}-about\">{about}</desc>{drawn}</svg>"
        )?;
        self.write_columns(f)?;
        f.write_str("</div></div>")
    }
}

impl HtmlSafe for Chart {}

/// Returns horizontal lines at these heights.
fn grid<const N: usize>(heights: [u64; N]) -> String {
    let lines = heights.map(|height| format!("M0 {}H{WIDTH}", tenths(height))).concat();
    format!("<path class=\"grid\" d=\"{lines}\"/>")
}

/// Returns the attributes of a rectangle, all in tenths.
fn rectangle(left: u64, wide: u64, top: u64, high: u64) -> String {
    let [x, width, y, height] = [left, wide, top, high].map(tenths);
    format!("x=\"{x}\" width=\"{width}\" y=\"{y}\" height=\"{height}\"")
}

/// Returns the distance of a value from the plot's upper edge, in tenths.
fn level(value: u64, top: u64) -> u64 {
    let high = u128::from(value) * u128::from(HEIGHT * 10) / u128::from(top.max(1));
    (HEIGHT * 10).saturating_sub(u64::try_from(high).unwrap_or(u64::MAX))
}

fn tenths(value: u64) -> String {
    if value.is_multiple_of(10) { (value / 10).to_string() } else { format!("{}.{}", value / 10, value % 10) }
}

/// Rounds up to the next convenient scale end: 1, 2, 4, 6, 8 or 10 times a power of ten.
fn round_up(value: u64) -> u64 {
    let power = 10_u64.saturating_pow(value.max(1).ilog10());
    [1, 2, 4, 6, 8, 10]
        .map(|times| power.saturating_mul(times))
        .into_iter()
        .find(|round| *round >= value)
        .unwrap_or(value)
}

/// Formats a rate in millionths as a percentage: `0.59%`.
pub(super) fn percent(millionths: u32) -> String {
    let hundredths = (u64::from(millionths) + 50) / 100;
    match hundredths % 100 {
        0 => format!("{}%", hundredths / 100),
        part if part % 10 == 0 => format!("{}.{}%", hundredths / 100, part / 10),
        part => format!("{}.{part:02}%", hundredths / 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heading() -> Heading {
        Heading { name: "x", title: "Title", about: "About.".to_owned() }
    }

    fn columns(count: usize) -> Vec<Column> {
        let column = |place: usize| Column {
            label: format!("d{place}"),
            words: format!("d{place}: 3 and 1"),
            link: place.is_multiple_of(2).then(|| format!("/messages?q={place}")),
        };
        (0..count).map(column).collect()
    }

    #[test]
    fn stacked_bars_have_one_column_each_with_its_values() {
        let bars = [Bar { parts: vec![("good", 3), ("bad", 1)] }, Bar { parts: vec![("good", 0), ("bad", 0)] }];
        let chart = Chart::of_bars(heading(), &bars, columns(2)).to_string();
        for part in [
            "role=\"img\" aria-labelledby=\"x-title x-about\"",
            "<desc id=\"x-about\">About.</desc>",
            "<rect class=\"good\" x=\"227.5\" width=\"45\" y=\"40\" height=\"120\"/>",
            "<rect class=\"bad\" x=\"227.5\" width=\"45\" y=\"0\" height=\"40\"/>",
            "<li><a href=\"/messages?q=0\"><span class=\"tip\">d0: 3 and 1</span></a><span class=\"x\"",
            "<li><span class=\"step\"><span class=\"tip\">d1: 3 and 1</span></span><span class=\"x\"",
        ] {
            assert!(chart.contains(part), "{part} in {chart}");
        }
        assert_eq!((chart.matches("class=\"good\"").count(), chart.contains("style")), (1, false));
        assert_eq!(chart.matches("<g class=\"now\">").count(), 1, "the last step is still in progress");
    }

    #[test]
    fn labels_are_below_their_columns_and_the_last_column_has_one() {
        let labels = |count: usize, class: &str| -> Vec<String> {
            let bars: Vec<_> = (0..count).map(|_| Bar { parts: Vec::new() }).collect();
            let chart = Chart::of_bars(heading(), &bars, columns(count)).to_string();
            let labelled = chart.split("<li>").skip(1).filter(|column| column.contains(class));
            labelled
                .map(|column| column.split("tip\">").nth(1).unwrap().split(':').next().unwrap().to_owned())
                .collect()
        };
        assert_eq!(labels(30, "class=\"x"), ["d4", "d9", "d14", "d19", "d24", "d29"]);
        assert_eq!(labels(24, "class=\"x"), ["d3", "d7", "d11", "d15", "d19", "d23"]);
        assert_eq!(labels(7, "class=\"x"), ["d0", "d1", "d2", "d3", "d4", "d5", "d6"]);
        let narrow = "class=\"x\"";
        assert_eq!(labels(30, narrow), ["d9", "d19", "d29"]);
        assert_eq!(labels(24, narrow), ["d7", "d15", "d23"]);
        assert_eq!(labels(7, narrow), ["d0", "d2", "d4", "d6"]);
        assert_eq!(labels(3, narrow), ["d0", "d1", "d2"]);
    }

    #[test]
    fn a_rate_chart_always_shows_its_thresholds() {
        let thresholds = (20_000, 50_000);
        let rates = Rates { steps: vec![Some(0), Some(60_000), None, Some(30_000)], thresholds };
        let chart = Chart::of_rates(heading(), &rates, Vec::new()).to_string();
        assert!(chart.contains("<path class=\"rate\" d=\"M125 160L375 26.7M875 93.4\"/>"), "{chart}");
        assert!(chart.contains("<path class=\"warn\" d=\"M0 115.6H1000\"/>") && chart.contains(">5%</text>"));
        let empty = Chart::of_rates(heading(), &Rates { steps: vec![None; 30], thresholds }, columns(30));
        let empty = empty.to_string();
        assert!(empty.contains("class=\"alarm\"") && !empty.contains("class=\"rate\""));
    }

    #[test]
    fn scales_end_at_round_numbers_and_rates_are_percentages() {
        assert_eq!([1, 3, 5, 11, 61, 100, 8_001].map(round_up), [1, 4, 6, 20, 80, 100, 10_000]);
        assert_eq!([0, 1_000, 5_935, 20_000, 123_456].map(percent), ["0%", "0.1%", "0.59%", "2%", "12.35%"]);
        let huge = Bar { parts: vec![("good", u64::MAX / 4)] };
        assert!(Chart::of_bars(heading(), &[huge], Vec::new()).to_string().contains("class=\"good\""));
    }
}
