//! Receiving providers: each provider's responses to the account's mail, advice, and links to its postmaster pages.

use std::collections::HashMap;
use std::time::Duration;

use askama::Template;
use hyper::StatusCode;

use crate::base::id::MessageId;
use crate::engine::queue::AccountQueue;
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
use crate::store::op::outcomes::OTHER;

/// Periods to choose from, in days.
const SPANS: [u32; 4] = [1, 7, 30, 90];
/// Share of deferrals from which a row says that there are many.
const DEFERRALS_HIGH: f64 = 0.25;
/// Blocks are marked from one of this many answers, like the level `warn`, which needs more answers.
const ANSWERS_OF_BLOCK: u64 = 20;
/// Maximum number of waiting messages read.
const WAITING_READ: usize = 1_000;

#[derive(Template)]
#[template(path = "providers.html")]
struct ProvidersPage {
    frame: PageFrame,
    spans: Vec<Choice>,
    lines: Vec<ProviderLine>,
    /// Number of messages that wait for destinations without a line, in words.
    waiting_elsewhere: Option<String>,
    curl: String,
}

/// One provider.
struct ProviderLine {
    /// Name of the provider in addresses, such as `google`.
    key: String,
    name: String,
    badge: Badge,
    /// Number of messages that wait for the provider now.
    waiting: Option<String>,
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
    let queue = visit.api.engine.queue_of(visit.account_id(), WAITING_READ).await?;
    let providers = ProvidersView::new(&providers).data;
    let names: Vec<_> = providers.iter().map(|provider| provider.provider).collect();
    let waiting = Waiting::at(&names, &queue);
    let page = ProvidersPage {
        frame: PageFrame::new(&visit, "Providers", "/providers")?,
        spans: SPANS.map(|span| choice(span, days)).into(),
        waiting_elsewhere: waiting.in_words(None),
        lines: providers.into_iter().map(|provider| ProviderLine::new(provider, &waiting)).collect(),
        curl: curl(&visit, &format!("/v1/providers?days={days}")),
    };
    html::page(StatusCode::OK, &page)
}

fn choice(days: u32, chosen: u32) -> Choice {
    let words = if days == 1 { "Today".to_owned() } else { format!("{days} days") };
    Choice { words, path: format!("/providers?days={days}"), is_here: days == chosen }
}

/// Number of waiting messages by provider.
struct Waiting {
    /// The numbers. `None` is any destination that is not a provider of the page.
    counts: HashMap<Option<String>, u64>,
    /// Whether more messages wait than were counted.
    is_cut: bool,
}

impl Waiting {
    /// Counts the messages that wait for the providers `names`.
    fn at(names: &[&str], queue: &AccountQueue) -> Self {
        let known = |name: &str| names.contains(&name).then(|| name.to_owned());
        let mut counts = HashMap::new();
        for site in &queue.sites {
            // A destination without a provider is named after its servers or domain.
            let provider = known(&site.site).or_else(|| known(OTHER).filter(|_| site.site.contains('.')));
            *counts.entry(provider).or_default() += site.waiting;
        }
        Self { counts, is_cut: queue.is_cut }
    }

    fn count(&self, provider: Option<&str>) -> u64 {
        self.counts.get(&provider.map(str::to_owned)).copied().unwrap_or_default()
    }

    fn in_words(&self, provider: Option<&str>) -> Option<String> {
        let count = self.count(provider);
        let least = if self.is_cut { "at least " } else { "" };
        (count > 0).then(|| format!("{least}{} waiting", grouped(count)))
    }
}

impl ProviderLine {
    fn new(of: ProviderView<'_>, waiting: &Waiting) -> Self {
        let bounced = bounced(&of);
        Self {
            key: of.provider.to_owned(),
            name: wording::provider(of.provider).to_owned(),
            badge: badge(&of, waiting.count(Some(of.provider))),
            waiting: waiting.in_words(Some(of.provider)),
            delivered: Share::new(of.delivered, of.delivery_rate),
            deferred: Share::new(of.deferred, of.deferral_rate),
            bounced: Share::of_bounces(bounced, of.delivered, of.delivery_rate.is_some()),
            blocked: Share::new(of.bounced.block, of.block_rate),
            complained: grouped(of.complained),
            half: time(of.p50_seconds),
            most: time(of.p95_seconds),
            is_sample: of.answers.iter().map(|answer| answer.count).sum::<u64>() < bounced + of.deferred,
            bounce_badge: bounce_badge(Rate { count: bounced, of: bounced + of.delivered }),
            has_many_deferrals: has_many_deferrals(&of),
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

/// Returns the badge for the worst that a provider does: it blocks, defers, or accepts.
fn badge(of: &ProviderView<'_>, waiting: u64) -> Badge {
    let blocks = of.bounced.block;
    let is_deferring = has_many_deferrals(of) || (waiting > 0 && of.deferred > 0);
    match of.level {
        Level::Alarm => Badge::new("many blocks", "bad", "flag"),
        Level::Warn => Badge::new("some blocks", "wait", "warn"),
        Level::Ok if blocks > 0 && blocks * ANSWERS_OF_BLOCK >= of.delivered + bounced(of) => {
            Badge::new("some blocks", "wait", "warn")
        }
        Level::Ok if is_deferring => Badge::new("deferring", "wait", "clock"),
        Level::Ok if of.delivered == 0 => Badge::new("not enough data", "calm", "help"),
        Level::Ok => Badge::new("accepting", "good", "check"),
    }
}

const fn bounced(of: &ProviderView<'_>) -> u64 {
    of.bounced.hard + of.bounced.soft + of.bounced.block + of.bounced.undetermined
}

fn has_many_deferrals(of: &ProviderView<'_>) -> bool {
    of.deferral_rate.is_some_and(|rate| rate >= DEFERRALS_HIGH)
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
    use crate::engine::queue::AccountSite;
    use crate::http::view::providers::BouncesView;

    fn view(delivered: u64, deferred: u64, block: u64) -> ProviderView<'static> {
        ProviderView {
            provider: "google",
            delivered,
            deferred,
            bounced: BouncesView { hard: 0, soft: 0, block, undetermined: 0 },
            complained: 0,
            delivery_rate: None,
            deferral_rate: None,
            block_rate: None,
            p50_seconds: None,
            p95_seconds: None,
            level: Level::Ok,
            answers: Vec::new(),
            advice: Vec::new(),
            links: Vec::new(),
        }
    }

    fn waiting(sites: &[(&str, u64)]) -> Waiting {
        let site = |(site, waiting): &(&str, u64)| AccountSite::of_waiting(site, *waiting);
        let queue = AccountQueue { sites: sites.iter().map(site).collect(), ..AccountQueue::default() };
        Waiting::at(&["google", OTHER], &queue)
    }

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
            ProviderLine::new(
                ProviderView { deferral_rate, answers: vec![answer], ..view(30, deferred, 0) },
                &waiting(&[]),
            )
        };
        assert!(line(Some(0.25), 6).has_many_deferrals && line(Some(0.25), 6).is_sample);
        assert!(!line(Some(0.24), 5).has_many_deferrals && !line(None, 5).is_sample);
    }

    #[test]
    fn the_status_of_a_provider_names_the_worst_of_its_results() {
        let word = |of: ProviderView<'_>, waiting| badge(&of, waiting).to_string();
        assert!(word(view(9, 0, 0), 0).contains("Accepting") && word(view(9, 2, 0), 0).contains("Accepting"));
        assert!(word(view(9, 2, 0), 1).contains("Deferring"), "the deferred mail still waits");
        assert!(word(view(9, 0, 0), 1).contains("Accepting"), "the waiting mail was not deferred");
        let many = ProviderView { deferral_rate: Some(0.25), ..view(30, 10, 0) };
        assert!(word(many, 0).contains("Deferring"));
        assert!(word(view(0, 0, 1), 0).contains("Some blocks") && word(view(20, 0, 1), 0).contains("Accepting"));
        assert!(word(ProviderView { level: Level::Alarm, ..view(40, 9, 10) }, 1).contains("Many blocks"));
        assert!(word(view(0, 0, 0), 0).contains("Not enough data"));
    }

    #[test]
    fn waiting_messages_are_counted_by_provider() {
        let waiting = waiting(&[("google", 2), ("mx.example.com", 3), ("example.org", 1_000), ("yahoo", 1)]);
        let words = [Some("google"), Some(OTHER), None, Some("gmx")].map(|name| waiting.in_words(name));
        assert_eq!(
            words.each_ref().map(|words| words.as_deref().unwrap_or("")),
            ["2 waiting", "1,003 waiting", "1 waiting", ""]
        );
        let cut = Waiting { is_cut: true, ..waiting };
        assert_eq!(cut.in_words(Some("google")).as_deref(), Some("at least 2 waiting"));
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
