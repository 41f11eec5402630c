//! `GET /v1/status`, for the operator only: the state of the service in one answer.

use hyper::StatusCode;

use crate::base::time::Timestamp;
use crate::engine::blocking::OPERATOR;
use crate::http::answer::Answer;
use crate::http::error::ApiError;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::status::LogLine;
use crate::http::view::clock::ClockView;
use crate::http::view::status::{
    AlertsView, BackupView, CertificateView, DiskView, LogLineView, QueueView, StatusView,
};
use crate::store::error::StoreError;

/// Reads counters, sizes and a bounded number of rows.
pub(in crate::http) async fn show(api: &Api, call: Call<()>) -> Result<Answer, ApiError> {
    call.no_query()?;
    let engine = &api.engine;
    let (own, now) = (std::sync::Arc::clone(engine), engine.clock.now());
    let read = move || {
        let (waiting, due) = (own.store.meters().waiting(), own.store.due_now(now)?);
        let queue = QueueView {
            messages: waiting.transfers,
            webhook_deliveries: waiting.deliveries,
            due_messages: due.transfers,
            oldest_due_seconds: due.oldest_transfer.map_or(0, |oldest| now.since(oldest).as_secs()),
            on_hold: own.store.restore_hold()?.is_some(),
        };
        let sizes = own.store.size_bytes();
        let disk = DiskView {
            free_bytes: own.store.free_bytes()?,
            database_bytes: sizes.database,
            content_bytes: sizes.content,
        };
        let open = own.open_alert_counts()?.iter().map(|(_, _, count)| count).sum();
        let alerts = AlertsView { open, signed: own.signs_alerts()? };
        Ok::<_, StoreError>((queue, disk, own.last_backup(), alerts))
    };
    let (queue, disk, last_backup, alerts) = engine.blocking(OPERATOR, read).await??;
    let sources = api.status.get();
    let ready = api.check_ready();
    let certificate = sources.and_then(|sources| sources.certificate.as_ref());
    let expires_at = certificate.and_then(|presented| presented.meters.until());
    let started_at = sources.map_or(now, |sources| sources.started_at);
    let clock = &engine.clock;
    let view = StatusView {
        version: env!("CARGO_PKG_VERSION"),
        state: ready.as_ref().map_or_else(ApiError::code, |()| "ready"),
        started_at,
        uptime_seconds: now.since(started_at).as_secs(),
        url: engine.settings.public_url.get().map(String::as_str),
        queue,
        last_errors: sources.map(|sources| (sources.last_errors)()).unwrap_or_default().iter().map(log_line).collect(),
        certificate: certificate.map(|_| CertificateView { expires_at }),
        disk,
        backup: BackupView { last_at: last_backup.as_deref().and_then(|text| text.parse::<Timestamp>().ok()) },
        alerts,
        clock: ClockView::new(&clock.time(), clock.doubt().as_ref()),
    };
    Ok(Answer::json(StatusCode::OK, &view))
}

fn log_line(line: &LogLine) -> LogLineView {
    LogLineView { at: line.at, level: line.level, message: line.text() }
}
