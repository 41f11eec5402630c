//! Our tokens in a report that was not sent to a return path. They are only candidates; the caller checks them.

use crate::domain::return_path::{self, Parsed};
use crate::mail::feedback;
use crate::mail::report::{Report, ReturnedHeader};

/// Header fields of a returned message that contain our tokens unchanged.
const TOKEN_FIELDS: [&str; 2] = ["CFBL-Feedback-ID", "Feedback-ID"];
/// Maximum number of candidates checked in one report: each costs a read of the store.
const CANDIDATES_MAX: usize = 16;

/// A token in a report, by its location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// A token in an envelope address. Only the servers on the message's path see it.
    ReturnPath(Parsed),
    /// A token in a header field. Everybody who gets the message forwarded sees it.
    FeedbackId(Parsed),
}

/// Returns the well-formed tokens, most trusted first. Delivery reports don't use tokens in header fields.
pub(super) fn of(report: &Report) -> Vec<Token> {
    let mut found: Vec<Token> = match report {
        Report::Delivery(report) => of_paths(&report.returned).collect(),
        Report::Feedback(report) => {
            let mail_from = report.original_mail_from.as_deref().and_then(of_address).map(Token::ReturnPath);
            mail_from.into_iter().chain(of_paths(&report.returned)).chain(of_fields(&report.returned)).collect()
        }
        Report::AutoReply | Report::Unknown(_) => Vec::new(),
    };
    found.truncate(CANDIDATES_MAX);
    found
}

fn of_paths(returned: &ReturnedHeader) -> impl Iterator<Item = Token> {
    returned.all("Return-Path").into_iter().filter_map(|value| of_address(&value)).map(Token::ReturnPath)
}

fn of_fields(returned: &ReturnedHeader) -> impl Iterator<Item = Token> {
    TOKEN_FIELDS.into_iter().flat_map(|name| returned.all(name)).flat_map(|value| {
        let tokens = feedback::candidates(&value).filter_map(|id| return_path::decode_token(id).ok());
        tokens.map(Token::FeedbackId).collect::<Vec<_>>()
    })
}

/// Returns the token in an address, with or without angle brackets.
fn of_address(address: &str) -> Option<Parsed> {
    let bare = address.trim().trim_start_matches('<').trim_end_matches('>');
    let (local, _) = bare.rsplit_once('@')?;
    return_path::decode(local).ok()
}
