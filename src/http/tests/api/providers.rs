//! Tests of `GET /v1/providers`: days, rates, levels and frequent answers.

use serde_json::json;

use super::*;
use crate::domain::event::{Authenticated, TlsFacts, TlsPolicy};

impl World {
    /// Sends a message that ends with an answer of `provider`.
    async fn answered_by(&mut self, provider: &str, end: TransferEnd, facts: AttemptFacts) -> MessageId {
        let message = self.sent_to(&format!("p{}@example.net", self.clock.0.fetch_add(1, Relaxed))).await;
        self.answered(message, provider, end, facts).await;
        message
    }

    /// Records the answer of `provider` to an attempt.
    async fn answered(&self, message: MessageId, provider: &str, end: TransferEnd, facts: AttemptFacts) {
        let due = self.engine.message(self.account, message).unwrap().unwrap().transfer.due.unwrap();
        let op = SettleTransfer {
            account: self.account,
            message,
            due,
            end,
            facts,
            provider: Some(provider.to_owned()),
            random: [0; 4],
            others: vec![],
            transcript: None,
        };
        self.engine.store.commit(op).await.unwrap();
    }
}

fn block() -> TransferEnd {
    TransferEnd::Bounced(Bounce {
        kind: BounceKind::Block,
        category: "spam".to_owned(),
        status: Some("5.7.1".to_owned()),
        source: BounceSource::Smtp,
        rule: "r".to_owned(),
        advice: String::new(),
        suppressed: false,
    })
}

fn said(code: u16, response: &str) -> AttemptFacts {
    AttemptFacts { smtp_code: Some(code), smtp_response: Some(response.to_owned()), ..AttemptFacts::default() }
}

#[tokio::test]
async fn providers_have_rates_levels_times_and_frequent_answers() {
    let mut world = World::new().await;
    for _ in 0..47 {
        let tls = TlsFacts {
            version: "TLSv1.3".to_owned(),
            cipher: "TLS_AES_256_GCM_SHA384".to_owned(),
            authenticated: Authenticated::None,
            policy: TlsPolicy::Opportunistic,
        };
        let facts = AttemptFacts { tls: Some(tls), ..said(250, "250 2.0.0 Ok") };
        world.answered_by("google", TransferEnd::Delivered, facts).await;
    }
    let mut newest = MessageId::default();
    for n in 0..3 {
        newest = world.answered_by("google", block(), said(550, &format!("550 5.7.1 Blocked [192.0.2.{n}]"))).await;
    }
    let deferred = TransferEnd::Deferred { bounce: None, not_before: None };
    world.answered_by("google", deferred, said(421, "421 4.7.28 Later")).await;
    world.answered_by("yahoo", hard_bounce(), said(554, "554 No such user")).await;
    let view = world.get("/v1/providers").await.json();
    assert_eq!((&view["from"], &view["to"]), (&json!("2023-11-08"), &json!("2023-11-14")));
    let google = &view["data"][0];
    assert_eq!(google["provider"], "google");
    assert_eq!((&google["delivered"], &google["deferred"], &google["complained"]), (&47.into(), &1.into(), &0.into()));
    assert_eq!(google["bounced"], json!({ "hard": 0, "soft": 0, "block": 3, "undetermined": 0 }));
    assert_eq!((&google["delivery_rate"], &google["block_rate"]), (&json!(0.94), &json!(0.06)));
    assert_eq!((&google["deferral_rate"], &google["level"]), (&json!(1.0 / 51.0), &json!("warn")));
    assert_eq!((&google["p50_seconds"], &google["p95_seconds"]), (&json!(1), &json!(1)));
    let answer = &google["answers"][0];
    assert_eq!((&answer["smtp_code"], &answer["count"], &answer["category"]), (&550.into(), &3.into(), &"spam".into()));
    assert_eq!(
        (&answer["smtp_response"], &answer["message_id"]),
        (&json!("550 5.7.1 Blocked [192.0.2.2]"), &json!(newest.to_string()))
    );
    assert_eq!(google["answers"][1]["smtp_code"], 421);
    assert!(google["advice"].as_array().unwrap().len() >= 3 && !google["links"].as_array().unwrap().is_empty());
    let yahoo = &view["data"][1];
    assert_eq!(
        (&yahoo["provider"], &yahoo["level"], &yahoo["delivery_rate"]),
        (&"yahoo".into(), &"ok".into(), &Value::Null)
    );
    assert_eq!((&yahoo["p50_seconds"], &yahoo["answers"][0]["category"]), (&Value::Null, &"invalid_recipient".into()));
    let levels = world.engine.provider_levels(world.account).unwrap();
    assert_eq!(
        levels.iter().map(|(name, level)| (&**name, level.as_str())).collect::<Vec<_>>(),
        [("google", "warn"), ("yahoo", "ok")]
    );
    // A week later it is outside the range of days.
    world.advance(7 * DAY);
    assert_eq!(world.get("/v1/providers").await.json()["data"], json!([]));
    assert_eq!(world.get("/v1/providers?days=8").await.json()["data"].as_array().unwrap().len(), 2);
    assert!(world.engine.provider_levels(world.account).unwrap().is_empty());
}

#[tokio::test]
async fn a_quiet_provider_keeps_its_answers_beside_a_busy_one() {
    let mut world = World::new().await;
    let deferred = || TransferEnd::Deferred { bounce: None, not_before: None };
    world.answered_by("yahoo", deferred(), said(451, "451 4.7.1 Later")).await;
    let busy = world.answered_by("google", deferred(), said(421, "421 4.7.28 Later")).await;
    for _ in 0..1_000 {
        world.answered(busy, "google", deferred(), said(421, "421 4.7.28 Later")).await;
    }
    let view = world.get("/v1/providers").await.json();
    let codes = |at: usize| (view["data"][at]["provider"].clone(), view["data"][at]["answers"][0]["smtp_code"].clone());
    assert_eq!([codes(0), codes(1)], [(json!("google"), json!(421)), (json!("yahoo"), json!(451))]);
    assert_eq!(view["data"][0]["answers"][0]["count"], 200);
}

#[tokio::test]
async fn messages_without_a_server_count_for_other_and_days_are_1_to_90() {
    let mut world = World::new().await;
    let message = world.sent_to("a@nowhere.example").await;
    world.settle(message, hard_bounce(), AttemptFacts::default()).await;
    let view = world.get("/v1/providers?days=1").await.json();
    assert_eq!((&view["data"][0]["provider"], &view["data"][0]["bounced"]["hard"]), (&json!("other"), &json!(1)));
    assert_eq!(view["from"], view["to"]);
    for days in ["0", "91", "x", "", "+7"] {
        let refused = world.get(&format!("/v1/providers?days={days}")).await;
        refused.fails_with(422, "validation_failed");
        assert_eq!(refused.faults(), ["days"]);
    }
}
