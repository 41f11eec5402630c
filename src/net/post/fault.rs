//! What an HTTP client's error means in the attempt log's words. The client tells its kinds of failure only by what
//! its error was caused by, so the chain of causes is walked, outermost first.

use std::error::Error;
use std::{io, iter};

use crate::engine::ports::{LookupFailure, PostError};

/// The name did not resolve.
#[derive(Debug, thiserror::Error)]
#[error("the host's name did not resolve: {0}")]
pub(in crate::net) struct Unresolved(pub(in crate::net) LookupFailure);

/// The guard permits none of the host's addresses.
#[derive(Debug, thiserror::Error)]
#[error("no address of the host may be reached")]
pub(super) struct Refused;

/// The word for `error`, which came before a whole status line.
pub(in crate::net) fn classify(error: &reqwest::Error) -> PostError {
    let other = if error.is_connect() { PostError::Connect } else { PostError::Protocol };
    causes(error).find_map(meaning).unwrap_or(other)
}

/// Whether the name was not even asked for, so many look-ups were on their way.
pub(in crate::net) fn was_unasked(error: &reqwest::Error) -> bool {
    let is_unasked = |cause: &Unresolved| cause.0 == LookupFailure::Unasked;
    causes(error).any(|cause| cause.downcast_ref().is_some_and(is_unasked))
}

/// `error` and what it was caused by, outermost first.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let outermost: &(dyn Error + 'static) = error;
    iter::successors(Some(outermost), |current: &&(dyn Error + 'static)| (**current).source())
}

fn meaning(cause: &(dyn Error + 'static)) -> Option<PostError> {
    if cause.is::<Refused>() {
        Some(PostError::Blocked)
    } else if cause.is::<Unresolved>() {
        Some(PostError::Dns)
    } else if cause.is::<rustls::Error>() {
        Some(PostError::Tls)
    } else if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        meaning_of_http(error)
    } else {
        cause.downcast_ref::<io::Error>().and_then(meaning_of_io)
    }
}

fn meaning_of_http(error: &hyper::Error) -> Option<PostError> {
    if error.is_parse() || error.is_parse_too_large() {
        Some(PostError::Protocol)
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        Some(PostError::Reset)
    } else {
        None
    }
}

/// TLS errors travel inside I/O errors, whose `source` leaves out the error that they carry.
fn meaning_of_io(error: &io::Error) -> Option<PostError> {
    use io::ErrorKind as Kind;
    if let Some(found) = error.get_ref().and_then(|inner| meaning(inner)) {
        return Some(found);
    }
    match error.kind() {
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::UnexpectedEof => {
            Some(PostError::Reset)
        }
        _ => None,
    }
}
