//! Tests of bounce rates: counted by the provider of the server that answered, and logged once when they cross a
//! threshold.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::base::time::Timestamp;
use crate::engine::reputation::{Outcomes, OutcomesQuestion, Step};
use crate::machine::reputation::Level;

/// Log lines, one for each reputation event of the engine.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().ends_with("engine::reputation")
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Lines {
    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Returns the next lines. They are written after the commit that virtual time waits for.
    async fn next(&self) -> Vec<String> {
        loop {
            let lines = self.taken();
            if !lines.is_empty() {
                return lines;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn outcomes(world: &World, to: Timestamp) -> Outcomes {
    let question = OutcomesQuestion { from: world::START, to, step: Step::Hour, stream: None, domain: None };
    world.engine.outcomes(world.account, &question).unwrap()
}

#[tokio::test]
async fn crossing_a_threshold_is_logged_once_and_again_when_the_rate_falls() {
    let world = World::new().await;
    let lines = Lines::default();
    let _log = tracing::subscriber::set_default(lines.clone());
    world.net.serve("hosted.test", &["aspmx.l.google.com"]);
    for n in 0..97 {
        world.send(&format!("u{n}@hosted.test")).await;
    }
    world.pass(0).await;
    world.net.behave("mx.full.test", Behaviour::Says("550 5.1.1 No such user"));
    for n in 0..6 {
        world.send(&format!("u{n}@full.test")).await;
    }
    world.pass(0).await;
    assert_eq!(lines.taken(), [""; 0], "what happens gathers for a minute");
    world.pass(60).await;
    let logged = lines.next().await;
    assert_eq!(logged.len(), 1, "{logged:?}");
    let account = format!("account={}", world.account);
    for part in ["ERROR", &account, "transactional", "bounces", "5.82% (6 of 103)", "stop writing to them"] {
        assert!(logged[0].contains(part), "{part}: {logged:?}");
    }
    assert!(!logged[0].contains("full.test"), "no address: {logged:?}");
    let by_provider = outcomes(&world, world::START + std::time::Duration::from_secs(3600)).by_provider;
    let counts = by_provider.iter().map(|(name, c)| (name.as_str(), c.accepted, c.delivered, c.bounced_hard));
    assert_eq!(counts.collect::<Vec<_>>(), [("", 103, 0, 0), ("google", 0, 97, 0), ("other", 0, 0, 6)]);
    // The rate stays above the threshold during its window, without another line.
    world.pass(5 * 24 * 3600).await;
    let stands = |world: &World| world.engine.reputation(world.account).unwrap();
    assert_eq!(stands(&world).of(crate::domain::stream::Stream::Transactional).levels.bounces, Level::Alarm);
    assert_eq!(lines.taken(), [""; 0]);
    world.pass(3 * 24 * 3600).await;
    let logged = lines.next().await;
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("INFO") && logged[0].contains("fell"), "{logged:?}");
}
