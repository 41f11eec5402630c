//! The clients: programs that submit by HTTP and SMTP and retry requests with a key, and tenants that cancel messages
//! and suppress addresses. Each request has its own connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::http_client::{self, Request};
use super::plan::FaultClass;
use super::process::Front;
use super::replica::fence;
use super::replica::shred::CANARY;
use super::service::Service;
use super::smtp_client;
use super::world::{Interface, Progress, Submission, World};
use crate::base::id::MessageId;

/// Result of one try.
enum Tried {
    /// The service accepted the submission as these messages.
    Accepted(Vec<MessageId>),
    /// Permanently refused.
    Refused(u16),
    /// Temporarily refused.
    Later(u16),
    /// No answer came.
    Unanswered,
}

/// Starts a task for each unfinished submission.
pub(super) fn start(world: &Arc<World>, front: &Front) {
    for number in 0..world.submissions().len() {
        let progress = world.state().submissions[number].progress.clone();
        // A request was in flight when the process ended.
        if progress == Progress::InFlight {
            after_no_answer(world, number);
        }
        let (world, front) = (Arc::clone(world), front.clone());
        tokio::spawn(async move { submit(&world, &front, number).await });
    }
}

async fn submit(world: &Arc<World>, front: &Front, number: usize) {
    loop {
        let submission = world.state().submissions[number].clone();
        let Progress::Waiting(at) = submission.progress else { return };
        sleep(at.saturating_sub(world.clocks.elapsed())).await;
        {
            let mut state = world.state();
            state.submissions[number].progress = Progress::InFlight;
            state.submissions[number].tries += 1;
        }
        let (process, begun) = (front.reached(world), world.clocks.elapsed());
        let tried = match submission.interface {
            Interface::Http | Interface::Resend | Interface::Postmark => {
                by_http(world, &process.service, &submission).await
            }
            Interface::Smtp => by_smtp(world, &process.service, &submission).await,
        };
        match tried {
            Tried::Accepted(messages) => {
                world.note(format!("{} accepted as {messages:?}", submission.subject));
                fence::accepts(world, process.life, begun);
                let at = world.clocks.elapsed();
                let is_lost = fence::may_lose_answers(world, process.life);
                let submission = &mut world.state().submissions[number];
                let progress = if is_lost { Progress::Lost } else { Progress::Accepted(messages) };
                (submission.progress, submission.accepted_at) = (progress, at);
            }
            Tried::Refused(status) => {
                world.note(format!("{} refused: {status}", submission.subject));
                world.state().submissions[number].progress = Progress::Refused(status);
            }
            Tried::Later(status) => {
                world.note(format!("{} refused for now: {status}", submission.subject));
                let at = world.clocks.elapsed() + world.millis(500, 5_000);
                world.state().submissions[number].progress = Progress::Waiting(at);
            }
            Tried::Unanswered => {
                world.note(format!("{} has no answer", submission.subject));
                after_no_answer(world, number);
            }
        }
    }
}

/// Only a request with a key may be repeated.
fn after_no_answer(world: &World, number: usize) {
    let at = world.clocks.elapsed() + world.millis(0, 5_000);
    let mut state = world.state();
    let submission = &mut state.submissions[number];
    submission.progress = match submission.idempotency_key {
        Some(_) => Progress::Waiting(at),
        None => Progress::Unknown,
    };
}

/// Waits for an answer for as long as the client would.
pub(super) async fn with_patience<T>(world: &World, request: impl Future<Output = Option<T>>) -> Option<T> {
    let max_wait = match world.strikes(FaultClass::Clients, 250) {
        true => world.millis(0, 60),
        false => Duration::from_secs(60),
    };
    timeout(max_wait, request).await.ok().flatten()
}

/// Returns the body of a submission.
fn text(submission: &Submission, bytes: usize) -> String {
    format!("{CANARY}{} {}", submission.subject, "x".repeat(bytes))
}

async fn by_http(world: &Arc<World>, service: &Arc<Service>, submission: &Submission) -> Tried {
    let key = world.state().tenants[submission.tenant].key.clone();
    let (from, to) = (format!("shop@t{}.example", submission.tenant), &submission.recipients[0]);
    let (subject, text) = (&submission.subject, text(submission, submission.bytes));
    let (path, body, id) = match submission.interface {
        Interface::Postmark => (
            "/v1/compat/postmark/email",
            serde_json::json!({ "From": from, "To": to, "Subject": subject, "TextBody": text }),
            "MessageID",
        ),
        interface => (
            if interface == Interface::Resend { "/v1/compat/resend/emails" } else { "/v1/messages" },
            serde_json::json!({ "from": from, "to": to, "subject": subject, "text": text }),
            "id",
        ),
    };
    let idempotency = submission.idempotency_key.as_deref();
    let request = Request { method: "POST", path: path.to_owned(), key: &key, idempotency, body };
    match with_patience(world, http_client::send(service, request)).await {
        None => Tried::Unanswered,
        Some((200 | 202, answer)) => {
            let id = answer[id].as_str().and_then(|id| id.parse().ok()).expect("the answer names the message");
            Tried::Accepted(vec![id])
        }
        Some((status @ (409 | 429 | 500..), _)) => Tried::Later(status),
        Some((status, _)) => Tried::Refused(status),
    }
}

async fn by_smtp(world: &Arc<World>, service: &Arc<Service>, submission: &Submission) -> Tried {
    let key = world.state().tenants[submission.tenant].key.clone();
    let from = format!("shop@t{}.example", submission.tenant);
    let idempotency = submission.idempotency_key.as_ref();
    let idempotency = idempotency.map(|key| format!("X-Service-Idempotency-Key: {key}\r\n")).unwrap_or_default();
    let message = format!(
        "From: {from}\r\nTo: {}\r\nSubject: {}\r\n{idempotency}\r\n{}\r\n",
        submission.recipients[0],
        submission.subject,
        text(submission, 60),
    );
    let submitting = smtp_client::submit(&service.submission, &key, &from, &submission.recipients, &message);
    match with_patience(world, submitting).await {
        None => Tried::Unanswered,
        Some((250, text)) => {
            let ids = text.split_whitespace().filter_map(|word| word.parse().ok());
            Tried::Accepted(ids.collect())
        }
        // The connection was closed before the message was answered, or with an answer that leaves the outcome open.
        Some((421 | 0, _)) => Tried::Unanswered,
        Some((code @ 400..500, _)) => Tried::Later(code),
        Some((code, _)) => Tried::Refused(code),
    }
}

/// Suppresses a recipient of a submission. After the answer, no message to it may be started.
pub(super) async fn suppress(world: Arc<World>, front: Front, number: usize) {
    let submission = world.state().submissions[number].clone();
    let key = world.state().tenants[submission.tenant].key.clone();
    let recipient = submission.recipients[0].clone();
    let body = serde_json::json!({ "email": recipient });
    let request = Request { method: "POST", path: "/v1/suppressions".to_owned(), key: &key, idempotency: None, body };
    let answer = with_patience(&world, http_client::send(&front.reached(&world).service, request)).await;
    world.note(format!("suppressing {recipient}: {:?}", answer.as_ref().map(|(status, _)| status)));
    if let Some((200 | 201, _)) = answer {
        let at = world.clocks.elapsed();
        world.state().suppressed.entry(recipient).or_insert(at);
    }
}

/// Cancels the messages of a submission. After success, none of them may be started.
pub(super) async fn cancel(world: Arc<World>, front: Front, number: usize) {
    let submission = world.state().submissions[number].clone();
    let Progress::Accepted(messages) = &submission.progress else { return };
    let key = world.state().tenants[submission.tenant].key.clone();
    for message in messages {
        let path = format!("/v1/messages/{message}/cancel");
        let request = Request { method: "POST", path, key: &key, idempotency: None, body: serde_json::Value::Null };
        let answer = with_patience(&world, http_client::send(&front.reached(&world).service, request)).await;
        world.note(format!("canceling {message}: {:?}", answer.as_ref().map(|(status, _)| status)));
        if let Some((200..300, _)) = answer {
            let at = world.clocks.elapsed();
            world.state().submissions[number].canceled.entry(*message).or_insert(at);
        }
    }
}
