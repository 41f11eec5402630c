//! Messages as real systems write them, in `tests/corpus/reports`, each with its expected result. The first line of the
//! result file names the source; the other lines are the report, one field per line.

use std::fmt::Write as _;
use std::path::PathBuf;

use postrider::mail::report::{
    DeliveryReport, FeedbackReport, FeedbackType, Report, ReturnedHeader, UnstructuredBounce, read,
};

use crate::laws;

/// A message of the corpus.
pub(crate) struct Example {
    pub(crate) name: String,
    /// The message with LF line ends.
    pub(crate) message: String,
    expected: String,
}

impl Example {
    /// Returns the message as sent over the wire.
    pub(crate) fn on_wire(&self) -> String {
        self.message.replace('\n', "\r\n")
    }
}

/// Returns every message of the corpus, by name.
pub(crate) fn examples() -> Vec<Example> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/reports");
    let paths = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let messages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "eml"));
    let example = |path: PathBuf| Example {
        name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
        message: std::fs::read_to_string(&path).unwrap(),
        expected: std::fs::read_to_string(path.with_extension("expected")).unwrap(),
    };
    let mut examples: Vec<_> = messages.map(example).collect();
    examples.sort_by(|one, other| one.name.cmp(&other.name));
    examples
}

#[test]
fn reports_of_real_systems_are_parsed_field_by_field() {
    let examples = examples();
    let is_report = |example: &&Example| !example.name.starts_with("no-") && !example.name.starts_with("auto-");
    assert!(examples.iter().filter(is_report).count() >= 60, "the corpus was not found");
    let mut wrong = String::new();
    for example in &examples {
        let (source, expected) = example.expected.split_once('\n').unwrap();
        assert!(source.starts_with("# "), "{} does not name its source", example.name);
        let shown = shown(&laws::check(example.on_wire().as_bytes()));
        if shown != expected {
            writeln!(wrong, "\n{}:\n{shown}instead of\n{expected}", example.name).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn line_ends_do_not_matter() {
    for example in examples() {
        assert_eq!(read(example.message.as_bytes()), read(example.on_wire().as_bytes()), "{}", example.name);
    }
}

/// Formats a report in lines, like the corpus.
pub(crate) fn shown(report: &Report) -> String {
    let mut out = String::new();
    match report {
        Report::Delivery(report) => show_delivery(&mut out, report).unwrap(),
        Report::Feedback(report) => show_feedback(&mut out, report).unwrap(),
        Report::AutoReply => out.push_str("auto-reply\n"),
        Report::Unknown(None) => out.push_str("unknown\n"),
        Report::Unknown(Some(bounce)) => show_bounce(&mut out, bounce).unwrap(),
    }
    out
}

fn show_delivery(out: &mut String, report: &DeliveryReport) -> std::fmt::Result {
    writeln!(out, "delivery by {}", report.reporting_mta.as_deref().unwrap_or("nobody"))?;
    for recipient in &report.recipients {
        let action = format!("{:?}", recipient.action).to_lowercase();
        writeln!(out, "{action} {}", recipient.final_recipient.as_deref().unwrap_or("nobody"))?;
        let diagnostic = recipient.diagnostic.as_ref();
        for (name, value) in [
            ("original", recipient.original_recipient.clone()),
            ("status", recipient.status.map(|status| status.to_string())),
            ("code", diagnostic.and_then(|diagnostic| diagnostic.smtp_code).map(|code| code.to_string())),
            ("enhanced", diagnostic.and_then(|diagnostic| diagnostic.enhanced).map(|code| code.to_string())),
            ("remote", recipient.remote_mta.clone()),
            ("until", recipient.will_retry_until.clone()),
        ] {
            if let Some(value) = value {
                writeln!(out, "  {name} {value}")?;
            }
        }
        for line in diagnostic.map(|diagnostic| diagnostic.text.as_str()).unwrap_or_default().lines() {
            writeln!(out, "  text {line}")?;
        }
    }
    show_returned(out, &report.returned)
}

fn show_feedback(out: &mut String, report: &FeedbackReport) -> std::fmt::Result {
    let kind = match &report.feedback_type {
        FeedbackType::Abuse => "abuse".to_owned(),
        FeedbackType::Fraud => "fraud".to_owned(),
        FeedbackType::Virus => "virus".to_owned(),
        FeedbackType::Other => "other".to_owned(),
        FeedbackType::NotSpam => "not-spam".to_owned(),
        FeedbackType::AuthFailure => "auth-failure".to_owned(),
        FeedbackType::OptOut => "opt-out".to_owned(),
        FeedbackType::Unregistered(name) => format!("{name}?"),
    };
    writeln!(out, "feedback {kind}")?;
    for (name, value) in [("reporter", &report.reporter), ("from", &report.original_mail_from)] {
        if let Some(value) = value {
            writeln!(out, "{name} {value}")?;
        }
    }
    for recipient in &report.original_rcpt_to {
        writeln!(out, "to {recipient}")?;
    }
    show_returned(out, &report.returned)
}

fn show_returned(out: &mut String, returned: &ReturnedHeader) -> std::fmt::Result {
    for (name, value) in returned.fields() {
        writeln!(out, "returned {name}: {value}")?;
    }
    Ok(())
}

fn show_bounce(out: &mut String, bounce: &UnstructuredBounce) -> std::fmt::Result {
    writeln!(out, "bounce")?;
    for (name, code) in [
        ("code", bounce.smtp_code.map(|code| code.to_string())),
        ("enhanced", bounce.enhanced.map(|code| code.to_string())),
    ] {
        if let Some(code) = code {
            writeln!(out, "  {name} {code}")?;
        }
    }
    for line in bounce.text.lines() {
        writeln!(out, "  text {line}")?;
    }
    Ok(())
}
