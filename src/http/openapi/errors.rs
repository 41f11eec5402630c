//! The errors of contract 1 in the document: those that a row of the table implies, and the body of each status. Every
//! example is a real answer of an [`ApiError`].

use hyper::Method;
use hyper::header::HeaderMap;
use serde_json::{Map, Value, json};

use super::headers::{EVERY_ANSWER, Header, KNOWN_KEY, QUOTA, sent};
use super::operation::is_keyed;
use super::schema::Schema;
use super::shape::{FullShape as _, Shape as _};
use crate::domain::api_key::Scope;
use crate::domain::violation::Violations;
use crate::http::body::{BodyLimits, check_type};
use crate::http::error::{ApiError, ErrorBody, Unauthenticated};
use crate::http::json::parse_object;
use crate::http::query::Query;
use crate::http::route::{Access, BodyRule, BodySize, Route};
use crate::http::state::Api;

/// Returns the responses of `route` by status, with its `own` errors and the alternative form of its 422, if any.
/// Responses that only have implied errors go to `shared`.
pub(super) fn responses(
    route: &Route<Api>,
    own: &[ApiError],
    refusal: Option<Schema>,
    shared: &mut Map<String, Value>,
) -> Map<String, Value> {
    let brought = brought(route);
    let mut statuses: Vec<u16> = brought.iter().chain(own).map(|error| error.status().as_u16()).collect();
    statuses.sort_unstable();
    statuses.dedup();
    let mut responses = Map::new();
    for status in statuses {
        let of = |errors: &[ApiError]| -> Vec<ApiError> {
            errors.iter().filter(|error| error.status().as_u16() == status).cloned().collect()
        };
        let (mut errors, own) = (of(&brought), of(own));
        // The sentences about size and type differ if the body is not plain JSON.
        let is_usual = match status {
            413 => route.size == BodySize::Json,
            415 => route.body == BodyRule::JSON,
            422 => refusal.is_none(),
            _ => true,
        };
        let is_shared = own.is_empty() && is_keyed(route) && is_usual;
        errors.extend(own);
        let mut response = response(status, &errors, is_keyed(route));
        if let Some(refusal) = refusal.clone().filter(|_| status == 422) {
            let both = json!([refusal.into_value(), ErrorBody::whole().into_value()]);
            response["content"]["application/json"]["schema"] = json!({ "anyOf": both });
        }
        let place = if is_shared { refer(shared, &errors, response) } else { response };
        responses.insert(status.to_string(), place);
    }
    responses
}

/// Returns the errors that a row of the table implies.
fn brought(route: &Route<Api>) -> Vec<ApiError> {
    let mut errors = vec![ApiError::HeadersTooLarge, ApiError::Internal];
    let keyed = is_keyed(route);
    if keyed {
        let limited = ApiError::RateLimited(7);
        errors.extend([ApiError::Unauthenticated(Unauthenticated::Unknown), limited, ApiError::StorageFailed]);
    }
    if let Access::Scoped(scopes, _) = route.access {
        errors.extend(scopes.as_list().into_iter().map(ApiError::ScopeForbidden));
    }
    if keyed && route.method != Method::GET {
        errors.push(ApiError::AccountSuspended("unpaid invoices".to_owned()));
    }
    if route.path.contains('{') {
        errors.push(ApiError::NotFound);
    }
    if keyed && route.method != Method::GET {
        errors.extend([ApiError::StorageFull, ApiError::ReplicaUnavailable]);
    }
    match route.body {
        BodyRule::Of(_) | BodyRule::Nothing => {
            errors.extend([ApiError::RequestTimeout, ApiError::Overloaded]);
            errors.push(ApiError::PayloadTooLarge(BodyLimits::default().most(route.size)));
            errors.extend(check_type(&text_plain(), route.body.types().unwrap_or_default()).err());
            if route.body == BodyRule::JSON || route.body == BodyRule::Nothing {
                errors.extend(parse_object(br#"{"to": "a@example.org", "to": "b@example.org"}"#).err());
                errors.push(Violations::of("colour", "unknown field").into());
            } else {
                errors.push(unknown_parameter());
            }
        }
        BodyRule::Ignored if route.path.starts_with("/v1/") => errors.push(unknown_parameter()),
        BodyRule::Ignored | BodyRule::OfAnyType => {}
    }
    errors
}

fn text_plain() -> HeaderMap {
    let value = hyper::header::HeaderValue::from_static("text/plain");
    HeaderMap::from_iter([(hyper::header::CONTENT_TYPE, value)])
}

fn unknown_parameter() -> ApiError {
    let mut violations = Violations::new();
    Query::parse("limt=10", &["limit"], &mut violations);
    violations.into()
}

fn response(status: u16, errors: &[ApiError], keyed: bool) -> Value {
    let (mut always, mut sometimes) = (EVERY_ANSWER.to_vec(), Vec::new());
    match status {
        // These errors may come before the key is checked, for example if the store fails. The rate is then unknown.
        401 => always.push(Header::WwwAuthenticate),
        431 | 500 | 503 => sometimes.extend(KNOWN_KEY),
        _ if keyed => always.extend(KNOWN_KEY),
        _ => {}
    }
    match errors.iter().filter(|error| error.retry_after().is_some()).count() {
        0 => {}
        all if all == errors.len() => always.push(Header::RetryAfter),
        _ => sometimes.push(Header::RetryAfter),
    }
    if errors.iter().any(|error| matches!(error, ApiError::QuotaExceeded(..))) {
        sometimes.extend(QUOTA);
    }
    if status == 405 {
        always.push(Header::Allow);
    }
    let mut examples = Map::new();
    for error in errors {
        let code = error.code();
        let name = (1..).map(|count| if count == 1 { code.to_owned() } else { format!("{code}_{count}") });
        let free = name.into_iter().find(|name| !examples.contains_key(name));
        examples.insert(free.unwrap_or_default(), json!({ "value": error.body() }));
    }
    json!({
        "description": codes(errors).iter().map(|code| format!("`{code}`")).collect::<Vec<_>>().join(" or "),
        "headers": sent(&always, &sometimes),
        "content": { "application/json": { "schema": schema(status).into_value(), "examples": examples } },
    })
}

fn schema(status: u16) -> Schema {
    if status == 422 { ErrorBody::whole() } else { ErrorBody::schema() }
}

fn codes(errors: &[ApiError]) -> Vec<&'static str> {
    let mut codes = Vec::new();
    for error in errors {
        if !codes.contains(&error.code()) {
            codes.push(error.code());
        }
    }
    codes
}

/// Returns a reference to the response, which goes to `shared` under the names of its codes.
fn refer(shared: &mut Map<String, Value>, errors: &[ApiError], response: Value) -> Value {
    let capitalised = |word: &str| word[..1].to_uppercase() + &word[1..];
    let name = |error: &ApiError| {
        let code: String = error.code().split('_').map(capitalised).collect();
        // Each scope has its own sentence.
        if let ApiError::ScopeForbidden(scope) = error { capitalised(scope.as_str()) + &code } else { code }
    };
    let key = errors.iter().map(name).collect::<Vec<_>>().join("Or");
    let reference = json!({ "$ref": format!("#/components/responses/{key}") });
    shared.insert(key, response);
    reference
}

/// Returns the answers to a request that matches no operation of the document.
pub(super) fn elsewhere() -> [(&'static str, Value); 1] {
    let error = ApiError::MethodNotAllowed("GET, HEAD".to_owned());
    [("MethodNotAllowed", response(405, &[error], true))]
}

/// Returns the schema of all error codes.
pub(in crate::http) fn error_code() -> Schema {
    let some = String::new;
    let every = [
        ApiError::Unauthenticated(Unauthenticated::Missing),
        ApiError::StreamForbidden(some()),
        ApiError::ScopeForbidden(Scope::Read),
        ApiError::AccountSuspended(some()),
        ApiError::NotFound,
        ApiError::MethodNotAllowed(some()),
        ApiError::ContentGone,
        ApiError::RequestTimeout,
        ApiError::HeadersTooLarge,
        ApiError::IdempotencyMismatch,
        ApiError::IdempotencyInProgress,
        ApiError::Conflict(some()),
        ApiError::PayloadTooLarge(0),
        ApiError::UnsupportedMediaType(some()),
        ApiError::InvalidJson(some()),
        ApiError::Invalid(Violations::new()),
        ApiError::DomainUnknown(some()),
        ApiError::DomainUnverified(some()),
        ApiError::RecipientSuppressed(some()),
        ApiError::RateLimited(1),
        ApiError::QuotaExceeded("hour", 1),
        ApiError::StorageQuotaExceeded,
        ApiError::Internal,
        ApiError::StorageFull,
        ApiError::StorageFailed,
        ApiError::Overloaded,
        ApiError::ShuttingDown,
        ApiError::ReplicaUnavailable,
    ];
    Schema::words(codes(&every).into_iter().map(Into::into))
        .named("ErrorCode", "The reason, as a code. New versions may add codes.")
}
