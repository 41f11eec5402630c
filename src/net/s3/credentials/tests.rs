//! The order of the sources, and when they are read again.

use super::*;
use crate::net::s3::testing::Server;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn store(sources: CredentialSources) -> CredentialStore {
    CredentialStore::new(sources, RootCertStore::empty()).unwrap()
}

fn answer(id: &str, minutes: u64) -> String {
    let end = NOW + Duration::from_secs(minutes * 60);
    let end = end.to_string().replace("+00:00", "Z");
    format!("{{\"AccessKeyId\": \"{id}\", \"SecretAccessKey\": \"s\", \"Token\": \"t\", \"Expiration\": \"{end}\"}}")
}

#[tokio::test]
async fn only_the_first_configured_source_is_used() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, format!("[default]\naws_access_key_id={name}\naws_secret_access_key=s\n")).unwrap();
        path
    };
    let endpoint = format!("http://{}", server.address);
    let mut sources = CredentialSources {
        file: Some(path("FILE")),
        environment: Some(("ENVIRONMENT".to_owned(), Secret::new("s"), None)),
        systemd: Some(path("SYSTEMD")),
        container: Some(format!("{endpoint}/role")),
        container_token: Some(Secret::new("Basic abc")),
        container_token_file: None,
        instance: Some(endpoint),
    };
    let id = async |sources: &CredentialSources| {
        store(sources.clone()).get(NOW).await.map(|credentials| credentials.access_key_id.clone())
    };
    assert_eq!(id(&sources).await.unwrap(), "FILE");
    sources.file = None;
    assert_eq!(id(&sources).await.unwrap(), "ENVIRONMENT");
    sources.environment = None;
    assert_eq!(id(&sources).await.unwrap(), "SYSTEMD");
    sources.systemd = None;
    server.answer(200, "", &answer("CONTAINER", 60));
    assert_eq!(id(&sources).await.unwrap(), "CONTAINER");
    assert_eq!(server.seen()[0].header("authorization"), Some("Basic abc"));
    sources.container = None;
    server.answer(200, "", "TOKEN");
    server.answer(200, "", "mail-role\n");
    server.answer(200, "", &answer("INSTANCE", 60));
    assert_eq!(id(&sources).await.unwrap(), "INSTANCE");
    let lines: Vec<_> = server.seen().into_iter().skip(1).map(|seen| seen.line).collect();
    assert_eq!(
        lines,
        [
            "PUT /latest/api/token HTTP/1.1",
            "GET /latest/meta-data/iam/security-credentials/ HTTP/1.1",
            "GET /latest/meta-data/iam/security-credentials/mail-role HTTP/1.1"
        ]
    );
    assert_eq!(server.seen()[3].header("x-aws-ec2-metadata-token"), Some("TOKEN"));
    sources.instance = None;
    assert!(id(&sources).await.unwrap_err().to_string().contains("no credentials are configured"));
}

#[tokio::test]
async fn temporary_credentials_are_renewed_before_they_expire() {
    let server = Server::start().await;
    let container = Some(format!("http://{}/role", server.address));
    let store = store(CredentialSources { container, ..CredentialSources::default() });
    let id = async |minutes: u64| {
        let got = store.get(NOW + Duration::from_secs(minutes * 60)).await;
        got.map(|credentials| credentials.access_key_id.clone())
    };
    server.answer(200, "", &answer("FIRST", 60));
    assert_eq!(id(0).await.unwrap(), "FIRST");
    assert_eq!(id(54).await.unwrap(), "FIRST");
    server.answer(500, "", "");
    assert_eq!(id(56).await.unwrap(), "FIRST", "credentials that are still valid are better than none");
    server.answer(200, "", &answer("SECOND", 120));
    assert_eq!(id(57).await.unwrap(), "SECOND");
    store.refuse();
    server.answer(200, "", "{}");
    assert!(id(58).await.unwrap_err().to_string().contains("contains no credentials"));
}

#[tokio::test]
async fn a_token_is_sent_unencrypted_only_to_container_endpoints() {
    for endpoint in ["http://192.0.2.1/role", "http://metadata.example/role", "not a url"] {
        let sources = CredentialSources { container: Some(endpoint.to_owned()), ..CredentialSources::default() };
        let error = store(sources).get(NOW).await.unwrap_err().to_string();
        assert!(error.contains(endpoint), "{error}");
    }
}
