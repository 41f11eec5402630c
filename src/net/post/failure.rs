//! Names in the attempt log for errors of the network, of TLS or of HTTP. An error is classified by its chain of
//! causes, outermost first.

use std::error::Error;
use std::{io, iter};

use crate::engine::ports::PostError;

/// Returns the name of `error`, which occurred before a complete status line; `otherwise` if no cause has a name.
pub(in crate::net) fn word(error: &(dyn Error + 'static), otherwise: PostError) -> PostError {
    causes(error).find_map(meaning).unwrap_or(otherwise)
}

/// Iterates over `error` and its causes, outermost first.
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

/// Classifies an I/O error. TLS errors are wrapped in I/O errors, whose `source` omits the wrapped error.
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
