//! Requests as a service receives them, and the results of its answers.

use std::net::IpAddr;

use super::testing::Server;
use super::*;
use crate::base::secret::Secret;
use crate::engine::ports::{BucketSettings as _, LookupFailure, Requester, Versioning};

struct NoNames;

impl HostAddresses for NoNames {
    fn addresses<'a>(&'a self, host: &'a str, _: Requester) -> BoxFuture<'a, Result<Vec<IpAddr>, LookupFailure>> {
        let found = match host {
            "near.example" => Ok(vec!["127.0.0.1".parse().unwrap()]),
            "far.example" => Ok(vec!["192.0.2.1".parse().unwrap()]),
            _ => Err(LookupFailure::Absent),
        };
        Box::pin(std::future::ready(found))
    }
}

fn settings(endpoint: &str) -> S3Settings {
    let access_key = ("AKIA1".to_owned(), Secret::new("secret"), Some(Secret::new("token")));
    S3Settings {
        endpoint: endpoint.parse().unwrap(),
        region: "eu-1".to_owned(),
        path_style: true,
        bucket: "bucket".to_owned(),
        prefix: "a/b/".to_owned(),
        timeout: Duration::from_secs(10),
        allow: Vec::new(),
        roots: RootCertStore::empty(),
        credentials: CredentialSources { environment: Some(access_key), ..CredentialSources::default() },
    }
}

fn bucket_of(settings: S3Settings) -> S3 {
    S3::new(settings, Arc::new(NoNames), || Timestamp::from_millis(1_700_000_000_000)).unwrap()
}

fn bucket(server: &Server) -> S3 {
    bucket_of(settings(&format!("http://{}", server.address)))
}

fn error(code: &str) -> String {
    format!("<Error><Code>{code}</Code><Message>words</Message></Error>")
}

#[tokio::test]
async fn a_create_is_conditional_and_signed() {
    let server = Server::start().await;
    server.answer(200, "date: Tue, 14 Nov 2023 22:13:20 GMT\r\n", "");
    let bucket = bucket(&server);
    assert_eq!(bucket.date(), None);
    assert_eq!(bucket.create("log/1", Bytes::from_static(b"body")).await, Ok(Creation::Created));
    let seen = &server.seen()[0];
    assert_eq!((seen.line.as_str(), seen.body.as_slice()), ("PUT /bucket/a/b/log/1 HTTP/1.1", &b"body"[..]));
    assert_eq!(seen.header("if-none-match"), Some("*"));
    assert_eq!(seen.header("x-amz-date"), Some("20231114T221320Z"));
    assert_eq!(seen.header("x-amz-security-token"), Some("token"));
    assert_eq!(seen.header("x-amz-content-sha256"), Some(hex::encode(sha256(b"body")).as_str()), "http is signed");
    let authorization = seen.header("authorization").unwrap();
    assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIA1/20231114/eu-1/s3/aws4_request,"));
    assert!(
        authorization.contains("SignedHeaders=host;if-none-match;x-amz-content-sha256;x-amz-date;x-amz-security-token")
    );
    assert_eq!(seen.header("host"), Some(server.address.to_string().as_str()));
    assert!(bucket.date().unwrap() >= Timestamp::from_millis(1_700_000_000_000));
}

#[tokio::test]
async fn the_answer_to_a_create_decides_its_outcome() {
    let server = Server::start().await;
    let bucket = bucket(&server);
    let create = || bucket.create("log/1", Bytes::from_static(b"body"));
    server.answer(412, "", &error("PreconditionFailed"));
    assert_eq!(create().await, Ok(Creation::Exists));
    for (status, code, kind) in [
        (409, "ConditionalRequestConflict", BucketErrorKind::Conflict),
        (403, "AccessDenied", BucketErrorKind::Forbidden),
        (503, "SlowDown", BucketErrorKind::Throttled),
        (500, "InternalError", BucketErrorKind::Unknown),
        (501, "NotImplemented", BucketErrorKind::Unsupported),
        (404, "NoSuchBucket", BucketErrorKind::Refused),
        (307, "TemporaryRedirect", BucketErrorKind::Refused),
    ] {
        server.answer(status, "x-amz-request-id: R1\r\n", &error(code));
        let found = create().await.unwrap_err();
        assert_eq!((found.kind, found.operation), (kind, BucketOperation::Create), "{status} {code}");
        assert_eq!(
            found.to_string(),
            format!("create of log/1: the bucket answered {status} {code}: words (request R1)")
        );
    }
    // An overwrite has no condition, so 412 is not a valid answer to it.
    server.answer(412, "", "");
    let overwritten = bucket.overwrite("keys/1", Bytes::new()).await;
    assert_eq!(overwritten.unwrap_err().kind, BucketErrorKind::Refused);
    let seen = server.seen();
    let last = seen.last().unwrap();
    assert_eq!((last.header("if-none-match"), last.header("content-length")), (None, Some("0")));
}

#[tokio::test]
async fn a_lost_answer_is_in_doubt_and_a_refused_connection_is_not() {
    let server = Server::start().await;
    let bucket = bucket(&server);
    let lost = bucket.create("log/1", Bytes::new()).await.unwrap_err();
    assert_eq!(lost.kind, BucketErrorKind::Unknown, "{lost}");
    assert_eq!(server.seen().len(), 1, "nothing is sent again");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = bucket_of(settings(&format!("http://{closed}"))).create("log/1", Bytes::new()).await.unwrap_err();
    assert_eq!(refused.kind, BucketErrorKind::Unreachable, "{refused}");
    let unknown = bucket_of(settings("http://absent.example")).read("log/1").await.unwrap_err();
    assert_eq!(unknown.kind, BucketErrorKind::Unreachable, "{unknown}");
    assert!(unknown.message.contains("no such record"), "{unknown}");
}

#[tokio::test]
async fn a_service_that_does_not_answer_in_time_leaves_the_call_in_doubt() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let settings = S3Settings { timeout: Duration::from_millis(50), ..settings(&format!("http://{address}")) };
    let found = bucket_of(settings).create("log/1", Bytes::new()).await.unwrap_err();
    assert_eq!(found.kind, BucketErrorKind::Unknown, "{found}");
}

#[tokio::test]
async fn plain_http_goes_only_to_this_machine_and_to_allowed_networks() {
    let server = Server::start().await;
    server.answer(404, "", "");
    let bucket = bucket_of(settings(&format!("http://near.example:{}", server.address.port())));
    assert_eq!(bucket.read("log/1").await, Ok(None));
    let far = bucket_of(settings("http://far.example")).read("log/1").await.unwrap_err();
    assert!(far.kind == BucketErrorKind::Unreachable && far.message.contains("plain http is only allowed"), "{far}");
    let may = |endpoint: &str, allow: &[Network]| may_speak_http(&endpoint.parse().unwrap(), allow).is_ok();
    assert!(may("http://127.0.0.1:9000", &[]) && may("http://[::1]", &[]) && may("https://192.0.2.1", &[]));
    assert!(!may("http://192.0.2.1", &[]) && may("http://192.0.2.1", &["192.0.2.0/24".parse().unwrap()]));
}

#[tokio::test]
async fn an_object_is_read_whole_or_in_part() {
    let server = Server::start().await;
    let bucket = bucket(&server);
    server.answer(200, "", "bytes");
    assert_eq!(bucket.read("log/1").await.unwrap().unwrap(), "bytes");
    server.answer(206, "", "tes");
    assert_eq!(bucket.read_range("log/1", 2, 9).await.unwrap().unwrap(), "tes");
    assert_eq!(server.seen()[1].header("range"), Some("bytes=2-10"));
    server.answer(416, "", &error("InvalidRange"));
    assert_eq!(bucket.read_range("log/1", 9, 9).await.unwrap().unwrap(), "");
    server.answer(404, "", &error("NoSuchKey"));
    assert_eq!(bucket.read("log/1").await, Ok(None));
    server.answer(404, "", &error("NoSuchBucket"));
    assert_eq!(bucket.read("log/1").await.unwrap_err().kind, BucketErrorKind::Refused);
    server.answer_raw(b"HTTP/1.1 200 x\r\ncontent-length: 99999999999\r\n\r\n");
    let found = bucket.read("log/1").await.unwrap_err();
    assert_eq!(found.kind, BucketErrorKind::Refused, "no memory is allocated for a declared length: {found}");
}

#[tokio::test]
async fn a_removed_object_may_be_removed_again() {
    let server = Server::start().await;
    let bucket = bucket(&server);
    server.answer(204, "", "");
    server.answer(404, "", &error("NoSuchKey"));
    server.answer(404, "", &error("NoSuchBucket"));
    assert_eq!(bucket.remove("log/1").await, Ok(()));
    assert_eq!(bucket.remove("log/1").await, Ok(()));
    assert!(bucket.remove("log/1").await.is_err());
    assert_eq!(server.seen()[0].line, "DELETE /bucket/a/b/log/1 HTTP/1.1");
}

fn list(is_truncated: bool, keys: &[&str]) -> String {
    let contents: String =
        keys.iter().map(|key| format!("<Contents><Key>{key}</Key><Size>7</Size></Contents>")).collect();
    format!("<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>{contents}</ListBucketResult>")
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let server = Server::start().await;
    let bucket = bucket(&server);
    server.answer(200, "", &list(true, &["a/b/log/1", "a/b/log/2&amp;x"]));
    let page = bucket.list("log/", "").await.unwrap();
    let names: Vec<_> = page.objects.iter().map(|object| (object.name.as_str(), object.size)).collect();
    assert_eq!((names.as_slice(), page.is_last), (&[("log/1", 7), ("log/2&x", 7)][..], false));
    server.answer(200, "", &list(false, &[]));
    assert_eq!(bucket.list("log/", "log/2&x").await, Ok(ObjectPage { objects: Vec::new(), is_last: true }));
    let seen = server.seen();
    assert_eq!(seen[0].line, "GET /bucket/?list-type=2&max-keys=1000&prefix=a%2Fb%2Flog%2F HTTP/1.1");
    assert!(seen[1].line.contains("&start-after=a%2Fb%2Flog%2F2%26x "), "{}", seen[1].line);
}

#[tokio::test]
async fn rejects_endless_lists_and_lists_of_other_prefixes() {
    let server = Server::start().await;
    let bucket = bucket(&server);
    for (document, why) in [
        (list(true, &["a/b/log/1"]), "ignores start-after"),
        (list(true, &["a/b/log/3", "a/b/log/2"]), "ignores start-after"),
        (list(true, &[]), "ignores start-after"),
        (list(false, &["other/log/3"]), "do not begin with the prefix"),
        (list(false, &["a/b/keys/3"]), "do not begin with the prefix"),
        ("<html>".to_owned(), "not a list"),
    ] {
        server.answer(200, "", &document);
        let found = bucket.list("log/", "log/2").await.unwrap_err();
        assert!(found.kind == BucketErrorKind::Refused && found.message.contains(why), "{document}: {found}");
    }
}

#[tokio::test]
async fn the_buckets_settings_are_read() {
    let server = Server::start().await;
    let bucket = bucket(&server);
    for (status, expected) in
        [("", Versioning::Off), ("Enabled", Versioning::Enabled), ("Suspended", Versioning::Suspended)]
    {
        let element = if status.is_empty() { String::new() } else { format!("<Status>{status}</Status>") };
        server.answer(200, "", &format!("<VersioningConfiguration>{element}</VersioningConfiguration>"));
        assert_eq!(bucket.versioning().await, Ok(expected));
    }
    server.answer(404, "", &error("ObjectLockConfigurationNotFoundError"));
    assert_eq!(bucket.has_object_lock().await, Ok(false));
    server.answer(200, "", "<C><ObjectLockEnabled>Enabled</ObjectLockEnabled></C>");
    assert_eq!(bucket.has_object_lock().await, Ok(true));
    server.answer(404, "", &error("NoSuchLifecycleConfiguration"));
    assert_eq!(bucket.expiries().await, Ok(Vec::new()));
    server.answer(501, "", &error("NotImplemented"));
    assert_eq!(bucket.versioning().await.unwrap_err().kind, BucketErrorKind::Unsupported);
    let lines: Vec<_> = server.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines[0], "GET /bucket/?versioning= HTTP/1.1");
}

#[tokio::test]
async fn only_rules_that_remove_current_objects_below_the_prefix_count() {
    let server = Server::start().await;
    let bucket = bucket(&server);
    let rule = |id: &str, status: &str, prefix: &str, action: &str| {
        format!(
            "<Rule><ID>{id}</ID><Filter><And><Prefix>{prefix}</Prefix></And></Filter><Status>{status}</Status>\
             <{action}><Days>1</Days></{action}></Rule>"
        )
    };
    let rules = [
        rule("all", "Enabled", "", "Expiration"),
        rule("above", "Enabled", "a/", "Expiration"),
        rule("below", "Enabled", "a/b/log/", "Expiration"),
        rule("beside", "Enabled", "a/c/", "Expiration"),
        rule("off", "Disabled", "", "Expiration"),
        rule("versions", "Enabled", "", "NoncurrentVersionExpiration"),
        rule("uploads", "Enabled", "", "AbortIncompleteMultipartUpload"),
    ];
    server.answer(200, "", &format!("<LifecycleConfiguration>{}</LifecycleConfiguration>", rules.concat()));
    let found: Vec<_> = bucket.expiries().await.unwrap().into_iter().map(|expiry| expiry.id).collect();
    assert_eq!(found, ["all", "above", "below"]);
}

#[tokio::test]
async fn the_bucket_name_may_be_part_of_the_host_name() {
    let settings = S3Settings { path_style: false, ..settings("https://s3.example.com:8443") };
    let bucket = bucket_of(settings);
    assert_eq!(bucket.place(Some("log/1")), ("bucket.s3.example.com:8443".to_owned(), "/a/b/log/1".to_owned()));
    assert_eq!(bucket.place(None).1, "/");
    let body = Bytes::from_static(b"body");
    let (operation, method, object) = (BucketOperation::Create, Method::PUT, Some("log/1"));
    let request = bucket
        .signed(UnsignedRequest { operation, method, object, name: "log/1", query: &[], headers: &[], body })
        .await
        .unwrap();
    assert_eq!(request.headers()["x-amz-content-sha256"], UNSIGNED, "TLS protects the body");
}

#[tokio::test]
async fn credentials_are_read_again_after_a_refusal() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("credentials");
    let write = |id: &str| {
        std::fs::write(&file, format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = s\n")).unwrap();
    };
    let sources = CredentialSources { file: Some(file.clone()), ..CredentialSources::default() };
    let settings = S3Settings { credentials: sources, ..settings(&format!("http://{}", server.address)) };
    let bucket = bucket_of(settings);
    let missing = bucket.read("log/1").await.unwrap_err();
    assert!(missing.kind == BucketErrorKind::Forbidden && missing.message.contains("cannot read credentials"));
    write("FIRST");
    server.answer(403, "", &error("InvalidAccessKeyId"));
    server.answer(404, "", "");
    assert_eq!(bucket.read("log/1").await.unwrap_err().kind, BucketErrorKind::Forbidden);
    write("OTHER");
    assert_eq!(bucket.read("log/1").await, Ok(None));
    let used = |at: usize| server.seen()[at].header("authorization").unwrap().contains(["FIRST", "OTHER"][at]);
    assert!(used(0) && used(1));
}
