//! Tests of `doctor` with name servers and mail servers on loopback.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;
use crate::app::environment::Environment;

fn config(folder: &Path, more: &str) -> Config {
    let text = format!(
        "hostname = \"mail.example.com\"\ndata_dir = {:?}\n[http.tls]\nmode = \"off\"\n[dns]\nservers = \
         [\"127.0.0.1:1\"]\n[metrics]\nlisten = \"\"\n{more}",
        folder.join("data").display().to_string()
    );
    Config::parse(&text, "p.toml", &Environment::default()).unwrap()
}

fn verdict(checks: &[Check], name: &str) -> Verdict {
    checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no {name} in {checks:#?}")).verdict
}

#[test]
fn without_name_servers_all_other_checks_still_report() {
    let folder = tempfile::tempdir().unwrap();
    let checks = run(&config(folder.path(), "")).unwrap();
    assert_eq!(verdict(&checks, "resolver"), Verdict::Fail);
    assert_eq!(verdict(&checks, "data directory"), Verdict::Fail);
    assert_eq!(verdict(&checks, "port 25"), Verdict::Warn);
    assert_eq!(verdict(&checks, "service"), Verdict::Warn);
    assert_eq!(verdict(&checks, "configuration"), Verdict::Ok);
    assert!(checks.iter().all(|check| check.verdict == Verdict::Ok || !check.remedy.is_empty()), "{checks:#?}");
}

#[test]
fn a_key_readable_by_others_fails_and_an_open_directory_warns() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("master.key"), "x").unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&data, 0o755);
    mode(&data.join("master.key"), 0o640);
    let config = config(folder.path(), "");
    let look = || {
        let dns = DnsProbe::new(&config.dns.servers);
        local::checks(&DoctorInputs { config: config.clone(), dns, guard: Guard::default(), probe: probe(&config) })
    };
    let checks = look();
    assert_eq!(verdict(&checks, "data directory"), Verdict::Warn);
    assert_eq!(verdict(&checks, "master key"), Verdict::Fail);
    mode(&data, 0o700);
    mode(&data.join("master.key"), 0o600);
    let checks = look();
    assert!(checks.iter().all(|check| check.verdict == Verdict::Ok), "{checks:#?}");
}

#[test]
fn a_disk_below_the_required_free_space_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &format!("[limits]\nmin_free_bytes = {}\n", i64::MAX));
    assert_eq!(verdict(&run(&config).unwrap(), "disk"), Verdict::Fail);
}

#[test]
fn a_certificate_is_checked_by_its_name_and_its_expiry() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cert.pem");
    let lines = format!("certificate = {:?}\nkey = \"k\"\n", file.display().to_string());
    let text = format!("hostname = \"mail.example.com\"\n[http.tls]\nmode = \"files\"\n{lines}");
    let config = Config::parse(&text, "p.toml", &Environment::default()).unwrap();
    let judged = |name: &str, end: (i32, u8, u8)| {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(end.0, end.1, end.2);
        let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        fs::write(&file, made.pem()).unwrap();
        let (dns, guard) = (Err(String::new()), Guard::default());
        let patient = DoctorInputs { config: config.clone(), dns, guard, probe: probe(&config) };
        verdict(&local::checks(&patient), "certificate")
    };
    assert_eq!(judged("mail.example.com", (2099, 1, 1)), Verdict::Ok);
    assert_eq!(judged("www.example.com", (2099, 1, 1)), Verdict::Fail);
    assert_eq!(judged("mail.example.com", (2020, 1, 1)), Verdict::Fail);
}
