//! Tests of `[oidc]`.

use super::*;
use crate::domain::user::Role;

const SECTION: &str =
    "hostname = \"mail.example.com\"\n[oidc]\nissuer = \"https://login.example.com/x/\"\nclient_id = \"p\"\n";

#[test]
fn oidc_sign_in_needs_the_section_and_then_works_for_existing_users() {
    assert_eq!(parsed(BARE).oidc, None);
    let oidc = parsed(SECTION).oidc.unwrap();
    assert_eq!((oidc.issuer.as_str(), oidc.client_id.as_str()), ("https://login.example.com/x/", "p"));
    assert_eq!((oidc.client_secret, oidc.allowed_domains.len(), oidc.account), (None, 0, None));
    assert_eq!(oidc.default_role, Role::Viewer);
    let more =
        "allowed_domains = [\"Example.com\"]\naccount = \"acc_01M7XS2DXANT70XBRCN1YAAC4B\"\ndefault_role = \"member\"";
    let oidc = parsed(&format!("{SECTION}client_secret_file = \"\"\n{more}")).oidc.unwrap();
    assert_eq!((oidc.allowed_domains[0].as_str(), oidc.default_role), ("example.com", Role::Member));
    assert!(oidc.account.is_some() && oidc.settings().unwrap().client_secret.is_none());
}

#[test]
fn the_secret_is_read_from_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    std::fs::write(&file, "s3cret\n").unwrap();
    let oidc = parsed(&format!("{SECTION}client_secret_file = \"{}\"", file.display())).oidc.unwrap();
    assert_eq!(oidc.settings().unwrap().client_secret.unwrap().expose_text(), "s3cret");
    std::fs::remove_file(file).unwrap();
    assert!(oidc.settings().is_err());
}

#[test]
fn settings_that_admit_everyone_or_nobody_are_refused() {
    for (text, fault) in [
        ("[oidc]\nclient_id = \"p\"", "oidc.issuer: must be the provider's https URL"),
        ("[oidc]\nissuer = \"http://a.example\"\nclient_id = \"p\"", "is not an https URL without a query"),
        ("[oidc]\nissuer = \"https://a.example\"", "oidc.client_id: must be the service's name at the provider"),
        (&format!("{SECTION}default_role = \"owner\""), "must be one of \"viewer\", \"member\""),
        (&format!("{SECTION}account = \"acme\""), "oidc.account: "),
        (&format!("{SECTION}allowed_domain = []"), "did you mean oidc.allowed_domains?"),
    ] {
        let found = faults(text, &[]);
        assert!(found.len() == 1 && found[0].contains(fault), "{text}: {found:?}");
    }
}
