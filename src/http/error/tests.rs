//! Tests: every 422 has errors, and every answer that asks to wait has a duration.

use super::*;

#[test]
fn a_422_always_has_errors_and_its_message_contains_the_hints() {
    let mut violations = Violations::of("unsubscribe_ur", "unknown field");
    violations.hint("Did you mean unsubscribe_url?");
    let error = ApiError::from(violations);
    assert_eq!(
        error.message(),
        "The request is not valid: see errors for unsubscribe_ur. Did you mean unsubscribe_url?"
    );
    for error in [
        error,
        ApiError::InvalidJson("no".into()),
        ApiError::DomainUnknown("a.example".into()),
        ApiError::DomainUnverified("a.example".into()),
        ApiError::RecipientSuppressed("bounce".into()),
    ] {
        assert_eq!(error.status(), 422);
        assert!(error.errors().is_some(), "{error:?}");
    }
    assert!(ApiError::NotFound.errors().is_none());
}

#[test]
fn every_retry_delay_is_at_least_one_second() {
    assert_eq!(ApiError::RateLimited(0).answer().headers()[RETRY_AFTER], "1");
    for error in [ApiError::StorageFull, ApiError::StorageFailed, ApiError::Overloaded, ApiError::ShuttingDown] {
        assert_eq!(error.status(), 503);
        assert!(error.answer().headers().contains_key(RETRY_AFTER), "{error:?}");
    }
}
