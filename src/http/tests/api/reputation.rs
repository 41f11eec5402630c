//! Tests of bounce and complaint rates in `GET /v1/me`: their base, when they are reported, and their levels.

use super::*;
use crate::domain::event::Complaint;
use crate::engine::reputation::{OutcomesQuestion, Step};
use crate::machine::transfer::AttemptProgress;
use crate::store::op::report::{RecordReport, ReportMeaning, ReportedMessage};
use crate::store::read::Read;
use crate::store::row::message::TransferRow;
use crate::store::schema;

impl World {
    /// Sends this many messages, which a server accepts or refuses.
    async fn with_outcomes(&mut self, delivered: usize, bounced: usize) -> Vec<MessageId> {
        let mut messages = Vec::new();
        for n in 0..delivered + bounced {
            let message = self.sent_to(&format!("p{n}.{}@example.net", self.clock.now().as_millis())).await;
            let end = if n < delivered { TransferEnd::Delivered } else { hard_bounce() };
            self.settle(message, end, AttemptFacts::default()).await;
            messages.push(message);
        }
        messages
    }

    async fn complain(&self, message: MessageId) {
        let complaint = Complaint { feedback_type: Some("abuse".to_owned()), reporter: None };
        let news = ReportMeaning::Complained(complaint);
        let news =
            ReportedMessage { account: self.account, message, wire: AttemptProgress::Idle, news, others: vec![] };
        self.engine.store.commit(RecordReport { messages: vec![news] }).await.unwrap();
    }

    async fn transactional(&mut self) -> Value {
        let me = self.get("/v1/me").await.json();
        me["reputation"]["streams"]["transactional"].clone()
    }
}

fn levels(stream: &Value) -> [&str; 2] {
    [stream["bounce_level"].as_str().unwrap(), stream["complaint_level"].as_str().unwrap()]
}

#[tokio::test]
async fn below_a_hundred_deliveries_there_are_counts_but_no_rates() {
    let mut world = World::new().await;
    world.with_outcomes(90, 9).await;
    let stream = world.transactional().await;
    assert_eq!(levels(&stream), ["ok", "ok"]);
    let (rate, counts) = (Value::Null, serde_json::json!([24, 99, 90, 9, 0]));
    let window = &stream["windows"][0];
    let members = ["window_hours", "accepted", "delivered", "bounced", "complained"].map(|name| window[name].clone());
    assert_eq!(Value::from(members.to_vec()), counts);
    assert_eq!((&window["bounce_rate"], &window["complaint_rate"]), (&rate, &rate));
}

#[tokio::test]
async fn a_rate_above_its_threshold_affects_only_its_stream() {
    let mut world = World::new().await;
    let messages = world.with_outcomes(194, 6).await;
    let stream = world.transactional().await;
    assert_eq!(levels(&stream), ["warn", "ok"]);
    assert_eq!(
        (&stream["windows"][0]["bounce_rate"], &stream["windows"][0]["complaint_rate"]),
        (&0.03.into(), &0.0.into())
    );
    world.complain(messages[0]).await;
    assert_eq!(levels(&world.transactional().await), ["warn", "ok"], "a single complaint is not significant");
    world.complain(messages[1]).await;
    assert_eq!(levels(&world.transactional().await), ["warn", "alarm"]);
    let me = world.get("/v1/me").await.json();
    assert_eq!(levels(&me["reputation"]["streams"]["marketing"]), ["ok", "ok"]);
    // Two days later, only the week includes the messages. After eight days, both windows are empty.
    world.advance(DAY + DAY);
    let stream = world.transactional().await;
    assert_eq!((&stream["windows"][0]["delivered"], &stream["windows"][1]["delivered"]), (&0.into(), &194.into()));
    assert_eq!(levels(&stream), ["warn", "alarm"]);
    world.advance(6 * DAY);
    assert_eq!(levels(&world.transactional().await), ["ok", "ok"]);
}

#[tokio::test]
async fn the_chart_has_every_step_and_totals_by_domain_and_provider() {
    let mut world = World::new().await;
    let from = world.engine.clock.now();
    world.with_outcomes(3, 1).await;
    world.advance(DAY);
    let later = world.with_outcomes(2, 0).await;
    let key = schema::message(world.account, later[0]);
    assert_eq!(world.engine.store.snapshot().unwrap().row::<TransferRow>(&key).unwrap().unwrap().provider, None);
    let question = OutcomesQuestion { from, to: from + 3 * DAY, step: Step::Day, stream: None, domain: None };
    let outcomes = world.engine.outcomes(world.account, &question).unwrap();
    let days: Vec<_> = outcomes.series.iter().map(|(_, counts)| (counts.accepted, counts.delivered)).collect();
    assert_eq!(days, [(4, 3), (2, 2), (0, 0)]);
    assert_eq!((outcomes.total.accepted, outcomes.total.bounced(), outcomes.by_domain.len()), (6, 1, 1));
    assert_eq!(outcomes.by_provider.keys().collect::<Vec<_>>(), [""]);
    let hours = world.engine.outcomes(world.account, &OutcomesQuestion { step: Step::Hour, ..question }).unwrap();
    assert_eq!((hours.series.len(), hours.total), (72, outcomes.total));
    let other = OutcomesQuestion { stream: Some(Stream::Marketing), ..question };
    assert_eq!(world.engine.outcomes(world.account, &other).unwrap().total.accepted, 0);
}
