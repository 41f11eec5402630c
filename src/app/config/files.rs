//! Files that the configuration names. The service would notice a missing one only when it needs it, so `config check`
//! tries to read all of them.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::relay::RelayKind;
use super::{AlertWebhook, Config, Tls, WebhookSecret};

impl Config {
    /// Returns the named files, each with its key.
    fn named_files(&self) -> Vec<(String, &Path)> {
        let mut files = Vec::new();
        match &self.http.tls {
            Tls::Files { certificate, key } => {
                files.push(("http.tls.certificate".to_owned(), certificate.as_path()));
                files.push(("http.tls.key".to_owned(), key.as_path()));
            }
            Tls::Acme(acme) => {
                files.extend(acme.extra_roots.as_deref().map(|path| ("http.tls.extra_roots".to_owned(), path)));
            }
            Tls::Off => {}
        }
        let optional = [
            ("delivery.extra_roots", &self.delivery.extra_roots),
            ("delivery.shaping_file", &self.delivery.shaping_file),
            ("delivery.bounces_file", &self.delivery.bounces_file),
            ("dns.trust_anchor", &self.dns.trust_anchor),
            ("replica.credentials_file", &self.replica.credentials_file),
            ("replica.extra_roots", &self.replica.extra_roots),
            ("webhooks.extra_roots", &self.webhooks.extra_roots),
        ];
        files.extend(optional.into_iter().filter_map(|(key, path)| Some((key.to_owned(), path.as_deref()?))));
        if let Some((certificate, key)) = &self.submission.certificate {
            files.push(("submission.certificate".to_owned(), certificate.as_path()));
            files.push(("submission.key".to_owned(), key.as_path()));
        }
        let secret = self.oidc.as_ref().and_then(|oidc| oidc.client_secret.as_ref());
        files.extend(secret.map(|file| ("oidc.client_secret_file".to_owned(), file.path())));
        if let Some(AlertWebhook { secret: WebhookSecret::File(file), .. }) = &self.alerts.webhook {
            files.push(("alerts.webhook_secret_file".to_owned(), file.path()));
        }
        for relay in &self.relays {
            let login = match &relay.kind {
                RelayKind::Smarthost(smarthost) => smarthost.login.as_ref(),
                RelayKind::Mx => None,
            };
            let password = login.map(|login| login.password.path());
            files.extend(password.map(|path| (format!("relay {}: password_file", relay.name), path)));
        }
        files
    }

    /// Returns a sentence for each named file that can't be read.
    pub fn unreadable_files(&self) -> Vec<String> {
        let files = self.named_files().into_iter();
        let tried = files.map(|(key, path)| (key, path, readable(path)));
        let failed = tried.filter_map(|(key, path, tried)| Some((key, path, tried.err()?)));
        failed.map(|(key, path, error)| format!("{key}: cannot read {}: {error}", path.display())).collect()
    }
}

/// Opens the file and reads a byte: a directory can be opened, but not read.
fn readable(path: &Path) -> io::Result<()> {
    File::open(path)?.read(&mut [0]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::environment::Environment;

    #[test]
    fn every_missing_or_unreadable_file_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there.pem");
        std::fs::write(&there, "x").unwrap();
        let (there, dir) = (there.display(), dir.path().display());
        let text = format!(
            "hostname = \"mail.example.com\"\n[http.tls]\nmode = \"files\"\ncertificate = \"{there}\"\nkey = \"{dir}/key\"\n\
             [delivery]\nextra_roots = \"{dir}\"\nshaping_file = \"{dir}/shaping\"\nbounces_file = \"{dir}/bounces\"\n\
             [dns]\ntrust_anchor = \"{dir}/anchor\"\n[webhooks]\nextra_roots = \"{dir}/roots\"\n\
             [oidc]\nissuer = \"https://login.example.com\"\nclient_id = \"p\"\nclient_secret_file = \"{dir}/secret\"\n\
             [[relay]]\nname = \"out\"\nkind = \"smarthost\"\nhost = \"smtp.example.com\"\nusername = \"u\"\n\
             password_file = \"{dir}/password\"\n"
        );
        let config = Config::parse(&text, "p.toml", &Environment::default()).unwrap();
        let unreadable = config.unreadable_files();
        let keys: Vec<_> = unreadable.iter().map(|line| line.split(": cannot read").next().unwrap()).collect();
        let expected = [
            "http.tls.key",
            "delivery.extra_roots",
            "delivery.shaping_file",
            "delivery.bounces_file",
            "dns.trust_anchor",
            "webhooks.extra_roots",
            "oidc.client_secret_file",
            "relay out: password_file",
        ];
        assert_eq!(keys, expected);
        assert!(unreadable[0].contains(&format!("{dir}/key: No such file")), "{}", unreadable[0]);
    }
}
