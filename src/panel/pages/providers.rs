//! Receiving providers: each provider's responses to the account's mail, advice, and links to its postmaster pages.

use std::time::Duration;

use askama::Template;
use hyper::StatusCode;

use crate::base::id::MessageId;
use crate::http::answer::Answer;
use crate::http::handlers::providers::DAYS_DEFAULT;
use crate::http::view::providers::{AnswerView, LinkView, ProviderView, ProvidersView};
use crate::machine::reputation::{Level, Measure, Rate};
use crate::panel::chart::percent;
use crate::panel::components::{Badge, Choice, excerpt, grouped};
use crate::panel::form::Form;
use crate::panel::html;
use crate::panel::layout::PageFrame;
use crate::panel::page_error::PageError;
use crate::panel::page_guard::Visit;
use crate::panel::record_card::curl;
use crate::panel::timestamp::lasted;
use crate::panel::wording;

/// Periods to choose from, in days.
const SPANS: [u32; 4] = [1, 7, 30, 90];
/// Share of deferrals from which a row says that there are many.
const DEFERRALS_HIGH: f64 = 0.25;

#[derive(Template)]
#[template(path = "providers.html")]
struct ProvidersPage {
    frame: PageFrame,
    spans: Vec<Choice>,
    lines: Vec<ProviderLine>,
    curl: String,
}

/// One provider.
struct ProviderLine {
    /// Name of the provider in addresses, such as `google`.
    key: String,
    name: String,
    badge: Badge,
    delivered: Share,
    deferred: Share,
    bounced: Share,
    blocked: Share,
    complained: String,
    half: String,
    most: String,
    answers: Vec<AnswerLine>,
    /// Whether the provider has sent more bounces and deferrals than the answers count.
    is_sample: bool,
    has_many_deferrals: bool,
    /// Badge of a bounce rate above a threshold.
    bounce_badge: Option<Badge>,
    advice: Vec<&'static str>,
    links: Vec<LinkView>,
}

/// A count, and its rate if there are enough messages for one.
struct Share {
    count: String,
    rate: Option<String>,
}

impl Share {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is from 0 to 1")]
    fn new(count: u64, share: Option<f64>) -> Self {
        Self { count: grouped(count), rate: share.map(|share| percent((share * 1e6).round() as u32)) }
    }

    /// Returns the bounces with their share of the deliveries and bounces, if there are enough for a rate.
    fn of_bounces(count: u64, delivered: u64, is_enough: bool) -> Self {
        let millionths = count.saturating_mul(1_000_000).checked_div(count.saturating_add(delivered));
        let millionths = millionths.filter(|_| is_enough).and_then(|millionths| u32::try_from(millionths).ok());
        Self { count: grouped(count), rate: millionths.map(percent) }
    }
}

/// A frequent response.
struct AnswerLine {
    count: String,
    answer: String,
    category: String,
    message: MessageId,
}

/// `GET /providers`.
pub(in crate::panel) async fn show(visit: Visit<'_>) -> Result<Answer, PageError> {
    let asked = Form::of_query(&visit.call).text("days").parse().ok();
    let days = asked.filter(|days| SPANS.contains(days)).unwrap_or(DAYS_DEFAULT);
    let providers = visit.api.engine.providers(visit.account_id(), days).await?;
    let page = ProvidersPage {
        frame: PageFrame::new(&visit, "Providers", "/providers")?,
        spans: SPANS.map(|span| choice(span, days)).into(),
        lines: ProvidersView::new(&providers).data.into_iter().map(ProviderLine::new).collect(),
        curl: curl(&visit, &format!("/v1/providers?days={days}")),
    };
    html::page(StatusCode::OK, &page)
}

fn choice(days: u32, chosen: u32) -> Choice {
    let words = if days == 1 { "Today".to_owned() } else { format!("{days} days") };
    Choice { words, path: format!("/providers?days={days}"), is_here: days == chosen }
}

impl ProviderLine {
    fn new(of: ProviderView<'_>) -> Self {
        let bounces = &of.bounced;
        let bounced = bounces.hard + bounces.soft + bounces.block + bounces.undetermined;
        Self {
            key: of.provider.to_owned(),
            name: wording::provider(of.provider).to_owned(),
            badge: badge(of.level),
            delivered: Share::new(of.delivered, of.delivery_rate),
            deferred: Share::new(of.deferred, of.deferral_rate),
            bounced: Share::of_bounces(bounced, of.delivered, of.delivery_rate.is_some()),
            blocked: Share::new(of.bounced.block, of.block_rate),
            complained: grouped(of.complained),
            half: time(of.p50_seconds),
            most: time(of.p95_seconds),
            is_sample: of.answers.iter().map(|answer| answer.count).sum::<u64>() < bounced + of.deferred,
            bounce_badge: bounce_badge(Rate { count: bounced, of: bounced + of.delivered }),
            has_many_deferrals: of.deferral_rate.is_some_and(|rate| rate >= DEFERRALS_HIGH),
            answers: of.answers.iter().map(AnswerLine::new).collect(),
            advice: of.advice,
            links: of.links,
        }
    }
}

impl AnswerLine {
    fn new(of: &AnswerView<'_>) -> Self {
        let answer = match (of.smtp_response, of.smtp_code) {
            (Some(response), _) => excerpt(response, ""),
            (None, Some(code)) => code.to_string(),
            (None, None) => "No answer".to_owned(),
        };
        let category = of.category.map(wording::category).unwrap_or_default();
        Self { count: grouped(of.count), answer, category, message: of.message_id }
    }
}

const fn badge(level: Level) -> Badge {
    match level {
        Level::Ok => Badge::new("Low", "good", "check"),
        Level::Warn => Badge::new("warning", "wait", "warn"),
        Level::Alarm => Badge::new("Limit", "bad", "flag"),
    }
}

/// Returns the badge of a bounce rate that the overview reports too.
fn bounce_badge(rate: Rate) -> Option<Badge> {
    match rate.raises(Measure::Bounces) {
        Level::Ok => None,
        Level::Warn => Some(Badge::new("High", "wait", "warn")),
        Level::Alarm => Some(Badge::new("High", "bad", "warn")),
    }
}

fn time(seconds: Option<u64>) -> String {
    seconds.map_or_else(|| "–".to_owned(), |seconds| lasted(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::view::providers::BouncesView;

    #[test]
    fn a_row_says_when_its_deferrals_are_high_and_its_answers_a_sample() {
        let line = |deferral_rate, deferred| {
            let answer = AnswerView {
                smtp_code: Some(450),
                smtp_enhanced_code: None,
                smtp_response: None,
                category: None,
                count: 5,
                message_id: MessageId::default(),
            };
            ProviderLine::new(ProviderView {
                provider: "google",
                delivered: 30,
                deferred,
                bounced: BouncesView { hard: 0, soft: 0, block: 0, undetermined: 0 },
                complained: 0,
                delivery_rate: None,
                deferral_rate,
                block_rate: None,
                p50_seconds: None,
                p95_seconds: None,
                level: Level::Ok,
                answers: vec![answer],
                advice: Vec::new(),
                links: Vec::new(),
            })
        };
        assert!(line(Some(0.25), 6).has_many_deferrals && line(Some(0.25), 6).is_sample);
        assert!(!line(Some(0.24), 5).has_many_deferrals && !line(None, 5).is_sample);
    }

    #[test]
    fn bounces_above_a_threshold_are_marked_as_on_the_overview() {
        let tone = |count, of| bounce_badge(Rate { count, of }).map(|badge| badge.tone());
        assert_eq!([tone(1, 100), tone(2, 100), tone(5, 100)], [None, Some("wait"), Some("bad")]);
        assert_eq!(tone(9, 99), None, "there are too few messages for a rate");
    }

    #[test]
    fn bounces_have_a_share_if_there_are_enough_messages() {
        assert_eq!(Share::of_bounces(1, 99, true).rate.as_deref(), Some("1%"));
        assert_eq!(Share::of_bounces(1, 99, false).rate, None);
        assert_eq!(Share::of_bounces(0, 0, true).rate, None);
    }
}
