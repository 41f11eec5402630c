//! The answers of receiving providers, as `GET /v1/providers` returns them (contract 14.3).

use serde::Serialize;

use crate::base::id::{self, MessageId};
use crate::base::time::Timestamp;
use crate::engine::providers::{FrequentAnswer, Provider, Providers};
use crate::http::openapi::schema::Schema;
use crate::http::openapi::shape::describe;
use crate::machine::provider::share;
use crate::machine::reputation::Level;
use crate::smtp::provider_guide::{GuideLink, ProviderGuide, ProviderResults, Refusal};

/// All providers.
#[derive(Serialize)]
pub(crate) struct ProvidersView<'a> {
    from: String,
    to: String,
    pub(crate) data: Vec<ProviderView<'a>>,
}

/// One provider.
#[derive(Serialize)]
pub(crate) struct ProviderView<'a> {
    pub(crate) provider: &'a str,
    pub(crate) delivered: u64,
    pub(crate) deferred: u64,
    pub(crate) bounced: BouncesView,
    pub(crate) complained: u64,
    pub(crate) delivery_rate: Option<f64>,
    pub(crate) deferral_rate: Option<f64>,
    pub(crate) block_rate: Option<f64>,
    pub(crate) p50_seconds: Option<u64>,
    pub(crate) p95_seconds: Option<u64>,
    pub(crate) level: Level,
    pub(crate) answers: Vec<AnswerView<'a>>,
    pub(crate) advice: Vec<&'static str>,
    pub(crate) links: Vec<LinkView>,
}

/// Bounces by kind.
#[derive(Serialize)]
pub(crate) struct BouncesView {
    pub(crate) hard: u64,
    pub(crate) soft: u64,
    pub(crate) block: u64,
    pub(crate) undetermined: u64,
}

/// A frequent reply.
#[derive(Serialize)]
pub(crate) struct AnswerView<'a> {
    pub(crate) smtp_code: Option<u16>,
    pub(crate) smtp_enhanced_code: Option<&'a str>,
    pub(crate) smtp_response: Option<&'a str>,
    pub(crate) category: Option<&'a str>,
    pub(crate) count: u64,
    #[serde(serialize_with = "id::as_text")]
    pub(crate) message_id: MessageId,
}

/// A link to the provider's page.
#[derive(Serialize)]
pub(crate) struct LinkView {
    pub(crate) title: &'static str,
    pub(crate) url: &'static str,
}

impl<'a> ProvidersView<'a> {
    pub(crate) fn new(of: &'a Providers) -> Self {
        Self { from: day(of.from), to: day(of.to), data: of.providers.iter().map(ProviderView::new).collect() }
    }
}

/// Returns the UTC day of `moment`.
fn day(moment: Timestamp) -> String {
    moment.to_string().split('T').next().unwrap_or_default().to_owned()
}

impl<'a> ProviderView<'a> {
    fn new(of: &'a Provider) -> Self {
        let (counts, answered) = (&of.counts, of.answered());
        let guide = ProviderGuide::built_in();
        let experience = ProviderResults {
            refusal: match counts.bounced_block {
                0 => Refusal::None,
                _ => Refusal::by(of.answers.first().and_then(|answer| answer.response.as_deref())),
            },
            is_deferred: counts.deferred > 0,
            has_complaints: counts.complained > 0,
        };
        Self {
            provider: &of.name,
            delivered: counts.delivered,
            deferred: counts.deferred,
            bounced: BouncesView {
                hard: counts.bounced_hard,
                soft: counts.bounced_soft,
                block: counts.bounced_block,
                undetermined: counts.bounced_undetermined,
            },
            complained: counts.complained,
            delivery_rate: share(counts.delivered, answered),
            deferral_rate: share(counts.deferred, answered + counts.deferred),
            block_rate: share(counts.bounced_block, answered),
            p50_seconds: counts.delivery_seconds(50),
            p95_seconds: counts.delivery_seconds(95),
            level: of.level(),
            answers: of.answers.iter().map(AnswerView::new).collect(),
            advice: guide.advice(&of.name, experience),
            links: guide.links(&of.name).iter().map(LinkView::new).collect(),
        }
    }
}

impl<'a> AnswerView<'a> {
    fn new(of: &'a FrequentAnswer) -> Self {
        Self {
            smtp_code: of.code,
            smtp_enhanced_code: of.enhanced.as_deref(),
            smtp_response: of.response.as_deref(),
            category: of.category.as_deref(),
            count: of.count,
            message_id: of.message,
        }
    }
}

impl LinkView {
    fn new(of: &'static GuideLink) -> Self {
        Self { title: &of.title, url: &of.url }
    }
}

fn date(schema: Schema) -> Schema {
    schema.format("date").example("2026-11-24")
}

describe! {
    ProvidersView<'_> as "Providers", "Responses of receiving providers to the messages accepted in a range of UTC \
                                       days."
    {
        from: "The first day." => date,
        to: "The last day: today." => date,
        data: "One entry for each provider, most answers first.",
    }
}

describe! {
    ProviderView<'_> as "Provider",
    "The figures of one provider. A message that was delivered and later returned counts as both."
    {
        provider: "The provider's name in the shaping rules; `other` for all other receivers."
            => |schema| schema.example("google"),
        delivered: "Messages that it accepted." => |schema| schema.example(9_120),
        deferred: "Attempts that it deferred." => |schema| schema.example(211),
        bounced: "Messages that it rejected permanently or returned.",
        complained: "Messages reported as spam.",
        delivery_rate: "Deliveries as a share of deliveries and bounces; null below 20 of them."
            => |schema| schema.example(0.991),
        deferral_rate: "Deferrals as a share of deliveries, bounces and deferrals; null below 20 of them."
            => |schema| schema.example(0.022),
        block_rate: "Blocks as a share of deliveries and bounces; null below 20 of them."
            => |schema| schema.example(0.004),
        p50_seconds: "Median seconds to delivery, rounded up to a power of two. 32768 includes everything slower. \
            Null without a delivery." => |schema| schema.example(2),
        p95_seconds: "The 95th percentile, rounded in the same way." => |schema| schema.example(64),
        level: "Level of the block rate, from 50 results on: `warn` from 5 %, `alarm` from 20 %."
            => |schema| schema.example("ok"),
        answers: "The five most frequent answers of its newest 200 bounces and 200 deferrals, as far as these are \
                  among the account's newest 1,000 of the kind and not older than 30 days.",
        advice: "Steps to take.",
        links: "The provider's own pages.",
    }
}

describe! {
    BouncesView as "ProviderBounces", "Bounces by kind."
    {
        hard: "The address or its domain can't receive.",
        soft: "The mailbox may accept later, or a smaller message.",
        block: "The sender is blocked.",
        undetermined: "Unknown.",
    }
}

describe! {
    AnswerView<'_> as "ProviderAnswer",
    "A frequent response. Responses that differ only in words with digits or an @ count as the same; the newest is \
     shown."
    {
        smtp_code: "The code; null if no server answered." => |schema| schema.example(550),
        smtp_enhanced_code: "The enhanced code (RFC 3463)." => |schema| schema.example("5.7.1"),
        smtp_response: "The newest such response, as received." => |schema| schema.example("550 5.7.1 Message blocked"),
        category: "The category." => |schema| schema.example("spam"),
        count: "Number of such responses.",
        message_id: "The message with the newest one.",
    }
}

describe! {
    LinkView as "ProviderLink", "A page of the provider."
    {
        title: "The title." => |schema| schema.example("Postmaster Tools"),
        url: "The address." => |schema| schema.example("https://postmaster.google.com/"),
    }
}
