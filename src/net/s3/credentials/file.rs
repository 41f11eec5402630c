//! Reads a credentials file in AWS format: the section `[default]` with `aws_access_key_id`, `aws_secret_access_key`
//! and optionally `aws_session_token`.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use zeroize::Zeroizing;

use super::{Credentials, NoCredentials};
use crate::base::secret::Secret;

/// Maximum size of the file in bytes.
const BYTES_MAX: u64 = 64 << 10;
const SECTION: &str = "default";

/// Reads the file.
pub(super) fn read(path: &Path) -> Result<Credentials, NoCredentials> {
    let failed = |why: String| NoCredentials(format!("cannot read credentials from {}: {why}", path.display()));
    let mut text = Zeroizing::new(String::new());
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    parse(&text).map_err(|why| failed(why.to_owned()))
}

fn parse(text: &str) -> Result<Credentials, &'static str> {
    let mut section = "";
    let mut found = [None, None, None];
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim();
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| section == SECTION) else { continue };
        let place = match key.trim().to_ascii_lowercase().as_str() {
            "aws_access_key_id" => 0,
            "aws_secret_access_key" => 1,
            "aws_session_token" => 2,
            _ => continue,
        };
        found[place] = Some(value.trim()).filter(|value| !value.is_empty());
    }
    let [access_key_id, secret, session_token] = found;
    let access_key_id = access_key_id.ok_or("its section [default] has no aws_access_key_id")?;
    let secret = secret.ok_or("its section [default] has no aws_secret_access_key")?;
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain(access_key_id) || !session_token.is_none_or(is_plain) {
        return Err("its access key or token has characters that are not valid in a header");
    }
    Ok(Credentials {
        access_key_id: access_key_id.to_owned(),
        secret: Secret::new(secret),
        session_token: session_token.map(Secret::new),
        expires_at: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_default_section_is_read() {
        let text = "# a comment\n[other]\naws_access_key_id = WRONG\n[default]\n AWS_Access_Key_Id=AKIA1\n\
                    aws_secret_access_key = se=cret \n; more\naws_session_token =\nregion = x\n[last]\n\
                    aws_secret_access_key = WRONG\n";
        let found = parse(text).unwrap();
        assert_eq!((found.access_key_id.as_str(), found.secret.expose_text()), ("AKIA1", "se=cret"));
        assert!(found.session_token.is_none() && found.expires_at.is_none());
        let token = parse(&format!("{text}[default]\naws_session_token = t\n")).unwrap().session_token;
        assert_eq!(token.unwrap().expose_text(), "t");
    }

    #[test]
    fn a_file_without_a_key_reports_the_missing_one() {
        for (text, why) in [
            ("", "has no aws_access_key_id"),
            ("aws_access_key_id = a\naws_secret_access_key = b\n", "has no aws_access_key_id"),
            ("[default]\naws_access_key_id = a\n", "has no aws_secret_access_key"),
            ("[default]\naws_access_key_id = a b\naws_secret_access_key = b\n", "not valid in a header"),
        ] {
            assert!(parse(text).unwrap_err().contains(why), "{text}");
        }
    }
}
