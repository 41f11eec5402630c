//! Alerts, and the answers to the operator's commands about them, as JSON.

use serde::Serialize;

use crate::base::id::AlertId;
use crate::engine::alerts::immediate::NoticeResult;
use crate::engine::alerts::record::{AlertRecord, NoticeRecord, SubjectRecord};
use crate::http::openapi::shape::describe;
use crate::store::op::alert::ChangedAlerts;

/// The alerts that checks opened and resolved.
#[derive(Serialize)]
pub(in crate::http) struct ChangedView {
    opened: Vec<String>,
    resolved: Vec<String>,
}

impl ChangedView {
    pub(in crate::http) fn new(changed: &ChangedAlerts) -> Self {
        let texts = |ids: &[AlertId]| ids.iter().map(ToString::to_string).collect();
        Self { opened: texts(&changed.opened), resolved: texts(&changed.resolved) }
    }
}

/// Results of the tests.
#[derive(Serialize)]
pub(in crate::http) struct AlertTestView {
    pub(in crate::http) results: Vec<NoticeResult>,
    pub(in crate::http) warnings: Vec<String>,
}

describe! {
    SubjectRecord<'_> as "AlertSubject", "The subject of an alert, for conditions that can affect several objects."
    {
        kind: "Kind of the subject.",
        id: "The subject's identifier, or its name if it has no identifier." => |schema| schema.example("direct"),
        name: "The subject's name." => |schema| schema.example("direct"),
    }
}

describe! {
    NoticeRecord<'_> as "AlertNotice", "A notice about an alert, without its recipient."
    {
        at: "Time of the reported change.",
        kind: "The change.",
        channel: "The notice's channel.",
        status: "The notice's status.",
        relay: "The relay that accepted the mail." => |schema| schema.example("direct"),
    }
}

describe! {
    AlertRecord<'_> as "Alert", "A condition that needs attention. It stays open until a check finds it resolved, and \
                                 is kept for 90 days."
    {
        id: "The alert's identifier.",
        condition: "The condition.",
        severity: "The severity; once resolved, the last one.",
        scope: "The alert's scope. If the service has only one account, that account sees the service's alerts too.",
        subject: "The subject of the alert.",
        summary: "One line." => |schema| schema.example("The relay direct can't be used"),
        seen: "The observation." => |schema| schema.example("the smarthost refused the login"),
        remedy: "Advice."
            => |schema| schema.example("Correct the login. See https://mail.example.com/docs/alerts#relay_failing"),
        opened_at: "Opening time.",
        resolved_at: "End time." => |schema| schema.example(()),
        notices: "The newest 100 notices, oldest first.",
    }
}
