//! The tokens of ours that a report carries, where it did not come to a return path: candidates only, for whoever
//! checks them.

use crate::domain::return_path::{self, Parsed};
use crate::mail::feedback;
use crate::mail::report::{Report, Returned};

/// Fields of a returned message in which our tokens stand as they are.
const TOKEN_FIELDS: [&str; 2] = ["CFBL-Feedback-ID", "Feedback-ID"];
/// Candidates that are looked at in one report: each costs a look into the store.
const CANDIDATES_MAX: usize = 16;

/// What has the shape of a token, in the order in which it is trusted to be about the reported message.
pub(super) fn of(report: &Report) -> Vec<Parsed> {
    let (mail_from, returned) = match report {
        Report::Delivery(report) => (None, &report.returned),
        Report::Feedback(report) => (report.original_mail_from.as_deref(), &report.returned),
        Report::AutoReply | Report::Unknown(_) => return Vec::new(),
    };
    let mut found: Vec<Parsed> = mail_from.and_then(of_address).into_iter().collect();
    found.extend(of_headers(returned));
    found.truncate(CANDIDATES_MAX);
    found
}

fn of_headers(returned: &Returned) -> impl Iterator<Item = Parsed> {
    let paths = returned.all("Return-Path").into_iter().filter_map(|value| of_address(&value));
    let ids = TOKEN_FIELDS.into_iter().flat_map(|name| returned.all(name)).flat_map(|value| {
        let parsed: Vec<_> = feedback::candidates(&value).filter_map(|id| return_path::decode_token(id).ok()).collect();
        parsed
    });
    paths.chain(ids)
}

/// The token in an address, in angle brackets or without.
fn of_address(address: &str) -> Option<Parsed> {
    let bare = address.trim().trim_start_matches('<').trim_end_matches('>');
    let (local, _) = bare.rsplit_once('@')?;
    return_path::decode(local).ok()
}
