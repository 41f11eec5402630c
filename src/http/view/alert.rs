//! Alerts, and the answers to the operator's commands about them, as JSON.

use serde::Serialize;

use crate::base::id::AlertId;
use crate::engine::alerts::record::{AlertRecord, NoticeRecord, SubjectRecord};
use crate::engine::alerts::testing::TestResult;
use crate::http::openapi::shape::describe;
use crate::store::op::alert::Changed;

/// The alerts that checks opened and resolved.
#[derive(Serialize)]
pub(in crate::http) struct ChangedView {
    opened: Vec<String>,
    resolved: Vec<String>,
}

impl ChangedView {
    pub(in crate::http) fn new(changed: &Changed) -> Self {
        let texts = |ids: &[AlertId]| ids.iter().map(ToString::to_string).collect();
        Self { opened: texts(&changed.opened), resolved: texts(&changed.resolved) }
    }
}

/// Results of the tests.
#[derive(Serialize)]
pub(in crate::http) struct AlertTestView {
    pub(in crate::http) results: Vec<TestResult>,
}

describe! {
    SubjectRecord<'_> as "AlertSubject", "What an alert is about, where its condition can hold for several things."
    {
        kind: "The kind of thing.",
        id: "Its identifier, or its name where it has no other." => |schema| schema.example("direct"),
        name: "Its name." => |schema| schema.example("direct"),
    }
}

describe! {
    NoticeRecord<'_> as "AlertNotice", "What people were told of an alert. It does not say whom."
    {
        at: "When the reported change happened.",
        kind: "The change.",
        channel: "How it is sent.",
        status: "How far it is.",
        relay: "The relay that took the mail." => |schema| schema.example("direct"),
    }
}

describe! {
    AlertRecord<'_> as "Alert", "A condition that needs attention, open until it is found gone. Kept for 90 days."
    {
        id: "Its identifier.",
        condition: "The condition.",
        severity: "How urgent it is; once resolved, how urgent it was last.",
        scope: "Whom it concerns. The only account of a service sees the service's alerts too.",
        subject: "What it is about.",
        summary: "One line." => |schema| schema.example("The relay direct can't be used"),
        seen: "What was seen." => |schema| schema.example("the smarthost refused the login"),
        remedy: "What to do."
            => |schema| schema.example("Correct the login. See https://mail.example.com/docs/alerts#relay_failing"),
        opened_at: "When it opened.",
        resolved_at: "When it ended." => |schema| schema.example(()),
        notices: "What people were told, oldest first; the newest 100.",
    }
}
