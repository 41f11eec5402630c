//! Bounces that mail servers send hours after they accepted a message. A server repeats a bounce until the service has
//! accepted or refused it, like any mail in its queue.

use std::sync::Arc;

use tokio::time::sleep;

use super::clients::with_patience;
use super::process::Front;
use super::smtp_client;
use super::world::{Bounce, World};

/// Sends the bounces that are due, one after the other, for as long as the process lives.
pub(super) async fn send(world: Arc<World>, front: Front) {
    loop {
        let Some((number, bounce)) = next(&world) else {
            world.has_bounce.notified().await;
            continue;
        };
        tokio::select! {
            biased;
            () = world.has_bounce.notified() => continue,
            () = sleep(bounce.at.saturating_sub(world.clocks.elapsed())) => {}
        }
        let text = text(&bounce);
        let process = front.reached(&world);
        let sending = smtp_client::bounce(&process.service.bounces, &bounce.return_path, &text);
        let answer = with_patience(&world, sending).await.map_or(0, |(code, _)| code);
        world.note(format!("a bounce of {} is answered {answer}", bounce.message_id));
        let again_at = world.clocks.elapsed() + world.millis(60_000, 3_600_000);
        let mut state = world.state();
        match answer {
            250 | 500.. => state.bounces[number].answer = Some(answer),
            _ => state.bounces[number].at = again_at,
        }
    }
}

/// Returns the bounce that is due first, with its number.
fn next(world: &World) -> Option<(usize, Bounce)> {
    let state = world.state();
    let open = state.bounces.iter().enumerate().filter(|(_, bounce)| bounce.answer.is_none());
    open.min_by_key(|(_, bounce)| bounce.at).map(|(number, bounce)| (number, bounce.clone()))
}

/// Returns the report as a server writes it (RFC 3464).
fn text(bounce: &Bounce) -> String {
    let Bounce { recipient, return_path, headers, .. } = bounce;
    format!(
        "From: <mailer-daemon@r0.test>\r\nTo: <{return_path}>\r\nSubject: Undelivered Mail\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/report; report-type=delivery-status; boundary=\"b\"\r\n\r\n\
         --b\r\nContent-Type: text/plain\r\n\r\nNo such user.\r\n\
         --b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; r0.test\r\n\r\n\
         Final-Recipient: rfc822; {recipient}\r\nAction: failed\r\nStatus: 5.1.1\r\n\
         Diagnostic-Code: smtp; 550 5.1.1 no such user\r\n\r\n\
         --b\r\nContent-Type: text/rfc822-headers\r\n\r\n{headers}\r\n\r\n--b--\r\n"
    )
}
