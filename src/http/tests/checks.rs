//! Tests of the check order, and of the parts of every answer.

use super::*;

#[tokio::test]
async fn a_valid_request_is_answered_with_the_common_headers() {
    let (_server, mut client) = connected().await;
    let reply = client.post(r#"{"to":"a@x.example"}"#).await;
    assert_eq!((reply.status, reply.body.as_str()), (202, r#"{"to":"a@x.example"}"#));
    assert_eq!(reply.header("location"), "/v1/messages/1");
    assert_eq!(reply.header("content-type"), "application/json");
    assert_eq!(reply.header("cache-control"), "no-store");
    assert_eq!(reply.header("ratelimit-policy"), "\"key\";q=600;w=60");
    assert_eq!(reply.header("ratelimit"), "\"key\";r=599;t=1");
    assert_eq!(reply.header("x-request-id").len(), 26);
    assert!(!reply.header("date").is_empty());

    let next = client.ask("GET /v1/messages/a%40b", "all", "X-Request-Id: mine\r\n", "").await;
    assert_eq!((next.status, next.body.as_str()), (200, "\"a@b for all\""));
    assert_ne!(next.header("x-request-id"), "mine");
    assert_ne!(next.header("x-request-id"), reply.header("x-request-id"));
}

#[tokio::test]
async fn without_a_valid_key_every_protected_path_is_401() {
    let (_server, mut client) = connected().await;
    for (path, key) in [("/v1/messages/1", ""), ("/v1/nothing", ""), ("/v1/messages/1", "bad"), ("/queue", "")] {
        let reply = client.get(path, key).await;
        assert_eq!((reply.status, reply.code().as_str()), (401, "unauthenticated"), "{path}");
        assert_eq!(reply.header("www-authenticate"), "Bearer");
        assert_eq!(reply.header("ratelimit"), "");
    }
    for header in ["Bearer", "Bearer ", "Basic all", "Bearer a b", "all", "Bearer all\r\nAuthorization: Bearer all"] {
        let reply = client.ask("GET /v1/panic", "", &format!("Authorization: {header}\r\n"), "").await;
        assert_eq!(reply.status, 401, "{header}");
    }
    assert_eq!(client.ask("GET /v1/messages/1", "", "Authorization: bearer all\r\n", "").await.status, 200);
}

#[tokio::test]
async fn checks_run_in_the_contracts_order() {
    let (_server, mut client) = connected().await;
    let text = "Content-Type: text/plain\r\n";
    // Each request fails every later check too.
    for (line, key, status, code) in [
        ("POST /v1/messages", "bad", 401, "unauthenticated"),
        ("POST /v1/nothing", "reader", 404, "not_found"),
        ("PUT /v1/messages", "reader", 405, "method_not_allowed"),
        ("POST /v1/messages", "reader", 403, "scope_forbidden"),
        ("POST /v1/messages", "spent", 429, "rate_limited"),
        ("POST /v1/messages", "all", 415, "unsupported_media_type"),
    ] {
        let reply = client.ask(line, key, text, "no json").await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{line} {key}");
        assert_eq!(reply.header("ratelimit").is_empty(), status == 401);
    }
    let reply = client.ask("POST /v1/messages", "spent", "", "{}").await;
    assert_eq!((reply.header("retry-after"), reply.header("ratelimit")), ("7", "\"key\";r=0;t=60"));
    let reply = client.ask("POST /v1/messages", "all", "Content-Encoding: gzip\r\n", "{}").await;
    assert_eq!(reply.status, 415);
    let reply = client.post("{\"a\":1,\"a\":2}").await;
    assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_json"));
    assert!(reply.body.contains("\"errors\":{}"));
    let reply = client.get("/v1/messages/1?limt=1", "all").await;
    assert_eq!((reply.status, reply.code().as_str()), (422, "validation_failed"));
    assert!(reply.body.contains(r#""limt":["unknown parameter"]"#) && reply.body.contains("Did you mean limit?"));
}

#[tokio::test]
async fn another_method_is_answered_with_allow_and_head_follows_get() {
    let (_server, mut client) = connected().await;
    let reply = client.ask("DELETE /v1/messages/1", "all", "", "").await;
    assert_eq!((reply.status, reply.header("allow")), (405, "GET, HEAD"));
    let reply = client.ask("POST /healthz", "", "", "").await;
    assert_eq!((reply.status, reply.header("allow")), (405, "GET, HEAD"));

    let get = client.get("/v1/messages/1", "all").await;
    let head = client.ask("HEAD /v1/messages/1", "all", "", "").await;
    assert_eq!((head.status, head.header("content-length")), (200, get.header("content-length")));
    assert_eq!(head.header("content-type"), get.header("content-type"));
    // No part of the body is parsed as the next request.
    assert_eq!(client.get("/healthz", "").await.body, "ok\n");
    let reply = client.ask("HEAD /v1/messages", "all", "", "").await;
    assert_eq!((reply.status, reply.header("allow")), (405, "POST"));
}

#[tokio::test]
async fn a_similar_path_is_unknown() {
    let (_server, mut client) = connected().await;
    for path in
        ["/v1/messages/", "/v1/messages/1/", "//v1/messages/1", "/V1/messages/1", "/v1/messages/%ff", "/healthz/"]
    {
        assert_eq!(client.get(path, "all").await.status, 404, "{path}");
    }
    assert_eq!(client.get("/dev/mail", "").await.status, 200);
    assert_eq!(client.get("/queue", "all").await.status, 404);
}

#[tokio::test]
async fn a_panic_is_a_500_without_detail_and_the_service_survives() {
    let (_server, mut client) = connected().await;
    let reply = client.get("/v1/panic", "all").await;
    assert_eq!((reply.status, reply.code().as_str()), (500, "internal"));
    assert!(reply.body.contains(reply.header("x-request-id")) && !reply.body.contains("secret"));
    assert_eq!(reply.header("ratelimit"), "\"key\";r=599;t=1");
    assert_eq!(client.post("{}").await.status, 202);
}

#[test]
fn a_contradictory_table_is_rejected() {
    let row = || Route::<Toy>::open(Method::GET, "/healthz", "health", |state, call| Box::pin(health(state, call)));
    assert!(Router::new([row(), row()]).is_err());
    assert_eq!(router().routes().count(), 10);
}
