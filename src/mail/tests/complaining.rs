//! Tests of complaints written by another library.

use mail_auth::report::{Feedback, FeedbackType as Theirs};

use crate::mail::report::{FeedbackType, Report, read};

const HEADERS: &str =
    "From: hello@example.test\r\nMessage-ID: <msg_1@example.test>\r\nFeedback-ID: 1:2:3:postrider\r\n";

#[test]
fn parses_a_complaint_written_by_another_library() {
    for (theirs, ours) in [
        (Theirs::Abuse, FeedbackType::Abuse),
        (Theirs::Fraud, FeedbackType::Fraud),
        (Theirs::Virus, FeedbackType::Virus),
        (Theirs::Other, FeedbackType::Other),
        (Theirs::NotSpam, FeedbackType::NotSpam),
        (Theirs::AuthFailure, FeedbackType::AuthFailure),
    ] {
        let message = Feedback::new(theirs)
            .with_user_agent("Provider/1.0")
            .with_reporting_mta("mx.example.org")
            .with_original_mail_from("b+token@bounces.example.com")
            .with_original_rcpt_to("you@example.org")
            .with_source_ip("192.0.2.1".parse().unwrap())
            .with_arrival_date(1_700_000_000)
            .with_incidents(3)
            .with_headers(HEADERS)
            .to_rfc5322("fbl@example.org", "b+token@bounces.example.com", "A complaint")
            .unwrap();
        let Report::Feedback(report) = read(message.as_bytes()) else { panic!("{message}") };
        assert_eq!((report.feedback_type, report.reporter.as_deref()), (ours, Some("Provider/1.0")));
        assert_eq!(report.original_mail_from.as_deref(), Some("b+token@bounces.example.com"));
        assert_eq!(report.original_rcpt_to, ["you@example.org"]);
        assert_eq!(report.returned.get("Message-ID").as_deref(), Some("<msg_1@example.test>"));
        assert_eq!(report.returned.get("Feedback-ID").as_deref(), Some("1:2:3:postrider"));
    }
}
