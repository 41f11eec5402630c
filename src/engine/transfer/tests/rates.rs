//! Rates of bounces: counted by whoever runs the server that answered, and told in the log once when they cross a
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

/// Log lines, one for each event of the engine's reputations.
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

    /// The next lines: they are written behind the commit that time waits for.
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
async fn a_threshold_that_is_crossed_is_told_once_with_account_stream_and_rate_and_again_when_it_is_over() {
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
    let told = lines.next().await;
    assert_eq!(told.len(), 1, "{told:?}");
    let account = format!("account={}", world.account);
    for part in ["ERROR", &account, "transactional", "bounces", "5.82 % (6 of 103)", "stop writing to them"] {
        assert!(told[0].contains(part), "{part}: {told:?}");
    }
    assert!(!told[0].contains("full.test"), "no address: {told:?}");
    let by_provider = outcomes(&world, world::START + std::time::Duration::from_secs(3600)).by_provider;
    let counts = by_provider.iter().map(|(name, c)| (name.as_str(), c.accepted, c.delivered, c.bounced_hard));
    assert_eq!(counts.collect::<Vec<_>>(), [("", 103, 0, 0), ("google", 0, 97, 0), ("other", 0, 0, 6)]);
    // It stays so for as long as a window has it, without another word.
    world.pass(5 * 24 * 3600).await;
    let stands = |world: &World| world.engine.reputation(world.account).unwrap();
    assert_eq!(stands(&world).of(crate::domain::stream::Stream::Transactional).levels.bounces, Level::Alarm);
    assert_eq!(lines.taken(), [""; 0]);
    world.pass(3 * 24 * 3600).await;
    let told = lines.next().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("INFO") && told[0].contains("fell"), "{told:?}");
}
