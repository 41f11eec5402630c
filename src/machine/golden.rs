//! Prints every pair of state and input of every machine into one table and compares it with the committed copy,
//! `tests/golden/machines.txt`. `UPDATE_GOLDEN=1` rewrites the copy; the difference is then reviewed as text.

use std::fmt::{Debug, Write as _};
use std::path::Path;
use std::time::Duration;

use super::{Next, delivery, endpoint, idempotency, quota, rate, reputation, retention, retry, transfer};
use crate::base::time::Timestamp;
use crate::domain::account::{QuotaLimits, RetentionDays};

/// Noon, so that no quota window ends by accident.
const NOW: Timestamp = Timestamp::from_millis(1_699_963_200_000);

fn heading(table: &mut String, title: &str) {
    let _ = write!(table, "\n{title}\n{}\n", "-".repeat(title.len()));
}

/// Adds one line. Times are shown in seconds from `NOW`.
fn line(table: &mut String, state: &str, input: &str, next: &str, effects: &[impl Debug]) {
    let effects = effects.iter().map(|effect| relative(&format!("{effect:?}"))).collect::<Vec<_>>().join(", ");
    let text = format!("{:<30} {:<33} {:<30} {effects}", relative(state), relative(input), relative(next));
    let _ = writeln!(table, "{}", text.trim_end());
}

fn pair<S: Debug, E: Debug>(table: &mut String, state: &S, input: &impl Debug, next: &Next<S, E>) {
    let (before, after) = (format!("{state:?}"), format!("{:?}", next.state));
    let after = if before == after { "same".to_owned() } else { after };
    line(table, &before, &format!("{input:?}"), &after, &next.effects);
}

/// Replaces `Timestamp(millis)` by its distance from `NOW`, and a hash of one repeated byte by that byte.
fn relative(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("Timestamp(") {
        let (millis, after) = after.split_once(')').unwrap();
        let distance = (millis.parse::<i64>().unwrap() - i64::try_from(NOW.as_millis()).unwrap()) / 1000;
        let _ = write!(out, "{before}{distance:+}s");
        rest = after;
    }
    out.push_str(rest);
    let hash = |byte: u8| format!("{:?}", [byte; 32]);
    out.replace(&hash(1), "A").replace(&hash(2), "B")
}

fn transfers(table: &mut String) {
    use transfer::{AttemptProgress, Input, State, Status};
    heading(table, "3.1 Message status: state, input, next, effects");
    for status in Status::ALL {
        let road: &[Input] = match status {
            Status::Queued => &[],
            Status::Deferred => &[Input::AttemptDeferred],
            Status::Delivered => &[Input::Delivered],
            Status::Bounced => &[Input::Delivered, Input::ReportedBounced],
            Status::Failed => &[Input::GaveUp],
            Status::Suppressed => &[Input::RecipientSuppressed(AttemptProgress::Idle)],
            Status::Canceled => &[Input::CancelAsked(AttemptProgress::Idle)],
            Status::Complained => &[Input::Delivered, Input::ReportedComplaint],
        };
        let state = road.iter().fold(State::default(), |state, input| state.step(*input).state);
        for input in Input::ALL {
            let next = state.step(input);
            let after = if next.state.status() == status { "same" } else { next.state.status().as_str() };
            line(table, status.as_str(), &format!("{input:?}"), after, &next.effects);
        }
    }
}

fn endpoints(table: &mut String) {
    use endpoint::{Input, State};
    heading(table, "3.2 Webhook endpoint: state, input, next, effects");
    let failing = [0, 1, 9].map(|failures| State::Enabled { failures });
    for state in
        failing.into_iter().chain([State::DisabledByHand { failures: 3 }, State::DisabledByFailures { at: NOW }])
    {
        for input in [Input::AttemptSucceeded, Input::AttemptFailed, Input::Enabled, Input::DisabledByHand] {
            pair(table, &state, &input, &state.step(input, NOW));
        }
    }
}

fn deliveries(table: &mut String) {
    use delivery::{Input, Stage, State};
    heading(table, "3.3 Single webhook delivery: state, input, next, effects");
    let show = |state: State| match state.stage {
        Stage::Pending { due } => format!("pending {} {due:?}", state.attempts),
        Stage::Delivered => format!("delivered {}", state.attempts),
        Stage::Failed => format!("failed {}", state.attempts),
    };
    let at = |attempts, stage| State { created_at: NOW, attempts, stage };
    let pending = (0..7).map(|attempts| at(attempts, Stage::Pending { due: NOW }));
    let failed = Input::AttemptFailed { ended_at: NOW };
    let inputs = [Input::CameDue, Input::Acknowledged, failed, Input::EndpointDeleted, Input::Outlived];
    for state in pending.chain([at(1, Stage::Delivered), at(7, Stage::Failed)]) {
        for input in inputs {
            let next = state.step(input, NOW);
            let after = if next.state == state { "same".to_owned() } else { show(next.state) };
            line(table, &show(state), &format!("{input:?}"), &after, &next.effects);
        }
    }
    let old =
        State { created_at: NOW - delivery::AGE_MAX - Duration::from_millis(1), ..at(3, Stage::Pending { due: NOW }) };
    let next = old.step(Input::CameDue, NOW);
    line(table, "pending 3, over 30 days old", "CameDue", &show(next.state), &next.effects);
}

fn idempotency_keys(table: &mut String) {
    use idempotency::{Binding, Input, State};
    heading(table, "3.4 Idempotency key: state, input, next, effects");
    let bound = |expires_at| State::Bound(Binding { body_hash: [1; 32], expires_at });
    for (name, state) in [
        ("free", State::Free),
        ("in progress", State::InProgress),
        ("bound to A", bound(NOW + Duration::from_secs(1))),
        ("bound to A, 24 hours over", bound(NOW)),
    ] {
        for input in [[1; 32], [2; 32]]
            .map(|body_hash| Input::Requested { body_hash })
            .into_iter()
            .chain([Input::Accepted { body_hash: [1; 32] }, Input::Refused])
        {
            let next = state.step(input, NOW);
            let after = match next.state {
                same if same == state => "same".to_owned(),
                State::Free => "free".to_owned(),
                State::InProgress => "in progress".to_owned(),
                State::Bound(binding) => format!("bound until {:?}", binding.expires_at),
            };
            line(table, name, &format!("{input:?}"), &after, &next.effects);
        }
    }
}

fn contents(table: &mut String) {
    use retention::{Bucket, Input, State};
    heading(table, "Message content: state, input, next, effects");
    let kept = |deadline| State::Kept { deadline };
    for state in [
        kept(NOW + Duration::from_secs(1)),
        kept(NOW),
        State::Refused { at: NOW - Duration::from_secs(60) },
        State::Destroyed { at: NOW - Duration::from_secs(60) },
    ] {
        for input in [Input::DeadlineCame, Input::BucketDestroyed] {
            pair(table, &state, &input, &state.step(input, NOW));
        }
    }
    heading(table, "Content buckets: days kept, created at, deadline, bucket's end");
    for days in [1, 30, 31, 3650] {
        for late in [0, 1] {
            let (created, days) = (NOW + Duration::from_secs(late), RetentionDays::new(days).unwrap());
            let deadline = retention::content_deadline(created, days);
            let _ = writeln!(table, "{days:<5} {created}  {deadline}  {}", Bucket::of(created, days).end);
        }
    }
}

fn retries(table: &mut String) {
    heading(table, "6 Message retry: attempt that failed, seconds to the next (jitter 0, 1/2, almost 1)");
    let end = NOW + Duration::from_secs(48 * 3600);
    for attempt in 1..=9 {
        let secs = [0.0, 0.5, 0.999_999].map(|jitter| {
            retry::next_attempt(attempt, NOW, end, jitter).map_or(0.0, |due| due.since(NOW).as_secs_f64().round())
        });
        let _ = writeln!(table, "{attempt:<8} {secs:?}");
    }
    let none = retry::next_attempt(9, NOW, NOW + Duration::from_secs(3600), 0.5);
    let _ = writeln!(table, "9, with an hour of its lifetime left: {none:?}, so failed at its end");
}

fn quotas(table: &mut String) {
    heading(table, "8 Quota of 2 an hour and 3 a day: seconds, outcome, window named, hour and day remaining");
    let limits = QuotaLimits { per_hour: 2, per_day: 3 };
    let mut state = quota::Quota::default();
    for secs in [0, 1, 2, 3600, 3601, 7200, 86_400] {
        let now = NOW + Duration::from_secs(secs);
        let outcome = match state.admit(limits, now) {
            Ok((next, _)) => {
                state = next;
                "admitted".to_owned()
            }
            Err(full) => format!("{} exhausted, retry after {}", full.window.as_str(), full.retry_after_secs),
        };
        let view = state.view(limits, now);
        let (window, shown) = view.tightest();
        let reset = shown.reset - NOW.as_secs();
        let remaining = (view.hour.remaining, view.day.remaining);
        let _ = writeln!(table, "{secs:<6} {outcome:<36} {:<5} resets {reset:<7} {remaining:?}", window.as_str());
    }
}

fn rates(table: &mut String) {
    heading(table, "8 Request rate of 2: seconds, outcome, remaining, t");
    let mut state = rate::Rate::default();
    for millis in [0, 20_500, 20_600, 59_999, 60_000, 60_001, 80_500, 200_000] {
        let outcome = state.admit(2, Duration::from_millis(millis));
        let view = outcome.unwrap_or_else(|refused| refused.view);
        let decision =
            outcome.map_or_else(|r| format!("refused, retry after {}", r.retry_after_secs), |_| "admitted".to_owned());
        let secs = format!("{}.{:03}", millis / 1000, millis % 1000);
        let _ = writeln!(table, "{secs:<8} {decision:<24} {} {}", view.remaining, view.reset_secs);
    }
}

fn reputations(table: &mut String) {
    use reputation::{Figures, Level, Rate, State, Windows};
    heading(table, "Reputation: level, bounces and complaints of the day's deliveries, next, crossings");
    let rate = |count, of| Rate { count, of };
    for level in [Level::Ok, Level::Warn, Level::Alarm] {
        let state = State { bounces: level, complaints: level };
        for (bounced, complained, of) in [
            (0, 0, 0),
            (40, 3, 49),
            (40, 3, 50),
            (4, 2, 100),
            (19, 0, 1000),
            (20, 1, 1000),
            (49, 2, 1000),
            (50, 3, 1000),
            (15, 7, 10_000),
        ] {
            let day = Figures { bounces: rate(bounced, of), complaints: rate(complained, of) };
            let next = state.step(Windows { day, week: Figures::default() });
            let input = format!("{bounced} and {complained} of {of}");
            let show = |state: State| format!("{:?} {:?}", state.bounces, state.complaints);
            let after = if next.state == state { "same".to_owned() } else { show(next.state) };
            line(table, &show(state), &input, &after, &next.effects);
        }
    }
}

#[test]
fn every_state_and_input_of_every_machine_matches_the_golden_table() {
    let mut table = "Every state and every input of every machine, beside contract 3 and 5.\n\
                     Moments are seconds from now; \"same\" is a state that did not change.\n"
        .to_owned();
    for print in [transfers, endpoints, deliveries, idempotency_keys, contents, retries, quotas, rates, reputations] {
        print(&mut table);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/machines.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (now, then)) in table.lines().zip(committed.lines()).enumerate() {
        assert_eq!(now, then, "line {} of {}", number + 1, path.display());
    }
    assert_eq!(table, committed, "{} has a different number of lines; UPDATE_GOLDEN=1 rewrites it", path.display());
}
