//! Tests of `POST /v1/explain`.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_test_message_is_explained_with_a_read_key() {
    let mut world = World::new().await;
    let headers = "Authentication-Results: mx.example; dkim=pass header.d=shop.example header.s=pr1;\r\n \
                   spf=fail smtp.mailfrom=a@elsewhere.example; dmarc=pass\r\nFrom: a@shop.example\r\n";
    let reader = world.new_key(world.account, None, Scopes::of(&[Scope::Read])).await;
    let reply = world.ask_as(&reader, "POST /v1/explain", "", &json!({ "headers": headers })).await;
    let body = reply.json();
    assert_eq!(
        (reply.status, &body["authserv_id"], &body["from_domain"]),
        (200, &"mx.example".into(), &"shop.example".into())
    );
    assert_eq!(body["spf"], json!({ "result": "fail", "domain": "elsewhere.example", "aligned": false }));
    let dkim = json!([{ "result": "pass", "domain": "shop.example", "selector": "pr1", "aligned": true }]);
    assert_eq!((&body["dkim"], &body["dmarc"]), (&dkim, &json!({ "result": "pass" })));
    let levels: Vec<_> = body["findings"].as_array().unwrap().iter().map(|finding| &finding["level"]).collect();
    assert_eq!(levels, ["fail", "ok", "ok"]);
    assert!(body["findings"][0]["remedy"].is_string() && body["findings"][1]["remedy"].is_null());
}

#[tokio::test]
async fn missing_or_long_headers_are_rejected() {
    let mut world = World::new().await;
    for body in
        [json!({}), json!({ "headers": 1 }), json!({ "headers": "x".repeat(64 * 1024 + 1) }), json!({ "mail": "" })]
    {
        world.post("/v1/explain", body).await.fails_with(422, "validation_failed");
    }
    let empty = world.post("/v1/explain", json!({ "headers": "" })).await.json();
    assert_eq!(
        (&empty["authserv_id"], &empty["spf"], &empty["findings"][0]["level"]),
        (&Value::Null, &Value::Null, &"fail".into())
    );
}
