//! Tests of the names of our errors in the clients' forms (contract 12.3).

use super::*;
use crate::domain::api_key::Scope;
use crate::domain::violation::Violations;

fn names(error: &ApiError) -> (u16, &'static str, u16) {
    (error.status().as_u16(), resend_name(error), postmark_number(error))
}

#[test]
fn every_error_has_its_name_and_number() {
    let missing = Violations::of("to", "is required");
    let mut both = missing.clone();
    both.add("from", "must be an email address");
    for (error, expected) in [
        (ApiError::Unauthenticated(Unauthenticated::Missing), (401, "missing_api_key", 10)),
        (ApiError::Unauthenticated(Unauthenticated::Malformed), (401, "invalid_api_key", 10)),
        (ApiError::Unauthenticated(Unauthenticated::Unknown), (401, "invalid_api_key", 10)),
        (ApiError::ScopeForbidden(Scope::Send), (403, "restricted_api_key", 10)),
        (ApiError::StreamForbidden("marketing".to_owned()), (403, "restricted_api_key", 10)),
        (ApiError::InvalidJson(String::new()), (422, "validation_error", 402)),
        (ApiError::Invalid(missing), (422, "missing_required_field", 300)),
        (ApiError::Invalid(both), (422, "validation_error", 300)),
        (ApiError::DomainUnknown(String::new()), (422, "validation_error", 400)),
        (ApiError::DomainUnverified(String::new()), (422, "validation_error", 401)),
        (ApiError::RecipientSuppressed(String::new()), (422, "validation_error", 406)),
        (ApiError::IdempotencyMismatch, (409, "invalid_idempotent_request", 300)),
        (ApiError::IdempotencyInProgress, (409, "concurrent_idempotent_requests", 300)),
        (ApiError::Conflict(String::new()), (409, "validation_error", 300)),
        (ApiError::NotFound, (404, "not_found", 701)),
        (ApiError::MethodNotAllowed(String::new()), (405, "method_not_allowed", 300)),
        (ApiError::UnsupportedMediaType(String::new()), (415, "validation_error", 409)),
        (ApiError::PayloadTooLarge(1), (413, "validation_error", 300)),
        (ApiError::RateLimited(1), (429, "rate_limit_exceeded", 429)),
        (ApiError::QuotaExceeded("hour", 1), (429, "daily_quota_exceeded", 405)),
        (ApiError::StorageQuotaExceeded, (429, "daily_quota_exceeded", 405)),
        (ApiError::Internal, (500, "application_error", 500)),
        (ApiError::StorageFull, (503, "application_error", 100)),
        (ApiError::Overloaded, (503, "application_error", 100)),
        (ApiError::RequestTimeout, (408, "application_error", 300)),
        (ApiError::HeadersTooLarge, (431, "application_error", 300)),
        (ApiError::ContentGone, (410, "application_error", 300)),
    ] {
        assert_eq!(names(&error), expected, "{error:?}");
    }
}

#[test]
fn a_message_names_the_field_of_each_error() {
    let mut violations = Violations::of("to", "is required");
    violations.add("headers.X", "must be a string");
    let answer = CompatService::Resend.client_error(&ApiError::Invalid(violations.clone()), "1", None);
    assert_eq!(answer.message, "headers.X: must be a string; to: is required");
    let listed = CompatService::Resend.client_error(&ApiError::Invalid(violations), "1", Some("emails[3]"));
    assert_eq!(listed.message, "emails[3].headers.X: must be a string; emails[3].to: is required");
    let domain = CompatService::Postmark.client_error(&ApiError::DomainUnknown("x.test".to_owned()), "1", None);
    assert!(domain.message.starts_with("From: The sending domain x.test"), "{}", domain.message);
    let quota = CompatService::Resend.client_error(&ApiError::RateLimited(3), "1", Some("emails[0]"));
    assert_eq!(quota.message, "emails[0]: Too many requests. Wait 3 s.");
}

#[test]
fn a_service_is_recognised_by_its_whole_prefix_segment() {
    for (path, service) in [
        ("/v1/compat/resend", Some(CompatService::Resend)),
        ("/v1/compat/resend/", Some(CompatService::Resend)),
        ("/v1/compat/postmark/x/y", Some(CompatService::Postmark)),
        ("/v1/compat/resend2", None),
        ("/v1/compat", None),
        ("/emails", None),
    ] {
        assert_eq!(CompatService::of_path(path), service, "{path}");
    }
}

#[test]
fn postmarks_token_is_a_single_header_with_only_the_key() {
    let headers = |values: &[&'static str]| {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(POSTMARK_TOKEN, value.parse().unwrap());
        }
        map
    };
    let refused = |why| Err(ApiError::Unauthenticated(why));
    assert_eq!(CompatService::Postmark.key(&headers(&["pr_live_1"])), Ok("pr_live_1"));
    assert_eq!(CompatService::Postmark.key(&headers(&[])), refused(Unauthenticated::Missing));
    assert_eq!(CompatService::Postmark.key(&headers(&["a", "b"])), refused(Unauthenticated::Malformed));
    assert_eq!(CompatService::Postmark.key(&headers(&["a b"])), refused(Unauthenticated::Malformed));
    assert_eq!(CompatService::Postmark.key(&headers(&[""])), refused(Unauthenticated::Missing));
    let bearer = HeaderMap::from_iter([(AUTHORIZATION, "Bearer".parse().unwrap())]);
    assert_eq!(CompatService::Resend.key(&bearer), refused(Unauthenticated::Missing));
}
