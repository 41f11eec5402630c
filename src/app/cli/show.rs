//! Text output of the API's objects: `key: value` lines, and tables for lists and DNS records.

use std::fmt::Write as _;

use serde_json::Value;

use super::status;
use super::zone::zone;

/// Kind of object to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One account.
    Account,
    /// A page of accounts.
    Accounts,
    /// A new key with its secret.
    NewKey,
    /// One key.
    Key,
    /// A page of keys.
    Keys,
    /// One domain, with its records.
    Domain,
    /// The records of a domain as lines of a zone file.
    Zone,
    /// A page of domains.
    Domains,
    /// Queued mail by site.
    Queue,
    /// One alert.
    Alert,
    /// A page of alerts.
    Alerts,
    /// The alerts that checks opened and resolved.
    AlertChanges,
    /// The results of a test.
    AlertTests,
    /// The service's clock.
    Clock,
    /// The status of the service.
    Status,
    /// Result of releasing the queue.
    Released,
    /// Result of a change for one site.
    OfSite,
    /// A user with a new password.
    NewUser,
    /// A user with a new setup link.
    SetupLink,
    /// One user.
    User,
    /// A page of users.
    Users,
    /// An endpoint with a new secret.
    NewWebhook,
    /// One webhook endpoint.
    Webhook,
    /// A page of endpoints.
    Webhooks,
    /// One event owed to an endpoint.
    Delivery,
    /// One suppression.
    Suppression,
    /// A page of suppressions.
    Suppressions,
    /// A message that was just accepted.
    Accepted,
    /// One message, with its timeline.
    Message,
    /// A page of messages.
    Messages,
    /// A page of events.
    Events,
    /// An answer without a body, with a sentence that reports the change.
    Nothing(&'static str),
}

const ACCOUNT: &[&str] = &[
    "/id",
    "/name",
    "/time_zone",
    "/content_retention_days",
    "/hosted_unsubscribe",
    "/quota/per_hour",
    "/quota/per_day",
    "/created_at",
    "/suspended/since",
    "/suspended/reason",
];
const NEW_KEY: &[&str] = &["/id", "/name", "/stream", "/scopes", "/expires_at", "/created_at", "/key"];
const KEY: &[&str] =
    &["/id", "/name", "/prefix", "/stream", "/scopes", "/created_at", "/last_used_at", "/expires_at", "/revoked_at"];
const WEBHOOK: &[&str] = &[
    "/id",
    "/url",
    "/events",
    "/description",
    "/enabled",
    "/disabled_at",
    "/disabled_reason",
    "/consecutive_failures",
    "/last_success_at",
    "/last_failure_at",
    "/created_at",
];
const NEW_USER: &[&str] = &["/id", "/email", "/role", "/password"];
const SETUP_LINK: &[&str] = &["/id", "/email", "/setup_url", "/expires_at"];
const USER: &[&str] = &["/id", "/email", "/role", "/disabled", "/totp", "/operator", "/created_at", "/last_sign_in_at"];
const NEW_WEBHOOK: &[&str] = &["/id", "/url", "/events", "/description", "/enabled", "/secret"];
const DELIVERY: &[&str] = &["/id", "/webhook_id", "/event_type", "/status", "/next_attempt_at"];
const SUPPRESSION: &[&str] =
    &["/id", "/email", "/reason", "/message_id", "/smtp_code", "/smtp_response", "/note", "/created_at"];
const MESSAGE: &[&str] = &[
    "/id",
    "/message_id_header",
    "/status",
    "/status_at",
    "/stream",
    "/from",
    "/to",
    "/subject",
    "/size_bytes",
    "/created_at",
    "/attempts",
    "/next_attempt_at",
    "/waiting/reason",
    "/waiting/until",
    "/waiting/detail",
    "/relay",
    "/mx_host",
    "/smtp_response",
    "/content_expires_at",
];
const ACCEPTED: &[&str] =
    &["/id", "/message_id_header", "/status", "/stream", "/from", "/to", "/subject", "/created_at"];
const TIMELINE: &[&str] = &["/created_at", "/type", "/mx_host", "/smtp_code", "/smtp_response"];
const EVENT: &[&str] = &["/created_at", "/type", "/message_id", "/to", "/smtp_code", "/smtp_response"];
const DOMAIN: &[&str] = &[
    "/id",
    "/name",
    "/stream",
    "/status",
    "/verified_at",
    "/last_checked_at",
    "/dkim_rotation_days",
    "/next_rotation_at",
    "/created_at",
];
const QUEUE: &[&str] =
    &["/site", "/relay", "/waiting", "/in_flight", "/reason", "/next_at", "/held_until", "/last_answer"];
const ALERTS: &[&str] = &["/id", "/opened_at", "/resolved_at", "/severity", "/condition", "/subject/name", "/summary"];
const ALERT: &[&str] = &[
    "/id",
    "/condition",
    "/severity",
    "/scope",
    "/subject/kind",
    "/subject/id",
    "/subject/name",
    "/summary",
    "/seen",
    "/remedy",
    "/opened_at",
    "/resolved_at",
];
const NOTICE: &[&str] = &["/at", "/kind", "/channel", "/status", "/relay"];
const CLOCK: &[&str] = &["/state", "/service_time", "/wall_clock", "/cause"];
const RECORD: &[&str] = &["/purpose", "/status", "/required", "/type", "/name", "/value"];

/// Returns the text for people, with a line end.
pub(super) fn readable(value: &Value, shape: Shape) -> String {
    match shape {
        Shape::Account => lines(value, ACCOUNT),
        Shape::Accounts => page(value, &["/id", "/name", "/time_zone", "/created_at"]),
        Shape::NewKey => once(value, NEW_KEY, "key"),
        Shape::Key => lines(value, KEY),
        Shape::Keys => page(value, &["/id", "/name", "/prefix", "/stream", "/scopes", "/last_used_at", "/revoked_at"]),
        Shape::Domain => domain(value),
        Shape::Zone => zone(records(value)),
        Shape::Queue => queue(value),
        Shape::Alert => {
            let notices = value["notices"].as_array().map_or(&[][..], Vec::as_slice);
            format!("{}\nNotices:\n\n{}", lines(value, ALERT), table(notices, NOTICE))
        }
        Shape::Alerts => page(value, ALERTS),
        Shape::AlertChanges => lines(value, &["/opened", "/resolved"]),
        Shape::AlertTests => alert_tests(value),
        Shape::Clock => lines(value, CLOCK),
        Shape::Status => status::status(value),
        Shape::Released => released(value),
        Shape::OfSite => of_site(value),
        Shape::Domains => page(value, &["/id", "/name", "/stream", "/status", "/last_checked_at"]),
        Shape::NewUser => once(value, NEW_USER, "password"),
        Shape::SetupLink => once(value, SETUP_LINK, "setup_url"),
        Shape::User => lines(value, USER),
        Shape::Users => page(value, &["/id", "/email", "/role", "/disabled", "/totp", "/last_sign_in_at"]),
        Shape::NewWebhook => once(value, NEW_WEBHOOK, "secret"),
        Shape::Webhook => lines(value, WEBHOOK),
        Shape::Webhooks => page(value, &["/id", "/enabled", "/disabled_at", "/consecutive_failures", "/url"]),
        Shape::Delivery => lines(value, DELIVERY),
        Shape::Suppression => lines(value, SUPPRESSION),
        Shape::Suppressions => page(value, &["/id", "/reason", "/created_at", "/email"]),
        Shape::Accepted => lines(value, ACCEPTED),
        Shape::Message => {
            let events = value["events"].as_array().map_or(&[][..], Vec::as_slice);
            format!("{}\nTimeline:\n\n{}", lines(value, MESSAGE), table(events, TIMELINE))
        }
        Shape::Messages => page(value, &["/id", "/created_at", "/status", "/to", "/subject"]),
        Shape::Events => page(value, EVENT),
        Shape::Nothing(done) => format!("{done}\n"),
    }
}

/// Returns the results of a test, or the reason why there are none.
fn alert_tests(value: &Value) -> String {
    let mut text = match value["results"].as_array().map_or(&[][..], Vec::as_slice) {
        [] => "Nothing was sent: set alerts.email or alerts.webhook_url.\n".to_owned(),
        results => table(results, &["/channel", "/status", "/relay", "/to", "/detail"]),
    };
    for warning in value["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text
}

/// Returns an object with a secret that is not shown again.
fn once(value: &Value, members: &[&str], secret: &str) -> String {
    format!("{}\nSave the {secret} now; it won't be shown again.\n", lines(value, members))
}

/// Returns the facts of a domain, and the records to publish. Records without which it can't send are marked as
/// required.
fn domain(value: &Value) -> String {
    format!("{}\nDNS records to publish:\n\n{}", lines(value, DOMAIN), table(records(value), RECORD))
}

fn records(domain: &Value) -> &[Value] {
    domain["records"].as_array().map_or(&[][..], Vec::as_slice)
}

fn queue(value: &Value) -> String {
    let mut text = page(value, QUEUE);
    if let Some(standstill) = value.get("standstill") {
        let fact = |name| cell(standstill.get(name));
        let _ = writeln!(
            text,
            "\n{} messages and {} webhook deliveries are on hold since the backup of {} was restored. \
             Release them with `postrider queue release`.",
            fact("messages"),
            fact("deliveries"),
            fact("backup_at"),
        );
    }
    text
}

fn of_site(value: &Value) -> String {
    let site = cell(value.get("site"));
    match (value["paused"].as_bool(), value["more"].as_bool()) {
        (Some(true), _) => format!("Mail for {site} waits until it is resumed.\n"),
        (Some(false), _) => format!("Mail for {site} continues.\n"),
        (None, more) => {
            let rest = if more == Some(true) { " There may be more: run the command again." } else { "" };
            format!("{} messages for {site} are retried now.{rest}\n", cell(value.get("messages")))
        }
    }
}

fn released(value: &Value) -> String {
    let fact = |name| cell(value.get(name));
    match value["released"].as_bool() {
        Some(true) => format!(
            "Released {} messages and {} webhook deliveries of the backup of {}.\n",
            fact("messages"),
            fact("deliveries"),
            fact("backup_at")
        ),
        Some(false) | None => "Nothing is on hold.\n".to_owned(),
    }
}

fn lines(value: &Value, members: &[&str]) -> String {
    let mut text = String::new();
    for member in members {
        let name = member[1..].replace('/', ".");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}: {}", cell(value.pointer(member)));
    }
    text
}

/// Returns the rows of a page, and the command for the next one.
fn page(value: &Value, members: &[&str]) -> String {
    let mut text = table(value["data"].as_array().map_or(&[][..], Vec::as_slice), members);
    if let Some(cursor) = value["next_cursor"].as_str() {
        let _ = writeln!(text, "\nNext page: --cursor {cursor}");
    }
    text
}

/// Returns a row for each value. Columns are as wide as their widest cell, except the last: DNS values are long.
pub(super) fn table(rows: &[Value], members: &[&str]) -> String {
    let heads = members.iter().map(|member| member[1..].to_ascii_uppercase()).collect();
    let rows = rows.iter().map(|row| members.iter().map(|member| cell(row.pointer(member))).collect());
    let rows: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..members.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}

/// Returns one value as text. Control characters are escaped, so that values from others can't move the cursor or
/// recolour the terminal.
pub(super) fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(Value::Bool(false)) => "no".to_owned(),
        Some(Value::String(text)) if text.chars().any(char::is_control) => text.escape_debug().to_string(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => items.iter().map(|item| cell(Some(item))).collect::<Vec<_>>().join(", "),
        Some(other @ (Value::Number(_) | Value::Object(_))) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_domain_is_shown_with_a_table_of_its_records() {
        let record = json!({"purpose": "spf", "type": "TXT", "name": "example.com", "value": "v=spf1 mx -all",
            "required": false, "status": "missing", "found": []});
        let domain = json!({"id": "dom_1", "name": "example.com", "status": "pending", "records": [record]});
        let text = readable(&domain, Shape::Domain);
        assert!(text.starts_with("id: dom_1\nname: example.com\nstream: -\nstatus: pending\n"), "{text}");
        assert!(
            text.ends_with(
                "PURPOSE  STATUS   REQUIRED  TYPE  NAME         VALUE\n\
             spf      missing  no        TXT   example.com  v=spf1 mx -all\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_page_shows_the_next_cursor_and_escapes_control_characters() {
        let value = json!({"data": [{"id": "acc_1", "name": "a\u{1b}[31m", "created_at": null}], "next_cursor": "abc"});
        assert_eq!(
            readable(&value, Shape::Accounts),
            "ID     NAME         TIME_ZONE  CREATED_AT\nacc_1  a\\u{1b}[31m  -          -\n\nNext page: --cursor abc\n"
        );
    }
}
