//! AWS Signature Version 4 in a header. Pure: it computes the `Authorization` header from the request's parts and the
//! time.

use std::fmt::Write as _;

use crate::base::digest::sha256;
use crate::base::secret::Secret;
use crate::base::signature::hmac_sha256;
use crate::base::time::Timestamp;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Placeholder for the hash of an unsigned body. TLS protects such a body.
pub(super) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Credentials with which a request is signed.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// Access key ID.
    pub access_key_id: String,
    /// Secret access key.
    pub secret: Secret,
    /// Session token of temporary credentials.
    pub session_token: Option<Secret>,
    /// Expiry time of temporary credentials, if known.
    pub expires_at: Option<Timestamp>,
}

/// The parts of a request that are signed.
pub(super) struct Signable<'a> {
    pub(super) method: &'a str,
    /// The encoded path.
    pub(super) path: &'a str,
    /// Unencoded names and values of the query.
    pub(super) query: &'a [(&'a str, &'a str)],
    /// Headers with lower-case names, including `host`.
    pub(super) headers: &'a [(&'a str, &'a str)],
    /// The body's SHA-256 in hexadecimal, or [`UNSIGNED`].
    pub(super) payload: &'a str,
}

/// Formats a time for SigV4: `20130524T000000Z`.
pub(super) fn amz_date(at: Timestamp) -> String {
    let text = at.to_string();
    let digits: String = text[..19].chars().filter(|character| !"-:".contains(*character)).collect();
    format!("{digits}Z")
}

/// Returns the value of `Authorization`. `date` is the value of `x-amz-date`.
pub(super) fn authorization(request: &Signable<'_>, credentials: &Credentials, region: &str, date: &str) -> String {
    let mut headers: Vec<_> = request.headers.iter().map(|(name, value)| (*name, value.trim())).collect();
    headers.sort_unstable();
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: String = headers.iter().fold(String::new(), |mut lines, (name, value)| {
        let _ = writeln!(lines, "{name}:{value}");
        lines
    });
    let query = query_string(request.query);
    let canonical = [request.method, request.path, &query, &lines, &names, request.payload].join("\n");
    let day = &date[..8.min(date.len())];
    let scope = format!("{day}/{region}/s3/aws4_request");
    let to_sign = format!("{ALGORITHM}\n{date}\n{scope}\n{}", hex::encode(sha256(canonical.as_bytes())));
    let key = signing_key(&credentials.secret, day, region);
    let signature = hex::encode(hmac_sha256(&key, &[to_sign.as_bytes()]));
    format!("{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}", credentials.access_key_id)
}

fn signing_key(secret: &Secret, day: &str, region: &str) -> [u8; 32] {
    let first = Secret::new([b"AWS4", secret.expose()].concat());
    let parts: [&[u8]; 4] = [day.as_bytes(), region.as_bytes(), b"s3", b"aws4_request"];
    let [day, rest @ ..] = parts;
    rest.iter().fold(hmac_sha256(first.expose(), &[day]), |key, part| hmac_sha256(&key, &[part]))
}

/// Returns the query, encoded and sorted by name.
pub(super) fn query_string(query: &[(&str, &str)]) -> String {
    let mut pairs: Vec<_> = query.iter().map(|(name, value)| (encode(name, false), encode(value, false))).collect();
    pairs.sort();
    let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// Percent-encodes all but unreserved characters (RFC 3986 2.3). Slashes are kept if `keeps_slashes` is true.
pub(super) fn encode(text: &str, keeps_slashes: bool) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            b'/' if keeps_slashes => encoded.push('/'),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const DATE: &str = "20130524T000000Z";

    fn signature(method: &str, path: &str, query: &[(&str, &str)], more: &[(&str, &str)], payload: &str) -> String {
        let credentials = Credentials {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            session_token: None,
            expires_at: None,
        };
        let host = ("host", "examplebucket.s3.amazonaws.com");
        let headers = [&[host, ("x-amz-content-sha256", payload), ("x-amz-date", DATE)], more].concat();
        let request = Signable { method, path, query, headers: &headers, payload };
        authorization(&request, &credentials, "us-east-1", DATE)
    }

    /// The examples of "Signature Calculations for the Authorization Header" in the Amazon S3 API reference.
    #[test]
    fn signatures_match_the_published_examples() {
        let get = signature("GET", "/test.txt", &[], &[("range", "bytes=0-9")], EMPTY);
        assert_eq!(
            get,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let more = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        let payload = hex::encode(sha256(b"Welcome to Amazon S3."));
        let put = signature("PUT", &encode("/test$file.text", true), &[], &more, &payload);
        assert!(put.ends_with("=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"), "{put}");
        let lifecycle = signature("GET", "/", &[("lifecycle", "")], &[], EMPTY);
        assert!(lifecycle.ends_with("=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
        let list = signature("GET", "/", &[("prefix", "J"), ("max-keys", "2")], &[], EMPTY);
        assert!(list.ends_with("=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"), "{list}");
    }

    #[test]
    fn a_time_is_formatted_in_the_iso_basic_format() {
        assert_eq!(amz_date(Timestamp::from_millis(1_369_353_600_999)), DATE);
    }

    #[test]
    fn all_but_unreserved_characters_are_encoded() {
        assert_eq!(encode("a/b c+ü~", true), "a/b%20c%2B%C3%BC~");
        assert_eq!(query_string(&[("prefix", "a/b"), ("list-type", "2")]), "list-type=2&prefix=a%2Fb");
    }
}
