//! Names in the attempt log for errors of the network, of TLS or of HTTP. Errors are told apart by what they
//! were caused by, so the chain of causes is walked, outermost first.

use std::error::Error;
use std::{io, iter};

use crate::engine::ports::PostError;

/// The word for `error`, which came before a whole status line; `otherwise` where nothing about it has one.
pub(in crate::net) fn word(error: &(dyn Error + 'static), otherwise: PostError) -> PostError {
    causes(error).find_map(meaning).unwrap_or(otherwise)
}

/// `error` and what it was caused by, outermost first.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |current: &&(dyn Error + 'static)| (**current).source())
}

fn meaning(cause: &(dyn Error + 'static)) -> Option<PostError> {
    if cause.is::<rustls::Error>() {
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
