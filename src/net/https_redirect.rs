//! Answers plain HTTP on a TLS listener. It answers http-01 challenges, redirects browsers to https, and sends API
//! clients an error that asks them to use https.
//!
//! Every TLS listener does this, so a listener on port 80 needs no setting. Nothing else is served, so no key and no
//! password is ever accepted in clear text.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpStream;

use super::acme::challenges::Challenges;
use super::http_body::Body;
use super::http_listener::{Connection, Serve};

/// Path prefix of http-01 challenges (RFC 8555 8.3).
const CHALLENGES: &str = "/.well-known/acme-challenge/";
/// Path prefix of the API, whose clients follow no redirect (contract 1).
const API: &str = "/v1/";
/// First byte of a TLS handshake: the record type (RFC 8446 5.1).
const HANDSHAKE: u8 = 22;

/// The service for plain HTTP.
pub struct HttpsRedirect {
    challenges: Arc<Challenges>,
    /// The https URL, without a trailing slash.
    public_url: String,
}

impl HttpsRedirect {
    /// Creates a service that answers `challenges` and redirects to `public_url`.
    pub fn new(challenges: Arc<Challenges>, public_url: &str) -> Self {
        Self { challenges, public_url: public_url.trim_end_matches('/').to_owned() }
    }

    fn answer(&self, method: &Method, target: &str) -> Response<Body> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let path = target.split('?').next().unwrap_or_default();
        if let Some(token) = path.strip_prefix(CHALLENGES) {
            return match self.challenges.answer(token).filter(|_| reads) {
                Some(answer) => whole(StatusCode::OK, "application/octet-stream", answer),
                None => whole(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "No such resource.\n".to_owned()),
            };
        }
        let https = format!("{}{target}", self.public_url);
        match HeaderValue::from_str(&https) {
            Ok(location) if reads && !path.starts_with(API) => {
                let mut redirect = whole(StatusCode::PERMANENT_REDIRECT, "text/plain; charset=utf-8", String::new());
                redirect.headers_mut().insert(LOCATION, location);
                redirect
            }
            Ok(_) | Err(_) => {
                let message = format!("This port only serves HTTPS; use {}.", self.public_url);
                let body = serde_json::json!({ "message": message, "code": "not_found" });
                whole(StatusCode::NOT_FOUND, "application/json", body.to_string())
            }
        }
    }
}

impl Serve for HttpsRedirect {
    async fn serve(&self, request: Request<Incoming>, _: &Arc<Connection>) -> Response<Body> {
        let target = request.uri().path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str);
        let mut response = self.answer(request.method(), target);
        if *request.method() == Method::HEAD {
            if let Some(length) = response.body().length() {
                response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            *response.body_mut() = Body::empty();
        }
        response
    }
}

fn whole(status: StatusCode, media_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::Whole(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Returns whether a connection starts with a TLS handshake. Waits for its first byte without consuming it.
pub(super) async fn is_tls(stream: &TcpStream) -> bool {
    let mut first = [0];
    // The handshake handles a connection that ends before its first byte.
    !matches!(stream.peek(&mut first).await, Ok(1) if first[0] != HANDSHAKE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::acme::challenges::ChallengeProof;

    fn summary(answer: &Response<Body>) -> (u16, Option<&str>) {
        let location = answer.headers().get(LOCATION).map(|value| value.to_str().unwrap());
        (answer.status().as_u16(), location)
    }

    #[test]
    fn browsers_are_redirected_to_https_and_api_clients_get_an_error() {
        let clear = HttpsRedirect::new(Arc::default(), "https://mail.example.com/");
        let ask = |method: &Method, target: &str| clear.answer(method, target);
        let page = ask(&Method::GET, "/messages?to=a%40b.example");
        assert_eq!(summary(&page), (308, Some("https://mail.example.com/messages?to=a%40b.example")));
        assert_eq!(summary(&ask(&Method::GET, "/")), (308, Some("https://mail.example.com/")));
        assert_eq!(summary(&ask(&Method::GET, "/v1/me")), (404, None));
        assert_eq!(summary(&ask(&Method::POST, "/login")), (404, None), "a password was already sent unencrypted");
        let Body::Whole(body) = ask(&Method::POST, "/v1/messages").into_body() else { panic!("a stream") };
        assert!(std::str::from_utf8(&body).unwrap().contains("https://mail.example.com"), "{body:?}");
    }

    #[test]
    fn only_open_challenge_tokens_are_answered() {
        let challenges = Arc::new(Challenges::default());
        let clear = HttpsRedirect::new(Arc::clone(&challenges), "https://mail.example.com");
        let _given =
            challenges.give(ChallengeProof::Answer { token: "t0ken".to_owned(), answer: "t0ken.print".to_owned() });
        let ask = |token: &str| clear.answer(&Method::GET, &format!("/.well-known/acme-challenge/{token}"));
        assert_eq!(summary(&ask("other")), (404, None));
        assert_eq!(summary(&ask("")), (404, None));
        let Body::Whole(body) = ask("t0ken").into_body() else { panic!("a stream") };
        assert_eq!(body, "t0ken.print");
    }
}
