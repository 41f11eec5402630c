//! Check of bodies: each body that must exist does, and its segment's key opens it, which verifies every byte. Each has
//! a timer that will destroy it.

use super::{CheckInputs, Report, Rule};
use crate::base::id::{MessageId, Ulid};
use crate::machine::retention::Bucket;
use crate::store::clock_doubts;
use crate::store::content::Unreadable;
use crate::store::error::StoreError;
use crate::store::row::Row;
use crate::store::row::message::MessageRow;
use crate::store::schema::Table;
use crate::store::timer::{Timer, TimerKind};

/// Checks the body of a message.
pub(super) fn judge(
    sight: &CheckInputs<'_>,
    table: Table,
    key: &[u8],
    value: &[u8],
    report: &mut Report,
) -> Result<(), StoreError> {
    if table != Table::Messages {
        return Ok(());
    }
    let Some(read) = sight.bodies else {
        report.bodies_unread += 1;
        return Ok(());
    };
    let message = MessageId(Ulid(key[16..].try_into().unwrap_or_default()));
    let place = MessageRow::decode(value)?.place;
    let mut fail = |what: &str| report.fail(Rule::Content, || format!("message {message}: {what}"));
    let end = clock_doubts::end_of(&sight.snapshot, Bucket { end: place.bucket })?;
    let has_timer = |due| sight.has(Table::Timers, &Timer::of_store(due, TimerKind::Content).encode());
    match read(place, message) {
        Ok(_) => {
            if !has_timer(place.bucket)? && !has_timer(end)? {
                fail("its body is stored, but no timer will destroy it");
            }
            report.bodies += 1;
        }
        // The deadline of the body has passed, now or before the clock was set back.
        Err(_) if sight.destroyed.has(end, message) => {}
        Err(Unreadable::Gone) if end <= sight.now => {}
        Err(Unreadable::Gone) if sight.restored.is_some_and(|restored| restored.lacks_content_of(message.0)) => {
            report.bodies_left_out += 1;
        }
        Err(Unreadable::Gone) => fail("the key of its body is missing before its deadline"),
        Err(Unreadable::Failed(error)) => fail(&error.to_string()),
    }
    Ok(())
}
