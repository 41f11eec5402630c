//! The status of the service, for people: `postrider status`.

use std::fmt::Write as _;

use serde_json::Value;

use super::show::cell;

/// Units of sizes, each 1024 times the one before.
const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];

/// Returns the text with a line end.
pub(super) fn status(value: &Value) -> String {
    let text = |path: &str| cell(value.pointer(path));
    let size = |path: &str| bytes(value.pointer(path).and_then(Value::as_u64).unwrap_or_default());
    let certificate = match value["certificate"].as_object() {
        None => "none (TLS is off)".to_owned(),
        Some(_) if value["certificate"]["expires_at"].is_null() => "self-signed".to_owned(),
        Some(_) => format!("expires at {}", text("/certificate/expires_at")),
    };
    let backup = if value["backup"]["last_at"].is_null() { "none yet".to_owned() } else { text("/backup/last_at") };
    let hold = if value["queue"]["on_hold"] == true { "; a restored queue is on hold" } else { "" };
    let mut lines = format!(
        "version: {}\nstate: {}\nuptime: {}\nurl: {}\nqueue: {} messages ({} due), {} webhook deliveries{hold}\n\
         certificate: {certificate}\ndisk: {} free; database {}, content {}\nlast backup: {backup}\nclock: {}\n",
        text("/version"),
        text("/state"),
        duration(value["uptime_seconds"].as_u64().unwrap_or_default()),
        text("/url"),
        text("/queue/messages"),
        text("/queue/due_messages"),
        text("/queue/webhook_deliveries"),
        size("/disk/free_bytes"),
        size("/disk/database_bytes"),
        size("/disk/content_bytes"),
        text("/clock/state"),
    );
    let errors = value["last_errors"].as_array().map_or(&[][..], Vec::as_slice);
    let _ = writeln!(lines, "last errors:{}", if errors.is_empty() { " none" } else { "" });
    for error in errors {
        let part = |name: &str| cell(error.get(name));
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "  {} {:5} {}", part("at"), part("level"), part("message"));
    }
    lines
}

fn duration(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

fn bytes(count: u64) -> String {
    let unit = (0..UNITS.len()).rev().find(|unit| count >> (10 * unit) > 0).unwrap_or(0);
    if unit == 0 {
        return format!("{count} bytes");
    }
    // One decimal is precise enough for people.
    let tenths = (u128::from(count) * 10) >> (10 * unit);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_status_has_one_line_per_fact() {
        let value = json!({
            "version": "0.1.0", "state": "ready", "uptime_seconds": 93_784, "url": "https://mail.example.com",
            "queue": {"messages": 12, "webhook_deliveries": 0, "due_messages": 3, "on_hold": false},
            "certificate": {"expires_at": "2027-01-01T00:00:00.000+00:00"},
            "disk": {"free_bytes": 13_314_398_617_u64, "database_bytes": 1_572_864, "content_bytes": 512},
            "backup": {"last_at": null}, "clock": {"state": "trusted"},
            "last_errors": [{"at": "t", "level": "warn", "message": "no \u{1b}route"}],
        });
        assert_eq!(
            status(&value),
            "version: 0.1.0\nstate: ready\nuptime: 1 d 2 h\nurl: https://mail.example.com\n\
             queue: 12 messages (3 due), 0 webhook deliveries\n\
             certificate: expires at 2027-01-01T00:00:00.000+00:00\n\
             disk: 12.3 GiB free; database 1.5 MiB, content 512 bytes\nlast backup: none yet\nclock: trusted\n\
             last errors:\n  t warn  no \\u{1b}route\n"
        );
    }
}
