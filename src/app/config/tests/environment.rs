//! Environment variables take precedence over the file.

use super::*;

#[test]
fn the_environment_overrides_the_file() {
    let text = "data_dir = \"/file\"\n[http]\nlisten = [\"[::]:443\"]\n[[relay]]\nname = \"smart-host\"\n";
    let environment = variables(&[
        ("POSTRIDER_HOSTNAME", "env.example.com"),
        ("POSTRIDER_DATA_DIR", "/env"),
        ("POSTRIDER_CONFIG", "/elsewhere"),
        ("POSTRIDER_PORT", "tcp://10.0.0.1:80"),
        ("POSTRIDER_HTTP__LISTEN", "127.0.0.1:1, [::1]:2"),
        ("POSTRIDER_HTTP__TLS__MODE", "off"),
        ("POSTRIDER_DELIVERY__PORT", "2525"),
        ("POSTRIDER_DNS__SERVERS", ""),
        ("POSTRIDER_METRICS__LISTEN", ""),
        ("POSTRIDER_RELAY__SMART_HOST__EHLO", "out.example.com"),
    ]);
    let config = Config::parse(text, "p.toml", &environment).unwrap();
    assert_eq!((config.hostname.as_str(), config.data_dir.to_str()), ("env.example.com", Some("/env")));
    assert_eq!(config.http.listen, ["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()]);
    assert_eq!((&config.http.tls, config.delivery.port, config.metrics.listen), (&Tls::Off, 2525, None));
    assert!(config.dns.servers.is_empty());
    assert_eq!(config.relays[0].ehlo.as_ref().unwrap().as_str(), "out.example.com");
    assert!(config.fit_to_mail().is_ok());
}

#[test]
fn a_list_is_written_as_in_toml_or_with_commas() {
    for listen in ["[\"127.0.0.1:1\", \"[::1]:2\"]", "127.0.0.1:1, [::1]:2", "[::1]:2"] {
        let config = Config::parse("", "p.toml", &variables(&[("POSTRIDER_HTTP__LISTEN", listen)])).unwrap();
        assert_eq!(config.http.listen.last(), Some(&"[::1]:2".parse().unwrap()), "{listen}");
    }
}

#[test]
fn a_variable_holds_relays_as_inline_tables_and_errors_name_the_variable() {
    let relay = "[{ name = \"out\", kind = \"smarthost\", host = \"smtp.example.net\", port = 2525 }]";
    let both = variables(&[("POSTRIDER_RELAY", relay), ("POSTRIDER_RELAY__OUT__EHLO", "out.example.com")]);
    let config = Config::parse("[[relay]]\nname = \"of-the-file\"\n", "p.toml", &both).unwrap();
    let [only] = config.relays.as_slice() else { panic!("{:?}", config.relays) };
    let RelayKind::Smarthost(smarthost) = &only.kind else { panic!("{only:?}") };
    assert_eq!((only.name.as_str(), smarthost.port), ("out", 2525));
    assert_eq!(only.ehlo.as_ref().unwrap().as_str(), "out.example.com");
    let found = faults("", &[("POSTRIDER_RELAY", "[{ name = \"out\", prot = 25 }]")]);
    assert_eq!(found, ["environment variable POSTRIDER_RELAY: relay.prot: unknown key; did you mean relay.port?"]);
    let found = faults("", &[("POSTRIDER_RELAY", "direct")]);
    assert_eq!(found, ["environment variable POSTRIDER_RELAY: relay: must be written as [[relay]]"]);
}

#[test]
fn a_variable_for_an_unknown_key_is_an_error() {
    for (variable, fault) in [
        (("POSTRIDER_HTTP__LISTN", "x"), "http.listn: unknown key; did you mean http.listen?"),
        (("POSTRIDER_HTP__LISTEN", "x"), "htp: unknown key; did you mean http?"),
        (("POSTRIDER_DATA_DIR__X", "x"), "data_dir.x: data_dir is a value, not a section"),
        (("POSTRIDER_RELAY__OTHER__EHLO", "x"), "relay.other.ehlo: the file has no [[relay]] of that name"),
        (("POSTRIDER_DELIVERY__PORT", "x"), "delivery.port: must be a whole number from 1 to 65535"),
    ] {
        let found = faults("data_dir = \"/d\"\n[[relay]]\nname = \"direct\"\n", &[variable]);
        assert_eq!(found, [format!("environment variable {}: {fault}", variable.0)]);
    }
}
