//! Tests of `[submission]`: defaults, limits, and the certificate that listening needs.

use super::*;
use crate::net::submission::SubmissionLimits;

const TLS_OFF: &str = "[http.tls]\nmode = \"off\"\n";

#[test]
fn nothing_listens_without_an_address() {
    assert!(!parsed(BARE).submission.is_on());
    let config = parsed(&format!("{BARE}{TLS_OFF}[submission]\nconnections = 7\n"));
    assert!(!config.submission.is_on());
    assert_eq!(
        config.submission,
        Submission {
            limits: SubmissionLimits { connections: 7, ..SubmissionLimits::default() },
            ..Submission::default()
        }
    );
}

#[test]
fn every_key_has_its_place() {
    let text = "[submission]\nlisten = [\"[::]:587\"]\ntls_listen = [\"[::]:465\"]\ncertificate = \"c.pem\"\nkey = \"k.pem\"\n\
                connections = 1\nconnections_per_address = 2\nconnections_per_key = 3\nrecipients = 1000\n\
                login_seconds = 4\nidle_seconds = 5\nfailed_logins = 6\n";
    let expected = Submission {
        listen: vec!["[::]:587".parse().unwrap()],
        tls_listen: vec!["[::]:465".parse().unwrap()],
        certificate: Some(("c.pem".into(), "k.pem".into())),
        limits: SubmissionLimits {
            connections: 1,
            connections_per_address: 2,
            connections_per_key: 3,
            recipients: 1000,
            login: Duration::from_secs(4),
            idle: Duration::from_secs(5),
            failed_logins: 6,
        },
    };
    assert_eq!(parsed(&format!("{BARE}{text}")).submission, expected);
}

#[test]
fn listening_requires_a_certificate() {
    let listening = |more: &str| format!("{BARE}{TLS_OFF}[submission]\ntls_listen = [\"127.0.0.1:0\"]\n{more}");
    let faults_of = |more: &str| faults(&listening(more), &[]).join("\n");
    assert!(faults_of("").contains("submission.certificate: must name a PEM file"), "{}", faults_of(""));
    assert!(faults_of("certificate = \"c.pem\"\n").contains("submission.key: must name"));
    assert!(faults_of("key = \"k.pem\"\n").contains("submission.certificate: must name"));
    assert!(parsed(&listening("certificate = \"c.pem\"\nkey = \"k.pem\"\n")).submission.is_on());
    assert!(
        parsed(&format!("{BARE}[submission]\nlisten = [\"127.0.0.1:0\"]\ncertificate = \"\"\n")).submission.is_on()
    );
}

#[test]
fn a_transaction_takes_at_least_100_recipients() {
    let fault = faults(&format!("{BARE}[submission]\nrecipients = 99\n"), &[]).join("\n");
    assert!(fault.contains("submission.recipients: must be a whole number from 100 to 1000"), "{fault}");
}
