//! Tests of sign-in with OpenID Connect, against a scripted provider.

mod throttling;

use std::sync::Mutex;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use url::Url;

use super::*;
use crate::engine::oidc::{Oidc, OidcSettings};
use crate::engine::ports::{BoxFuture, IdentityProvider, PostError, ProviderAnswer, ProviderRequest};
use crate::net::clock::SystemClock;
use crate::store::op::user::user_by_email;

const ISSUER: &str = "https://login.example.com/tenant";

/// The provider's behaviour.
struct Script {
    pair: EcdsaKeyPair,
    key_id: &'static str,
    /// Claims in addition to the usual ones, or instead of them.
    claims: Value,
    nonce: String,
    userinfo: Value,
    document: Value,
    fails: Option<PostError>,
    /// Received requests in order: paths, and the forms of token requests.
    asked: Vec<String>,
}

#[derive(Clone)]
struct Provider(Arc<Mutex<Script>>);

impl Provider {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Script {
            pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(),
            key_id: "k1",
            claims: json!({}),
            nonce: String::new(),
            userinfo: json!({}),
            document: json!({}),
            fails: None,
            asked: Vec::new(),
        })))
    }

    fn change(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.0.lock().unwrap());
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }
}

fn laid_over(mut under: Value, over: &Value) -> Value {
    under.as_object_mut().unwrap().extend(over.as_object().unwrap().clone());
    under
}

impl Script {
    fn token(&self) -> String {
        let now = SystemClock::new().now().as_secs();
        let claims = json!({
            "iss": ISSUER, "sub": "sub-1", "aud": "postrider", "exp": now + 300, "iat": now, "nonce": self.nonce,
            "email": "new@corp.example", "email_verified": true,
        });
        let header = json!({ "alg": "ES256", "kid": self.key_id });
        let parts = [header, laid_over(claims, &self.claims)].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let text = parts.join(".");
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn answer(&mut self, request: &ProviderRequest) -> Value {
        let at = |path: &str| format!("https://login.example.com{path}");
        let point = self.pair.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|part| URL_SAFE_NO_PAD.encode(part));
        match request.url.path() {
            "/tenant/.well-known/openid-configuration" => laid_over(
                json!({
                    "issuer": ISSUER, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
                    "jwks_uri": at("/keys"), "userinfo_endpoint": at("/userinfo"),
                }),
                &self.document,
            ),
            "/keys" => json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": self.key_id, "x": x, "y": y }] }),
            "/token" => json!({ "id_token": self.token(), "access_token": "at-1", "token_type": "Bearer" }),
            "/userinfo" => self.userinfo.clone(),
            other => panic!("asked for {other}"),
        }
    }
}

impl IdentityProvider for Provider {
    fn ask(&self, request: ProviderRequest) -> BoxFuture<'_, Result<ProviderAnswer, PostError>> {
        let mut script = self.0.lock().unwrap();
        let form = request.form.as_ref().map(|form| format!(" {}", form.expose_text())).unwrap_or_default();
        script.asked.push(format!("{}{form}", request.url.path()));
        let answer = match script.fails {
            Some(error) => Err(error),
            None => {
                let body = script.answer(&request).to_string().into_bytes();
                Ok(ProviderAnswer { status: 200, body, lifetime: None })
            }
        };
        Box::pin(async { answer })
    }
}

/// Starts a service whose users can sign in at a provider. Users of `corp.example` are created automatically.
async fn world() -> (World, Provider) {
    let (world, provider) = (World::new().await, Provider::new());
    let settings = OidcSettings {
        issuer: ISSUER.to_owned(),
        client_id: "postrider".to_owned(),
        client_secret: Some(crate::base::secret::Secret::new("s3cret")),
        allowed_domains: vec!["corp.example".parse().unwrap()],
        account: Some(world.account),
        default_role: Role::Member,
    };
    assert!(world.engine.oidc.set(Oidc::new(settings, Arc::new(provider.clone()))).is_ok());
    (world, provider)
}

/// Starts a sign-in and returns the parameters of the redirect to the provider.
async fn begun(browser: &mut Browser, provider: &Provider, path: &str) -> BTreeMap<String, String> {
    let reply = browser.get(path).await;
    assert_eq!(reply.status, 303, "{}", reply.body);
    let url = Url::parse(reply.location()).unwrap();
    assert_eq!((url.host_str(), url.path()), (Some("login.example.com"), "/authorize"));
    let params: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
    provider.change(|script| script.nonce.clone_from(&params["nonce"]));
    params
}

async fn returned(browser: &mut Browser, params: &BTreeMap<String, String>) -> Reply {
    browser.get(&format!("/login/oidc/callback?code=c-1&state={}", params["state"])).await
}

async fn signed_in(browser: &mut Browser, provider: &Provider) -> Reply {
    let params = begun(browser, provider, "/login/oidc?next=/messages").await;
    returned(browser, &params).await
}

#[tokio::test]
async fn a_user_of_an_allowed_domain_is_created_and_recognised_by_subject() {
    let (world, provider) = world().await;
    let mut browser = world.browser();
    let login = browser.get("/login?next=/messages").await;
    assert!(login.shows("href=\"/login/oidc?next=%2Fmessages\">Sign in with login.example.com</a>"), "{}", login.body);
    let params = begun(&mut browser, &provider, "/login/oidc?next=/messages").await;
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", "postrider"),
        ("redirect_uri", "http://panel.test/login/oidc/callback"),
        ("scope", "openid email"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(params[name], value);
    }
    let reply = returned(&mut browser, &params).await;
    assert_eq!((reply.status, reply.location()), (303, "/messages"), "{}", reply.body);
    assert_eq!(browser.get("/messages").await.status, 200);
    let asked = provider.asked();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(asked[1].starts_with("/token grant_type=authorization_code&code=c-1&redirect_uri="), "{}", asked[1]);
    assert!(asked[1].contains("&code_verifier=") && !asked[1].contains("client_secret"));
    let email = "new@corp.example".parse::<crate::domain::address::Address>().unwrap();
    let found = || user_by_email(&world.engine.store.snapshot().unwrap(), &email.match_key()).unwrap().unwrap().1;
    assert_eq!(found().role, Role::Member);
    let mut owner = world.owner().await;
    assert!(owner.get("/audit").await.shows("new@corp.example</strong></a> as member, at their first sign-in"));
    // The address may change; the subject stays.
    provider.change(|script| script.claims = json!({ "email": "renamed@corp.example", "email_verified": false }));
    let mut other = world.browser();
    assert_eq!(signed_in(&mut other, &provider).await.status, 303);
    assert!(other.get("/settings").await.shows("new@corp.example"));
    // Another person with the same address is not that user.
    provider.change(|script| script.claims = json!({ "sub": "sub-2" }));
    let reply = signed_in(&mut world.browser(), &provider).await;
    assert!(reply.status == 403 && reply.shows("signs in with another identity"), "{}", reply.body);
    assert_eq!(found().last_sign_in_at, Some(world.clock.now()));
}

#[tokio::test]
async fn an_existing_user_keeps_the_role_and_needs_a_verified_address() {
    let (world, provider) = world().await;
    provider.change(|script| script.claims = json!({ "email": "ANN@example.test", "email_verified": false }));
    let reply = signed_in(&mut world.browser(), &provider).await;
    assert!(reply.status == 403 && reply.shows("has not verified your email address"), "{}", reply.body);
    assert!(reply.shows("Request <code>"));
    provider.change(|script| script.claims = json!({ "email": "ANN@example.test" }));
    let mut browser = world.browser();
    assert_eq!(signed_in(&mut browser, &provider).await.status, 303);
    assert!(browser.get("/audit").await.shows("linked an OpenID Connect identity to"));
    assert!(browser.get("/users").await.shows("ann@example.test"), "she is the owner");
    // The provider did not report the authentication time, so this does not count as a password confirmation.
    assert_eq!(browser.post("/keys", &[]).await.location(), "/login/confirm?next=%2Fkeys");
    assert!(browser.get("/login/confirm?next=/keys").await.shows("/login/oidc?next=%2Fkeys&#38;again=1"));
    let params = begun(&mut browser, &provider, "/login/oidc?next=/keys&again=1").await;
    assert_eq!((params["prompt"].as_str(), params["max_age"].as_str()), ("login", "0"));
    let reply = returned(&mut browser, &params).await;
    assert_eq!(reply.status, 502, "the provider did not ask her again");
    let now = SystemClock::new().now().as_secs();
    provider.change(|script| script.claims = json!({ "email": "ANN@example.test", "auth_time": now }));
    let params = begun(&mut browser, &provider, "/login/oidc?next=/keys&again=1").await;
    assert_eq!(returned(&mut browser, &params).await.location(), "/keys");
    assert_eq!(browser.post("/keys", &[("name", "k"), ("scopes", "send")]).await.status, 200);
    // Her password stays.
    world.owner().await;
}

#[tokio::test]
async fn a_form_is_kept_while_its_user_signs_in_again() {
    let (world, provider) = world().await;
    let mut browser = world.browser();
    provider.change(|script| script.claims = json!({ "email": "ANN@example.test" }));
    assert_eq!(signed_in(&mut browser, &provider).await.status, 303);
    let typed = [("name", "Nightly <job>"), ("scopes", "send")];
    let page = browser.post("/keys", &typed).await;
    assert!(page.status == 403 && page.shows("Your entries are kept."), "{}", page.body);
    let link = page.between("href=\"/login/oidc?", "\"").replace("&#38;", "&");
    assert!(!link.contains("Nightly"), "{link}");
    let now = SystemClock::new().now().as_secs();
    provider.change(|script| script.claims = json!({ "email": "ANN@example.test", "auth_time": now }));
    let params = begun(&mut browser, &provider, &format!("/login/oidc?{link}")).await;
    let path = returned(&mut browser, &params).await.location().to_owned();
    // Nobody else gets the form.
    let mut other = world.user_of(Role::Owner).await;
    assert_eq!(other.get(&path).await.location(), "/keys");
    let page = browser.get(&path).await;
    assert!(page.shows("action=\"/keys\"") && page.shows("value=\"Nightly &#60;job&#62;\""), "{}", page.body);
    assert_eq!(browser.post("/keys", &typed).await.status, 200);
    assert_eq!(browser.get(&path).await.location(), "/keys", "a form is continued once");
}

#[tokio::test]
async fn foreign_domains_and_disabled_users_are_refused() {
    let (world, provider) = world().await;
    for email in ["new@other.example", "new@sub.corp.example", "no address"] {
        provider.change(|script| script.claims = json!({ "email": email }));
        let reply = signed_in(&mut world.browser(), &provider).await;
        assert_eq!(reply.status, 403, "{email}");
    }
    provider.change(|script| script.claims = json!({}));
    assert_eq!(signed_in(&mut world.browser(), &provider).await.status, 303);
    let email: crate::domain::address::Address = "new@corp.example".parse().unwrap();
    let user = world.engine.user_by_email(&email).unwrap().unwrap().1;
    let change = crate::engine::users::UserChange { disabled: Some(true), ..Default::default() };
    world.engine.change_user(world.account, user.id, change).await.unwrap();
    let reply = signed_in(&mut world.browser(), &provider).await;
    assert!(reply.status == 403 && reply.shows("allowed to sign in. Ask an owner"), "{}", reply.body);
    // No user is made for a suspended account.
    let reason = "unpaid".parse().unwrap();
    world.engine.suspend_account(world.account.into(), reason).await.unwrap();
    provider.change(|script| script.claims = json!({ "sub": "sub-3", "email": "third@corp.example" }));
    let reply = signed_in(&mut world.browser(), &provider).await;
    assert!(reply.status == 403 && reply.shows("accepts no new users"), "{}", reply.body);
}

#[tokio::test]
async fn an_answer_is_bound_to_the_browser_and_sign_in_that_requested_it() {
    let (world, provider) = world().await;
    let mut browser = world.browser();
    let params = begun(&mut browser, &provider, "/login/oidc").await;
    // Another user's code and state are rejected (login CSRF).
    let reply = returned(&mut world.browser(), &params).await;
    assert!(reply.status == 400 && reply.shows("has not started this sign-in"), "{}", reply.body);
    let second = begun(&mut browser, &provider, "/login/oidc").await;
    assert_eq!(returned(&mut browser, &params).await.status, 400, "a later sign-in took its place");
    assert_eq!(returned(&mut browser, &second).await.status, 400, "and ended with that answer");
    let params = begun(&mut browser, &provider, "/login/oidc").await;
    let denied = browser.get(&format!("/login/oidc/callback?error=access_denied&state={}", params["state"])).await;
    assert!(denied.status == 403 && denied.shows("refused the sign-in"));
    let params = begun(&mut browser, &provider, "/login/oidc").await;
    let path = format!("/login/oidc/callback?code=c&state={}&iss=https://evil.example", params["state"]);
    assert_eq!(browser.get(&path).await.status, 502);
    assert!(provider.asked().iter().all(|asked| asked.ends_with("openid-configuration")), "no code went anywhere");
    assert_eq!(browser.get("/messages").await.status, 303);
}

#[tokio::test]
async fn claims_that_do_not_match_this_sign_in_are_refused() {
    let (world, provider) = world().await;
    for claims in [
        json!({ "iss": "https://login.example.com" }),
        json!({ "aud": "other" }),
        json!({ "nonce": "another" }),
        json!({ "exp": 1_700_000_000 }),
    ] {
        provider.change(|script| script.claims = claims.clone());
        let reply = signed_in(&mut world.browser(), &provider).await;
        assert!(reply.status == 502 && reply.shows("can&#39;t be trusted"), "{claims}: {}", reply.body);
    }
}

#[tokio::test]
async fn the_userinfo_endpoint_is_used_if_the_token_has_no_address() {
    let (world, provider) = world().await;
    provider.change(|script| {
        script.claims = json!({ "email": null, "email_verified": null });
        script.userinfo = json!({ "sub": "sub-9", "email": "new@corp.example", "email_verified": true });
    });
    assert_eq!(signed_in(&mut world.browser(), &provider).await.status, 502, "another's");
    provider.change(|script| script.userinfo["sub"] = "sub-1".into());
    assert_eq!(signed_in(&mut world.browser(), &provider).await.status, 303);
    provider.asked();
    assert_eq!(signed_in(&mut world.browser(), &provider).await.status, 303);
    assert!(!provider.asked().contains(&"/userinfo".to_owned()), "a bound user needs no address");
}

#[tokio::test]
async fn documents_are_cached_and_unknown_keys_refetch_a_few_times_a_minute() {
    let (world, provider) = world().await;
    let fetched = |path: &str| provider.asked().iter().filter(|asked| asked.ends_with(path)).count();
    assert_eq!(signed_in(&mut world.browser(), &provider).await.status, 303);
    assert_eq!(signed_in(&mut world.browser(), &provider).await.status, 303);
    assert_eq!(provider.asked().iter().filter(|asked| !asked.starts_with("/token")).count(), 2);
    let rotate = |key_id| {
        provider.change(|script| {
            script.pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
            script.key_id = key_id;
        });
    };
    for key_id in ["k2", "k3", "k4", "k5", "k6"] {
        rotate(key_id);
        assert_eq!(signed_in(&mut world.browser(), &provider).await.status, 303, "{key_id}");
    }
    assert_eq!(fetched("/keys"), 5);
    rotate("k7");
    assert_eq!(signed_in(&mut world.browser(), &provider).await.status, 502);
    assert_eq!(fetched("/keys"), 0);
    world.advance(Duration::from_secs(60));
    assert_eq!(signed_in(&mut world.browser(), &provider).await.status, 303);
    world.advance(Duration::from_secs(5 * 60));
    provider.asked();
    assert_eq!(signed_in(&mut world.browser(), &provider).await.status, 303);
    assert_eq!(provider.asked().len(), 3, "both documents are fetched again");
}

#[tokio::test]
async fn a_failing_provider_is_an_error_page_and_is_not_retried_at_once() {
    let (world, provider) = world().await;
    provider.change(|script| script.fails = Some(PostError::Timeout));
    let mut browser = world.browser();
    for _ in 0..3 {
        let reply = browser.get("/login/oidc").await;
        assert!(reply.status == 502 && reply.shows("can&#39;t be reached"), "{}", reply.body);
    }
    assert_eq!(provider.asked().len(), 1);
    world.advance(Duration::from_secs(3));
    provider.change(|script| {
        script.fails = None;
        script.document = json!({ "issuer": "https://login.example.com" });
    });
    assert_eq!(browser.get("/login/oidc").await.status, 502, "another issuer");
    let without = World::new().await;
    assert_eq!(without.browser().get("/login/oidc").await.status, 404);
    assert_eq!(without.browser().get("/login/oidc/callback?code=c&state=s").await.status, 404);
    assert!(!without.browser().get("/login").await.shows("Sign in with"));
}

#[tokio::test]
async fn an_invitation_is_accepted_by_a_provider_sign_in_with_its_role() {
    let (world, provider) = world().await;
    for (number, role) in [Role::Owner, Role::Member, Role::Viewer].into_iter().enumerate() {
        let email = format!("guest{number}@other.example");
        let user = world.engine.create_user(world.account, email.parse().unwrap(), role).await.unwrap().0;
        let link = world.engine.setup_link(world.account, user.id).await.unwrap().unwrap().url;
        let path = link.strip_prefix("http://panel.test").unwrap();
        let token = path.strip_prefix("/setup?token=").unwrap();
        let mut browser = world.browser();
        let way = format!("/login/oidc?link={token}");
        let page = browser.get(path).await;
        assert!(page.shows(&format!("href=\"{way}\">Sign in with login.example.com</a>")), "{}", page.body);
        provider.change(|script| script.claims = json!({ "sub": email, "email": email }));
        let params = begun(&mut browser, &provider, &way).await;
        assert_eq!(returned(&mut browser, &params).await.status, 303);
        assert_eq!(world.engine.user(world.account, user.id).unwrap().unwrap().role, role, "the default is member");
        assert_eq!(browser.get("/users").await.status, 200);
        assert_eq!(browser.get(path).await.status, 410, "an accepted invitation is over");
    }
}
