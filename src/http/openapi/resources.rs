//! Descriptions of the routes for domains, suppressions, keys, the account, and the service itself (contract 2 and 6).

use hyper::StatusCode;
use serde_json::json;

use super::headers::Header;
use super::operation::Operation;
use super::request;
use super::schema::Schema;
use super::shape::{FullShape as _, Shape as _};
use crate::base::id::{DomainId, KeyId};
use crate::domain::api_key::Scope;
use crate::domain::stream::Stream;
use crate::engine::accounts::NewKeyRefusal;
use crate::engine::imports::ImportRefusal;
use crate::http::error::ApiError;
use crate::http::handlers;
use crate::http::handlers::suppressions::{not_imported, not_suppressed};
use crate::http::view::account::{KeyView, MeView, SettingsView};
use crate::http::view::domain::DomainView;
use crate::http::view::submission::RefusalView;
use crate::http::view::suppression::{FaultyListView, ImportedView, SuppressionView};
use crate::store::error::OpError;
use crate::store::op::domain::DomainRefusal;
use crate::store::op::suppression_count::TooManySuppressions;
use crate::store::row::suppression::SuppressionReason;

const DOMAINS: &str = "Domains";
const SUPPRESSIONS: &str = "Suppressions";
const KEYS: &str = "Keys";
const ACCOUNT: &str = "Account";
const SERVICE: &str = "Service";
const DOMAIN_ID: &str = "The domain's identifier.";
const KEY_ID: &str = "The key's identifier.";

/// Returns the description of a route of domains.
pub(super) fn domains(name: &str) -> Option<Operation> {
    let at = |summary| Operation::new(DOMAINS, summary).at("id", DomainId::schema(), DOMAIN_ID);
    let limited = || ApiError::StreamForbidden(Stream::Marketing.to_string());
    let no_domain = |refusal| handlers::domains::refused(OpError::Refused(refusal));
    Some(match name {
        "domains.create" => Operation::new(DOMAINS, "Add a sending domain")
            .says(
                "The answer lists the DNS records to publish. A domain does not cover its subdomains. An account has \
                 at most 100 domains.",
            )
            .takes(
                request::new_domain(),
                &[("transactional", json!({ "name": "example.com", "stream": "transactional" }))],
            )
            .gives(StatusCode::CREATED, "Added, not yet verified.", DomainView::schema())
            .fails([no_domain(DomainRefusal::Exists), no_domain(DomainRefusal::TooMany), limited()]),
        "domains.list" => Operation::new(DOMAINS, "List domains").gives_page("DomainPage", DomainView::schema()),
        "domains.show" => at("Get a domain").gives(StatusCode::OK, "The domain.", DomainView::schema()),
        "domains.update" => at("Change a domain")
            .says(
                "With `dkim_rotation_days` a second pair of DKIM keys is created: `pending` until its records are \
                 published, then `standby`. It signs from `next_rotation_at` on, or as soon as the record of the \
                 active key is missing.",
            )
            .takes(
                request::domain_change(),
                &[("stream", json!({ "stream": "marketing" })), ("rotation", json!({ "dkim_rotation_days": 180 }))],
            )
            .gives(StatusCode::OK, "The changed domain.", DomainView::schema())
            .fails([limited()]),
        "domains.delete" => at("Remove a domain").gives_nothing("Removed.").fails([limited()]),
        "domains.verify" => at("Verify a domain")
            .says("Looks up the records now, without a cache. An account can have two lookups at once.")
            .gives(StatusCode::OK, "The domain with the results.", DomainView::schema())
            .fails([no_domain(DomainRefusal::Taken), limited()]),
        "domains.rotate" => at("Rotate a domain's DKIM keys")
            .says(
                "New selectors are pending until they are published in DNS; the old ones retire seven days later. \
                 With a schedule, the `standby` keys sign from now on if their record is published; `pending` keys \
                 keep waiting.",
            )
            .gives(StatusCode::OK, "The domain with its new keys.", DomainView::schema())
            .fails([limited()]),
        _ => return None,
    })
}

/// Returns the description of a route of suppressions.
pub(super) fn suppressions(name: &str) -> Option<Operation> {
    let at = |summary| {
        let name = Schema::string().with("minLength", 1).example("gone@example.org");
        Operation::new(SUPPRESSIONS, summary).at("name", name, "The suppression's identifier, or the address.")
    };
    Some(match name {
        "suppressions.create" => Operation::new(SUPPRESSIONS, "Suppress an address")
            .says(
                "Queued messages to the address immediately end as `suppressed`. An account has at most 1,000,000 \
                 suppressions. Bounces, complaints and unsubscriptions are recorded even beyond that.",
            )
            .takes(
                request::new_suppression(),
                &[("phone", json!({ "email": "gone@example.org", "note": "asked by phone" }))],
            )
            .gives(StatusCode::CREATED, "Suppressed.", SuppressionView::schema())
            .gives(StatusCode::OK, "The address was already suppressed.", SuppressionView::schema())
            .fails([not_suppressed(OpError::Refused(TooManySuppressions))])
            .always(&[Header::Location]),
        "suppressions.list" => Operation::new(SUPPRESSIONS, "List suppressions")
            .query("email", request::address(), "Only the suppression of this address.")
            .query("reason", SuppressionReason::schema(), "Only suppressions with this reason.")
            .gives_page("SuppressionPage", SuppressionView::schema()),
        "suppressions.show" => {
            at("Get a suppression").gives(StatusCode::OK, "The suppression.", SuppressionView::schema())
        }
        "suppressions.delete" => at("Lift a suppression").gives_nothing("Lifted."),
        "suppressions.import" => Operation::new(SUPPRESSIONS, "Import suppressions")
            .says(
                "The whole list is checked first: if any line has an error, nothing is imported. The suppressions \
                 take effect when all of them are written. If the service stops before that, none are kept. An \
                 account has one import at a time, and at most 1,000,000 suppressions: a list that would exceed \
                 this is refused as a whole.",
            )
            .query("dry_run", Schema::boolean().with("default", false), "Only report the result of an import.")
            .takes(request::csv(), &[])
            .takes(request::json_lines(), &[])
            .gives(StatusCode::OK, "Imported.", ImportedView::schema())
            .refuses_with(FaultyListView::schema())
            .fails(
                [ImportRefusal::Running, ImportRefusal::TooMany].map(|refusal| not_imported(OpError::Refused(refusal))),
            ),
        "suppressions.export" => Operation::new(SUPPRESSIONS, "Export suppressions")
            .says(
                "All suppressions, in the format of the import. The list is read in parts during the download, so it \
                 may or may not contain suppressions that are added or deleted meanwhile. If the connection ends \
                 before the body does, the list is incomplete. Fields are data, not formulas: a field that begins \
                 with `=`, `+`, `-` or `@` is written unchanged, so import the file as text into a spreadsheet.",
            )
            .gives_as("text/csv", "The list.", Schema::string())
            .always(&[Header::ContentDisposition]),
        _ => return None,
    })
}

/// Returns the description of a route of keys.
pub(super) fn keys(name: &str) -> Option<Operation> {
    let at = |summary| Operation::new(KEYS, summary).at("id", KeyId::schema(), KEY_ID);
    let no_key = |refusal| handlers::keys::refused(OpError::Refused(refusal));
    Some(match name {
        "keys.create" => Operation::new(KEYS, "Create an API key")
            .says(
                "The answer shows the secret, which is shown only once. A key can't create a key with more rights \
                 than its own. An account has at most 100 valid keys. The newest 1,000 revoked and expired keys are \
                 kept.",
            )
            .takes(request::new_key(), &[("sender", json!({ "name": "web shop", "scopes": ["send", "read"] }))])
            .gives(StatusCode::CREATED, "Created.", KeyView::whole())
            .fails([
                no_key(NewKeyRefusal::Stream(Stream::Marketing)),
                no_key(NewKeyRefusal::Scope(Scope::Send)),
                no_key(NewKeyRefusal::TooMany),
            ]),
        "keys.list" => Operation::new(KEYS, "List API keys").gives_page("ApiKeyPage", KeyView::schema()),
        "keys.show" => at("Get an API key").gives(StatusCode::OK, "The key.", KeyView::schema()),
        "keys.update" => at("Rename an API key")
            .takes(request::key_change(), &[("name", json!({ "name": "web shop, blue" }))])
            .gives(StatusCode::OK, "The changed key.", KeyView::schema()),
        "keys.delete" => at("Revoke an API key")
            .says("The next request with it is refused. It stays listed.")
            .gives_nothing("Revoked."),
        _ => return None,
    })
}

/// Returns the description of a route of the account or of the service.
pub(super) fn account(name: &str) -> Option<Operation> {
    let health = || {
        Schema::object().member("status", Schema::words([json!("ok")])).named("Health", "A positive result of a check.")
    };
    Some(match name {
        "me" => Operation::new(ACCOUNT, "Get the account and its quota").gives(
            StatusCode::OK,
            "The account, the key of this request, and their remaining limits.",
            MeView::schema(),
        ),
        "settings.show" => {
            Operation::new(ACCOUNT, "Get the settings").gives(StatusCode::OK, "The settings.", SettingsView::schema())
        }
        "settings.update" => Operation::new(ACCOUNT, "Change the settings")
            .says("A new retention applies to new messages only.")
            .takes(request::settings_change(), &[("retention", json!({ "content_retention_days": 14 }))])
            .gives(StatusCode::OK, "The changed settings.", SettingsView::schema()),
        "submission_refusals.show" => Operation::new(ACCOUNT, "List refusals of SMTP submission")
            .says(
                "The last 100 4xx and 5xx answers to the account's SMTP clients, newest first. They are kept in \
                 memory, so the list is empty after a restart. A key that is limited to a stream sees only its own.",
            )
            .query("limit", Schema::count().within(1, 100).with("default", 100), "Maximum number of rows.")
            .gives(StatusCode::OK, "The refusals.", super::words::page("SubmissionRefusalPage", RefusalView::schema())),
        "openapi" => Operation::new(SERVICE, "Read this description").gives(
            StatusCode::OK,
            "This description.",
            Schema::map(Schema::anything()).example(json!({ "openapi": "3.1.0" })),
        ),
        "health" => Operation::new(SERVICE, "Check that the process is alive").gives(
            StatusCode::OK,
            "The process is alive.",
            health(),
        ),
        "ready" => Operation::new(SERVICE, "Check that the service accepts requests")
            .gives(StatusCode::OK, "The service accepts requests.", health())
            .fails([ApiError::StorageFull, ApiError::StorageFailed, ApiError::ShuttingDown]),
        _ => return None,
    })
}
