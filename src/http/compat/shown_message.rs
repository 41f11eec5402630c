//! A message as a compatible API shows it: the record, and its parsed content while it is kept.

use super::mailbox::Mailbox;
use crate::base::id::AccountId;
use crate::engine::Caller;
use crate::engine::messages::MessageRecord;
use crate::http::error::ApiError;
use crate::http::handlers::messages;
use crate::http::route::Call;
use crate::http::state::Api;
use crate::http::view::message::ContentView;
use crate::mail::read::{ReadParts, recipient_name};

/// Content of the message as it was sent.
pub(super) struct Content {
    pub(super) parts: ReadParts,
    /// Display name of the recipient.
    pub(super) to_name: Option<String>,
    /// The signed message. Bytes that are not UTF-8 are replaced.
    pub(super) raw: String,
}

/// Returns the message in the path, and its content if it is still kept.
pub(super) async fn read(
    api: &Api,
    call: &Call<Caller>,
) -> Result<(AccountId, MessageRecord, Option<Content>), ApiError> {
    call.no_query()?;
    let account = call.caller.account;
    let record = messages::find(api, call)?;
    let row = record.row.clone();
    let list_fields = row.list_fields();
    let take_apart = move |signed: Vec<u8>| Content {
        to_name: recipient_name(&signed),
        raw: String::from_utf8_lossy(&signed).into_owned(),
        parts: ContentView::of(signed, &row, list_fields).into_parts(),
    };
    let content = api.engine.content(account, &record, take_apart).await?;
    Ok((account, record, content))
}

/// Returns the sender with its display name.
pub(super) fn sender(record: &MessageRecord) -> String {
    let (name, address) = (record.row.from_name.clone(), record.row.from.as_given().to_owned());
    Mailbox { name, address }.to_text()
}
