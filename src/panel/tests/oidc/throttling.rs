//! Failed sign-ins through the provider count for the client, and keep no known browser out.

use super::*;

#[tokio::test]
async fn failures_of_strangers_lock_no_known_browser_out() {
    let (world, provider) = world().await;
    let (mut known, mut stranger) = (world.browser(), world.browser());
    assert_eq!(signed_in(&mut known, &provider).await.status, 303);
    assert_eq!(known.post("/logout", &[]).await.status, 303);
    for _ in 0..60 {
        let params = begun(&mut stranger, &provider, "/login/oidc").await;
        let path = format!("/login/oidc/callback?error=access_denied&state={}", params["state"]);
        assert_eq!(stranger.get(&path).await.status, 403, "an answer without a code is no attempt");
    }
    provider.change(|script| script.claims = json!({ "nonce": "another" }));
    for _ in 0..50 {
        assert_eq!(signed_in(&mut stranger, &provider).await.status, 502);
    }
    provider.change(|script| script.claims = json!({}));
    assert_eq!(signed_in(&mut stranger, &provider).await.status, 429);
    assert_eq!(signed_in(&mut known, &provider).await.status, 303);
    known.post("/logout", &[]).await;
    provider.change(|script| script.claims = json!({ "sub": "sub-2", "email": "second@corp.example" }));
    assert_eq!(signed_in(&mut known, &provider).await.status, 429, "another user has not used this browser");
}
