//! All metrics: their names, help texts and labels, from the meters of every floor.
//!
//! Labels are route names, status classes, outcomes, streams and kinds, never addresses, accounts or domains.

use super::exposition::{Exposition, Unit};
use super::process::Process;
use super::replica;
use crate::base::meter::Distribution;
use crate::base::time::Timestamp;
use crate::domain::event::{BounceKind, EventType};
use crate::domain::stream::Stream;
use crate::engine::Engine;
use crate::engine::meters::EngineMeters;
use crate::engine::smtp_submission::SubmissionMeters;
use crate::http::meters::RequestMeters;
use crate::net::tls_settings::CertificateMeters;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::meters::StoreMeters;

/// Returns the page at `now`. Blocks on the store and the file system.
///
/// # Errors
/// Store errors.
pub(super) fn page(
    engine: &Engine,
    requests: &RequestMeters,
    process: &Process,
    certificate: Option<&CertificateMeters>,
    now: Timestamp,
) -> Result<String, StoreError> {
    let mut text = Exposition::default();
    of_requests(&mut text, requests);
    of_messages(&mut text, engine.store.meters());
    of_attempts(&mut text, &engine.meters);
    of_returned_mail(&mut text, &engine.meters);
    of_submission(&mut text, &engine.meters.submission);
    of_queue(&mut text, &engine.store, now)?;
    of_store(&mut text, &engine.store)?;
    of_certificate(&mut text, certificate);
    let open = engine.open_alert_counts()?;
    text.gauges(
        "postrider_alerts_open",
        "Open alerts, by condition and severity.",
        open.iter().map(|(condition, severity, count)| {
            (vec![("condition", condition.as_str()), ("severity", severity.as_str())], *count)
        }),
    );
    text.gauges(
        "postrider_clock_doubtful",
        "1 while the wall clock is in doubt: nothing is deleted or expires until it is correct or accepted.",
        [(vec![], u8::from(engine.clock.time().is_doubtful()))],
    );
    replica::write(&mut text, engine, now);
    process.write(&mut text);
    Ok(text.finish())
}

fn of_requests(text: &mut Exposition, requests: &RequestMeters) {
    let routes = requests.routes();
    let counts = routes.iter().flat_map(|route| {
        let classes = route.classes.iter().filter(|(_, count)| *count > 0);
        classes.map(|(class, count)| (vec![("route", route.route), ("status", *class)], *count))
    });
    text.counters("postrider_http_requests", "Requests answered, by route and status class.", counts);
    text.histograms(
        "postrider_http_request_duration_seconds",
        "Time from a request's head to its answer, by route.",
        Unit::Microseconds,
        routes.iter().map(|route| (vec![("route", route.route)], route.duration.clone())),
    );
    text.counters(
        "postrider_http_refusals",
        "Refused requests that matter to an operator, by error code.",
        requests.refusals().map(|(code, count)| (vec![("code", code)], count)),
    );
}

fn of_certificate(text: &mut Exposition, meters: Option<&CertificateMeters>) {
    let until = meters.and_then(CertificateMeters::until);
    text.gauges(
        "postrider_certificate_expiry_timestamp_seconds",
        "Expiry time of the TLS certificate; absent if it is self-signed.",
        until.map(|until| (vec![], until.as_secs())),
    );
    let results = meters
        .map(|meters| [("issued", &meters.issued), ("refused", &meters.refused), ("unreached", &meters.unreached)]);
    text.counters(
        "postrider_certificate_orders",
        "Certificate orders (ACME), by result.",
        results.into_iter().flatten().map(|(result, count)| (vec![("result", result)], count.read())),
    );
}

fn of_messages(text: &mut Exposition, meters: &StoreMeters) {
    let events = EventType::ALL.into_iter().flat_map(|kind| {
        Stream::ALL
            .map(|stream| (vec![("type", kind.as_str()), ("stream", stream.as_str())], meters.events(kind, stream)))
    });
    text.counters(
        "postrider_message_events",
        "Message events, by type and stream; queued counts accepted messages.",
        events,
    );
    let bounces = BounceKind::ALL.into_iter().flat_map(|kind| {
        let labels = |stream: Stream| vec![("kind", kind.as_str()), ("stream", stream.as_str())];
        Stream::ALL.map(|stream| (labels(stream), meters.bounces(kind, stream)))
    });
    text.counters("postrider_bounces", "Bounces by kind and stream; block means that the sender was blocked.", bounces);
}

fn of_attempts(text: &mut Exposition, meters: &EngineMeters) {
    text.histograms(
        "postrider_attempt_duration_seconds",
        "Delivery attempts to mail servers, by outcome.",
        Unit::Microseconds,
        meters.attempts().map(|(outcome, read)| (vec![("outcome", outcome)], read)),
    );
    text.histograms(
        "postrider_webhook_duration_seconds",
        "Requests to webhook receivers, by outcome: ok, or the failure's name in the attempt log.",
        Unit::Microseconds,
        meters.posts().map(|(outcome, read)| (vec![("outcome", outcome)], read)),
    );
    text.counters(
        "postrider_webhook_endpoints_disabled",
        "Webhook endpoints disabled after repeated failures.",
        [(vec![], meters.endpoints_disabled.read())],
    );
    text.histograms(
        "postrider_signing_duration_seconds",
        "Time to compose, sign and seal a message.",
        Unit::Microseconds,
        [(vec![], meters.signing_duration.read())],
    );
}

fn of_returned_mail(text: &mut Exposition, meters: &EngineMeters) {
    text.counters(
        "postrider_came_back_messages",
        "Messages received by the bounce listener, by kind; untied and unknown ones have no effect.",
        meters.came_back.taken().map(|(kind, count)| (vec![("kind", kind)], count)),
    );
    text.counters(
        "postrider_dmarc_reports",
        "DMARC aggregate reports, by outcome; only counted ones change figures.",
        meters.dmarc_reports.read().map(|(result, count)| (vec![("result", result)], count)),
    );
    text.counters(
        "postrider_came_back_refusals",
        "Recipients refused by the bounce listener: foreign host, unknown, forged or expired mailbox.",
        meters.came_back.refused().map(|(reason, count)| (vec![("reason", reason)], count)),
    );
}

fn of_submission(text: &mut Exposition, meters: &SubmissionMeters) {
    text.gauges(
        "postrider_submission_sessions",
        "Connections of SMTP submission.",
        [(vec![], meters.sessions_begun.read().saturating_sub(meters.sessions_ended.read()))],
    );
    text.counters(
        "postrider_submission_logins",
        "SMTP submission logins, by outcome; throttled means too many failures from the address.",
        meters.logins().map(|(outcome, count)| (vec![("outcome", outcome)], count)),
    );
    text.counters(
        "postrider_submission_messages",
        "Messages accepted by SMTP submission, one for each recipient.",
        [(vec![], meters.messages.read())],
    );
    let refusals = meters.refusals();
    let refusals: Vec<_> = refusals.iter().map(|(stage, code, count)| (stage, code.to_string(), *count)).collect();
    text.counters(
        "postrider_submission_refusals",
        "4xx and 5xx answers of SMTP submission, by stage and code.",
        refusals.iter().map(|(stage, code, count)| (vec![("stage", stage.as_str()), ("code", code.as_str())], *count)),
    );
    text.histograms(
        "postrider_submission_duration_seconds",
        "Time from the final dot of a submission to its answer.",
        Unit::Microseconds,
        [(vec![], meters.duration())],
    );
}

fn of_queue(text: &mut Exposition, store: &Store, now: Timestamp) -> Result<(), StoreError> {
    const KIND: &str = "kind";
    let waiting = store.meters().waiting();
    text.gauges(
        "postrider_queue_waiting",
        "Unfinished messages and webhook deliveries of enabled endpoints, due or not.",
        [(vec![(KIND, "message")], waiting.transfers), (vec![(KIND, "webhook")], waiting.deliveries)],
    );
    let due = store.due_now(now)?;
    text.gauges(
        "postrider_queue_due",
        "Due and unfinished messages and deliveries, in flight or queued; counted up to 10000 in all.",
        [(vec![(KIND, "message")], due.transfers), (vec![(KIND, "webhook")], due.deliveries)],
    );
    text.gauges(
        "postrider_queue_standstill",
        "1 while the queue of a restored backup is on hold, until `postrider queue release`.",
        [(vec![], u64::from(store.restore_hold()?.is_some()))],
    );
    let age = due.oldest_transfer.map_or(0.0, |oldest| now.since(oldest).as_secs_f64());
    text.gauges(
        "postrider_queue_oldest_due_seconds",
        "Time since the oldest due message became due; 0 without one.",
        [(vec![], age)],
    );
    Ok(())
}

fn of_store(text: &mut Exposition, store: &Store) -> Result<(), StoreError> {
    let meters = store.meters();
    text.gauges(
        "postrider_content_key_slots_damaged",
        "Content key slots that are or were damaged; they are not used again.",
        [(vec![], store.content().damaged_key_slots())],
    );
    let mut times = |name: &str, help: &str, read: Distribution| {
        text.histograms(name, help, Unit::Microseconds, [(vec![], read)]);
    };
    times(
        "postrider_store_commit_duration_seconds",
        "Time until a batch was durable, including its sync to disk.",
        meters.commit_duration.read(),
    );
    times(
        "postrider_store_checkpoint_duration_seconds",
        "Duration of checkpoints, which write all changed pages and empty the journal.",
        meters.checkpoint_duration.read(),
    );
    times(
        "postrider_store_append_duration_seconds",
        "Time to write a batch of message bodies and sync it to disk.",
        meters.append_duration.read(),
    );
    let mut sizes = |name: &str, help: &str, read: Distribution| {
        text.histograms(name, help, Unit::Things, [(vec![], read)]);
    };
    sizes("postrider_store_commit_operations", "Number of operations per commit.", meters.commit_operations.read());
    sizes("postrider_store_append_bodies", "Number of message bodies per sync.", meters.append_bodies.read());
    text.counters(
        "postrider_store_syncs",
        "Number of fsyncs, by purpose: bodies, journal records, checkpoints.",
        [(vec![], meters.syncs.read())],
    );
    text.counters(
        "postrider_store_damaged_rows",
        "Reads of damaged database rows. Above 0, run `postrider check` and take a backup.",
        [(vec![], meters.damage.met.read())],
    );
    let bytes = store.size_bytes();
    text.gauges(
        "postrider_store_size_bytes",
        "Disk space used by the database and by message bodies.",
        [(vec![("part", "database")], bytes.database), (vec![("part", "content")], bytes.content)],
    );
    text.gauges(
        "postrider_store_free_bytes",
        "Free space on the store's disk; below limits.min_free_bytes no message is accepted.",
        [(vec![], store.free_bytes()?)],
    );
    text.gauges(
        "postrider_store_failed",
        "1 if the store has failed and the process is about to exit.",
        [(vec![], u8::from(store.health().failure().is_some()))],
    );
    Ok(())
}
