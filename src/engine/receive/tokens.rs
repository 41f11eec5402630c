//! The tokens of ours that a report carries, where it did not come to a return path: candidates only, for whoever
//! checks them.

use crate::domain::return_path::{self, Parsed};
use crate::mail::feedback;
use crate::mail::report::{Report, Returned};

/// Fields of a returned message in which our tokens stand as they are.
const TOKEN_FIELDS: [&str; 2] = ["CFBL-Feedback-ID", "Feedback-ID"];
/// Candidates that are looked at in one report: each costs a look into the store.
const CANDIDATES_MAX: usize = 16;

/// A token in a report, by where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// In an envelope address: only the servers that carried the message are shown it before the last one.
    ReturnPath(Parsed),
    /// In a field of the message, which everybody sees to whom it is forwarded.
    FeedbackId(Parsed),
}

/// The well-formed tokens, in the order in which they are trusted to be about the reported message. A delivery report
/// has no use for those that stand in a field.
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

fn of_paths(returned: &Returned) -> impl Iterator<Item = Token> {
    returned.all("Return-Path").into_iter().filter_map(|value| of_address(&value)).map(Token::ReturnPath)
}

fn of_fields(returned: &Returned) -> impl Iterator<Item = Token> {
    TOKEN_FIELDS.into_iter().flat_map(|name| returned.all(name)).flat_map(|value| {
        let tokens = feedback::candidates(&value).filter_map(|id| return_path::decode_token(id).ok());
        tokens.map(Token::FeedbackId).collect::<Vec<_>>()
    })
}

/// The token in an address, in angle brackets or without.
fn of_address(address: &str) -> Option<Parsed> {
    let bare = address.trim().trim_start_matches('<').trim_end_matches('>');
    let (local, _) = bare.rsplit_once('@')?;
    return_path::decode(local).ok()
}
