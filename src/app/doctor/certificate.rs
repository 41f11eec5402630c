//! Checks of the certificate from files or from an ACME authority: its names and its expiry.

use std::time::Duration;

use super::{Check, Verdict};
use crate::app::certificate::names;
use crate::app::config::{self, Config, Tls};
use crate::base::time::Timestamp;
use crate::engine::ports::Clock as _;
use crate::machine::renewal::Validity;
use crate::net::acme::vault::{Status, Vault};
use crate::net::clock::SystemClock;
use crate::net::probe::certificate::Certificate;

const NAME: &str = "certificate";
/// Remaining validity below which the check warns. Authorities renew a month ahead.
const EXPIRY_WORRIES: Duration = Duration::from_secs(14 * 24 * 3600);

pub(super) fn check(config: &Config) -> Check {
    let now = SystemClock::new().now();
    match &config.http.tls {
        Tls::Files { certificate, .. } => in_files(config, certificate, now),
        Tls::Off => {
            let seen = "http.tls.mode is \"off\": a proxy in front of the service has the certificate";
            Check::new(NAME, Verdict::Ok, seen, "")
        }
        Tls::Acme(acme) => by_authority(config, acme, now),
    }
}

fn in_files(config: &Config, path: &std::path::Path, now: Timestamp) -> Check {
    let certificate = match Certificate::read(path) {
        Ok(certificate) => certificate,
        Err(why) => {
            let remedy = "Set http.tls.certificate to a PEM file with the server's certificate first.";
            return Check::new(NAME, Verdict::Fail, why, remedy);
        }
    };
    let shown = path.display();
    let url = config.public_url();
    let host = url.host_str().unwrap_or_default();
    let Some(Validity { until: end, .. }) = certificate.validity() else {
        return Check::new(NAME, Verdict::Fail, format!("{shown} is not an X.509 certificate"), "Choose another file.");
    };
    let renew = "Renew it; the service loads the new files when they change, or at SIGHUP.";
    if end <= now {
        return Check::new(NAME, Verdict::Fail, format!("{shown} expired at {end}"), renew);
    }
    if !certificate.is_for(host) {
        let remedy = format!("Get a certificate for {host}, or correct http.public_url.");
        return Check::new(NAME, Verdict::Fail, format!("{shown} is not for {host}"), remedy);
    }
    let seen = format!("{shown} is for {host} and valid until {end}");
    match end.since(now) < EXPIRY_WORRIES {
        true => Check::new(NAME, Verdict::Warn, seen, renew),
        false => Check::new(NAME, Verdict::Ok, seen, ""),
    }
}

/// Checks the certificate from the authority. Reads the files, so that it works while the service is stopped.
fn by_authority(config: &Config, acme: &config::Acme, now: Timestamp) -> Check {
    let vault = Vault::within(&config.data_dir);
    let wanted = names(config);
    let status = vault.status().filter(|status| status.directory == acme.directory.as_str());
    let fault = status.as_ref().and_then(|status| Some((status.fault.as_deref()?, status)));
    let ours = vault.issued_by().is_some_and(|directory| directory == acme.directory.as_str());
    let held = ours.then(|| Certificate::read(&vault.certificate()).ok()).flatten();
    let held = held.and_then(|certificate| Some((certificate.validity()?, certificate)));
    let Some((validity, certificate)) = held.filter(|(validity, _)| validity.until > now) else {
        return match fault {
            Some(fault) => failed(format!("{} has issued no certificate", acme.directory), fault, Verdict::Fail),
            None => {
                let seen = format!("{} has issued no certificate yet", acme.directory);
                let remedy =
                    "Start the service: it requests one automatically. If it is running, run doctor as its user.";
                Check::new(NAME, Verdict::Warn, seen, remedy)
            }
        };
    };
    let lacking: Vec<_> = wanted.iter().filter(|name| !certificate.is_for(name)).map(String::as_str).collect();
    let until = validity.until;
    let seen = match lacking.is_empty() {
        true => format!("{} valid until {until}, renewed from {} on", wanted.join(", "), validity.renew_at()),
        false => format!("the certificate is not for {}, and is valid until {until}", lacking.join(", ")),
    };
    match fault {
        Some(fault) => failed(seen, fault, Verdict::Warn),
        None if lacking.is_empty() => Check::new(NAME, Verdict::Ok, seen, ""),
        None => Check::new(NAME, Verdict::Warn, seen, "Restart the service: it requests the names automatically."),
    }
}

fn failed(seen: String, (fault, status): (&str, &Status), verdict: Verdict) -> Check {
    let next = status.setbacks.wait_until();
    let remedy = match (status.setbacks.refused, status.setbacks.unreached) {
        (0, _) => "Check that this machine can reach http.tls.directory, and that extra_roots trusts it.",
        _ => "Make every name resolve to this machine, and open port 443 or 80 to the internet.",
    };
    let remedy = format!("{remedy} The next request is at {next}, or at once after SIGHUP.");
    Check::new(NAME, verdict, format!("{seen}: {fault}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::environment::Environment;
    use std::fs;

    const DIRECTORY: &str = "https://ca.example/dir";

    struct TestConfig {
        folder: tempfile::TempDir,
        config: Config,
    }

    impl TestConfig {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("acme")).unwrap();
            let text = format!(
                "hostname = \"mail.example.com\"\ndata_dir = {:?}\n[http.tls]\ndirectory = {DIRECTORY:?}\n\
                 [bounces]\nhost = \"bounces.example.com\"\n",
                folder.path().display().to_string()
            );
            Self { config: Config::parse(&text, "p.toml", &Environment::default()).unwrap(), folder }
        }

        fn certificate(&self, directory: &str, names: &[&str], year: i32) {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut params = rcgen::CertificateParams::new(names).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            let text = format!("Issued by {directory}\n{}", made.pem());
            fs::write(self.folder.path().join("acme/certificate.pem"), text).unwrap();
        }

        fn fault(&self, refused: u32) {
            let names = names(&self.config);
            let setbacks =
                serde_json::json!({ "refused": refused, "unreached": 1, "wait_until": 1_900_000_000_000_u64 });
            let status = serde_json::json!({
                "directory": DIRECTORY, "names": names, "setbacks": setbacks, "fault": "it said no"
            });
            fs::write(self.folder.path().join("acme/status.json"), status.to_string()).unwrap();
        }

        fn judged(&self) -> (Verdict, String) {
            let check = check(&self.config);
            (check.verdict, format!("{} | {}", check.seen, check.remedy))
        }
    }

    #[test]
    fn an_acme_certificate_for_all_names_is_ok() {
        let kept = TestConfig::new();
        assert_eq!(kept.judged().0, Verdict::Warn, "no certificate was requested yet");
        kept.certificate(DIRECTORY, &["mail.example.com", "bounces.example.com"], 2099);
        assert_eq!(kept.judged().0, Verdict::Ok);
        kept.certificate("https://staging.example/dir", &["mail.example.com", "bounces.example.com"], 2099);
        assert_eq!(kept.judged().0, Verdict::Warn, "another authority's");
    }

    #[test]
    fn a_failed_order_is_reported_with_the_remedy_and_the_next_attempt() {
        let kept = TestConfig::new();
        kept.fault(0);
        let (verdict, said) = kept.judged();
        assert!(verdict == Verdict::Fail && said.contains("it said no") && said.contains("extra_roots"), "{said}");
        kept.fault(1);
        let (verdict, said) = kept.judged();
        assert!(verdict == Verdict::Fail && said.contains("port 443 or 80") && said.contains("at 2030-"), "{said}");
        kept.certificate(DIRECTORY, &["mail.example.com"], 2099);
        let (verdict, said) = kept.judged();
        assert!(verdict == Verdict::Warn && said.contains("is not for bounces.example.com"), "{said}");
        kept.certificate(DIRECTORY, &["mail.example.com", "bounces.example.com"], 2020);
        assert_eq!(kept.judged().0, Verdict::Fail, "expired");
    }
}
