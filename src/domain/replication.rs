//! Replication settings shared by rows, status and configuration, and the URL of a bucket.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Condition for answering an accepted message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaMode {
    /// The message is on disk.
    #[default]
    Async,
    /// The message is in the bucket too.
    Sync,
}

/// Behaviour of the active machine while the bucket can't be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenUnreachable {
    /// The machine continues.
    #[default]
    Serve,
    /// The machine accepts and sends no mail until the bucket answers.
    Stop,
}

/// Promotion of a standby: by an operator or automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Failover {
    /// By an operator.
    #[default]
    Manual,
    /// Automatically, when the log has no new slots.
    Automatic,
}

impl ReplicaMode {
    /// Returns the word in configuration and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Async => "async",
            Self::Sync => "sync",
        }
    }
}

impl WhenUnreachable {
    /// Returns the word in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Stop => "stop",
        }
    }
}

impl Failover {
    /// Returns the word in configuration and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Automatic => "automatic",
        }
    }
}

/// URL of a replica: `s3://bucket/prefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketUrl {
    bucket: String,
    prefix: String,
}

/// Error: the text is not the URL of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBucketUrl {
    /// The text does not begin with `s3://`.
    #[error("must begin with s3://, as in s3://bucket/prefix")]
    Scheme,
    /// The bucket's name is malformed.
    #[error("`{0}` is not the name of a bucket: 3 to 63 letters, digits, dots, hyphens and underscores")]
    Bucket(String),
    /// The prefix is malformed.
    #[error(
        "the prefix must have at most 512 letters, digits and -_.~!=+@ between single slashes, and no part . or .."
    )]
    Prefix,
}

const SCHEME: &str = "s3://";
const PREFIX_BYTES_MAX: usize = 512;

impl BucketUrl {
    /// Returns the bucket's name.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns the prefix of all objects' names: empty, or ending with a slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl FromStr for BucketUrl {
    type Err = InvalidBucketUrl;

    fn from_str(text: &str) -> Result<Self, InvalidBucketUrl> {
        let rest = text.strip_prefix(SCHEME).ok_or(InvalidBucketUrl::Scheme)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_name) || bucket.contains("..") {
            return Err(InvalidBucketUrl::Bucket(bucket.to_owned()));
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_part = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~!=+@".contains(&byte);
            !["", ".", ".."].contains(&part) && part.bytes().all(is_plain)
        };
        if prefix.is_empty() {
            return Ok(Self { bucket: bucket.to_owned(), prefix: String::new() });
        }
        if prefix.len() > PREFIX_BYTES_MAX || !prefix.split('/').all(is_part) {
            return Err(InvalidBucketUrl::Prefix);
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: format!("{prefix}/") })
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.bucket, self.prefix.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_bucket_and_its_prefix() {
        for (text, bucket, prefix) in [
            ("s3://mail-replica", "mail-replica", ""),
            ("s3://mail-replica/", "mail-replica", ""),
            ("s3://mail.replica/a", "mail.replica", "a/"),
            ("s3://mail_replica/a/b-1/", "mail_replica", "a/b-1/"),
        ] {
            let url: BucketUrl = text.parse().unwrap();
            assert_eq!((url.bucket(), url.prefix()), (bucket, prefix), "{text}");
            assert_eq!(url.to_string().parse(), Ok(url), "{text}");
        }
    }

    #[test]
    fn rejects_a_malformed_url_and_suggests_the_form() {
        let error = |text: &str| text.parse::<BucketUrl>().unwrap_err().to_string();
        assert!(error("https://bucket/prefix").contains("must begin with s3://"));
        for bucket in ["", "ab", "a b c", "a..b", &"a".repeat(64)] {
            assert!(error(&format!("s3://{bucket}/x")).contains("is not the name of a bucket"), "{bucket}");
        }
        for prefix in ["a//b", "/a", "../a", "a/./b", "a?b", "a b", &"a".repeat(513)] {
            assert!(error(&format!("s3://bucket/{prefix}")).contains("the prefix must have"), "{prefix}");
        }
    }
}
