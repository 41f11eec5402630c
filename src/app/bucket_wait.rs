//! A start or a claim that waits for the bucket of the replica. It reports the wait to the supervisor and in the log,
//! and answers an operator's request for the status.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::admin_client::SOCKET_NAME;
use super::config::Config;
use super::replication::waiting_status;
use super::settings;
use super::supervisor::SlowStart;
use crate::engine::ports::{BucketError, BucketErrorKind, Clock};
use crate::engine::replica::{ReplicaStatus, Role, State};
use crate::http::standby::StandbyService;
use crate::net::entropy::OsEntropy;
use crate::net::http_listener::HttpServer;

/// Wait after which the reports name the command that continues without the bucket.
const NAME_WAY_OUT: Duration = Duration::from_secs(60);

/// The reports of a waiting start or claim.
pub(super) struct BucketWait<'a> {
    /// Configuration and directory of a start. `None` for a standby, which has a socket already.
    start: Option<(&'a Config, &'a Path, Arc<dyn Clock>)>,
    /// Whether the start also waits while the credentials are refused.
    awaits_credentials: bool,
    /// The operator's socket, once the start waits.
    socket: Option<HttpServer<StandbyService>>,
    status: watch::Sender<ReplicaStatus>,
    /// Notified when the wait begins.
    began: Arc<Notify>,
    /// The start of the wait, and its report to the supervisor, unless the process was started before.
    since: Option<(Instant, Option<SlowStart>)>,
    is_way_out_named: bool,
}

impl<'a> BucketWait<'a> {
    /// Creates the reports of the start of a service in `directory`.
    pub(super) fn of_start(config: &'a Config, directory: &'a Path, clock: Arc<dyn Clock>) -> Self {
        let status = watch::Sender::new(waiting_status(config, Role::Active));
        Self { start: Some((config, directory, clock)), ..Self::of_standby(status, false) }
    }

    /// Creates the reports of a standby that claims the log, in its `status`.
    pub(super) fn of_standby(status: watch::Sender<ReplicaStatus>, awaits_credentials: bool) -> Self {
        let began = Arc::default();
        Self { start: None, awaits_credentials, socket: None, status, began, since: None, is_way_out_named: false }
    }

    /// Returns the notification that the wait has begun. Until then signals end the process at once.
    pub(super) fn began(&self) -> Arc<Notify> {
        Arc::clone(&self.began)
    }

    /// Reports that a call to the bucket failed, and returns whether to wait.
    pub(super) fn report(&mut self, error: &BucketError) -> bool {
        let is_forbidden = error.kind == BucketErrorKind::Forbidden;
        if !(error.kind.is_transient() || is_forbidden && self.awaits_credentials) {
            return false;
        }
        let way_out = match &self.start {
            Some(_) => "if it is lost and no standby was promoted, start once with `postrider serve --without-replica`",
            None => "if it is lost and no other machine serves, run `postrider promote --without-bucket`",
        };
        let waited = self.since.as_ref().map_or(Duration::ZERO, |(since, _)| since.elapsed());
        if self.since.is_none() {
            let status = "waiting for the bucket of the replica; --without-replica starts without it";
            self.since = Some((Instant::now(), self.start.as_ref().map(|_| SlowStart::begin(status))));
            tracing::warn!(%error, "waiting for the bucket of the replica; the service starts once it answers");
            self.listen();
            self.began.notify_one();
        }
        let names_way_out = waited >= NAME_WAY_OUT && !is_forbidden;
        if names_way_out && !std::mem::replace(&mut self.is_way_out_named, true) {
            tracing::error!(%error, "the bucket of the replica has not answered for a minute; {way_out}");
        }
        let text = match names_way_out {
            true => format!("waiting for the bucket: {error}; {way_out}"),
            false => format!("waiting for the bucket: {error}"),
        };
        self.status.send_modify(|status| {
            status.state = if is_forbidden { State::Forbidden } else { State::Waiting };
            status.error = Some(text);
        });
        true
    }

    /// Opens the operator's socket. Without it, only the log reports the wait.
    fn listen(&mut self) {
        let Some((config, directory, clock)) = &self.start else { return };
        let service = StandbyService::waiting(self.status.subscribe(), (Arc::clone(clock), Arc::new(OsEntropy)));
        let mut socket = HttpServer::new(Arc::new(service), settings::http_limits(config));
        match socket.listen_unix(&directory.join(SOCKET_NAME)) {
            Ok(()) => self.socket = Some(socket),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "could not open {SOCKET_NAME} while waiting for the bucket; commands get no answer"
                )
            }
        }
    }

    /// Closes the socket, so that the service can open its own.
    pub(super) async fn end(self) {
        let (Some(socket), Some((_, directory, _))) = (self.socket, self.start) else { return };
        socket.shutdown(Duration::from_secs(1)).await;
        drop(std::fs::remove_file(directory.join(SOCKET_NAME)));
    }
}
