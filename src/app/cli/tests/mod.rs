//! Tests of the command line: the requests to the daemon, the output and the exit code of each command.

use std::cell::RefCell;
use std::fs;

use super::*;
use crate::app::config::Tls;
use crate::app::fake_daemon::FakeDaemon;

mod newcomers;

const ACCOUNT: &str = "acc_00000000000000000000000001";
const DOMAIN: &str = "dom_00000000000000000000000002";

/// Exit code and output of a command.
#[derive(Debug)]
struct Ran {
    exit: Exit,
    out: String,
    err: String,
}

/// Runs a command line of words separated by spaces.
fn typed(line: &str, environment: &[(&str, &str)], services: &Services<'_>) -> Ran {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let environment = Environment::of(environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    let mut input = "From standard input.".as_bytes();
    let mut console = Console { environment, input: &mut input, out: &mut out, err: &mut err };
    let words = std::iter::once("postrider").chain(line.split_whitespace()).map(OsString::from);
    let exit = run(words, &mut console, services);
    Ran { exit, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

fn alone(line: &str, environment: &[(&str, &str)]) -> Ran {
    typed(line, environment, &Services { serve: &|_, _, _| panic!(), dev: &|_| panic!(), standby: &|_, _| panic!() })
}

/// Runs a command against a daemon with these answers. Also returns the requests.
fn asking(line: &str, answers: &[(u16, &str)]) -> (Ran, Vec<String>) {
    let daemon = FakeDaemon::answering(answers);
    let ran = alone(line, &[("POSTRIDER_DATA_DIR", daemon.data_dir().to_str().unwrap())]);
    (ran, daemon.requests())
}

#[test]
fn an_invalid_command_line_is_a_usage_error() {
    for line in [
        "dev --port 70000",
        "message send --from a@example.test",
        "message send --from a@example.test --to b@example.org --raw f --subject s",
        "",
        "key",
        "account add",
        "domain add example.com",
        "domain add example.com --stream bulk",
        "serve --config f --ready-fd -1",
        "dev --listen here",
        "config",
        "frobnicate",
        "key list --limit 0",
        "account list --data-dir d --config f",
        "account set acc_1",
        "account set acc_1 --quota-per-hour -1",
        "key set key_1",
        "domain set example.com --stream bulk",
        "webhook",
        "webhook set whk_1",
        "webhook set whk_1 --enabled perhaps",
        "webhook listen --key pr_live_x",
        "webhook listen --url mail.example.com --key k",
        "webhook listen --url ftp://mail.example.com --key k",
        "webhook listen --url https://mail.example.com",
        "webhook listen --url http://127.0.0.1:1 --key k --forward-to file:///hook",
        "webhook listen --url http://127.0.0.1:1 --key k --events exploded",
        "webhook listen --url http://127.0.0.1:1 --key k --after msg_1",
        "webhook listen --receive 127.0.0.1:0",
        "webhook listen --receive 127.0.0.1:0 --secret abc",
        "webhook listen --receive 127.0.0.1:0 --secret whsec_abc --forward-to http://127.0.0.1:1/",
        "webhook set whk_1 --events delivered --all-events",
        "backup",
        "restore",
        "restore backup.postrider",
        "queue",
        "suppression add",
        "message show",
        "event list --limit 101",
        "config check",
    ] {
        let ran = alone(line, &[]);
        assert_eq!(ran.exit, Exit::Usage, "{line}: {ran:?}");
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{line}: {ran:?}");
    }
}

#[test]
fn help_and_version_are_printed_on_request() {
    assert!(alone("--help", &[]).out.contains("domain"));
    assert_eq!(alone("version", &[]).out, format!("postrider {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(alone("version --json", &[]).out, format!("{{\"version\":\"{}\"}}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(alone("config example", &[]).out, EXAMPLE);
}

#[test]
fn serve_gets_the_configuration_and_the_descriptor_or_reports_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.toml");
    let line = format!("serve --config {} --ready-fd 3", file.display());
    let seen = RefCell::new(None);
    let serve = |config: Config, fd: Option<i32>, on_damage: OnJournalDamage| {
        *seen.borrow_mut() = Some((config.http.tls, fd, on_damage));
        Exit::Conflict
    };
    let services = Services { serve: &serve, dev: &|_| Exit::Done, standby: &|_, _| panic!("stands by") };
    fs::write(&file, "hostname = \"mail.example.com\"\n[http.tls]\nmode = \"off\"\n").unwrap();
    assert_eq!(typed(&line, &[], &services).exit, Exit::Conflict);
    assert_eq!(seen.take(), Some((Tls::Off, Some(3), OnJournalDamage::Refuse)));
    assert_eq!(typed(&format!("{line} --accept-journal-damage"), &[], &services).exit, Exit::Conflict);
    assert_eq!(seen.take(), Some((Tls::Off, Some(3), OnJournalDamage::Accept)));
    for (text, why) in [
        ("[http.tls]\nmode = \"off\"", "hostname is not set"),
        ("hostname = \"mail.example.com\"\nport = 1", "line 2, column 1: port: unknown key"),
    ] {
        fs::write(&file, text).unwrap();
        let ran = typed(&line, &[], &services);
        assert!(ran.exit == Exit::Usage && ran.err.contains(why) && ran.err.lines().count() == 3, "{ran:?}");
        assert_eq!(seen.take(), None);
    }
    fs::remove_file(&file).unwrap();
    let ran = typed(&line, &[], &services);
    assert!(ran.exit == Exit::Usage && ran.err.contains("cannot read the configuration"), "{ran:?}");
}

#[test]
fn dev_s_options_override_the_file_and_the_file_overrides_the_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.toml");
    fs::write(&file, "data_dir = \"/kept\"\n[http]\nlisten = [\"127.0.0.1:1\"]\n[delivery]\nport = 2525\n").unwrap();
    let seen = RefCell::new(None);
    let dev = |options| {
        *seen.borrow_mut() = Some(options);
        Exit::Done
    };
    let services = Services { serve: &|_, _, _| Exit::Failed, dev: &dev, standby: &|_, _| panic!("stands by") };
    let run = |line: &str| {
        let ran = typed(line, &[], &services);
        assert_eq!(ran.exit, Exit::Done, "{ran:?}");
        seen.take().unwrap()
    };
    let plain = run("dev");
    assert_eq!(plain, DevOptions::plain(Config::for_dev()));
    let filed = run(&format!("dev --config {} --virtual-clock --json", file.display()));
    assert_eq!(filed.data_dir, Some(PathBuf::from("/kept")));
    assert_eq!((filed.config.http.listen[0].port(), filed.config.delivery.port), (1, 2525));
    assert!(filed.config.http.tls == Tls::Off && filed.virtual_clock && filed.json && !filed.deliver);
    let args = run(&format!("dev --config {} --listen [::1]:0 --data-dir /told --deliver", file.display()));
    assert_eq!((args.data_dir, args.config.http.listen), (Some("/told".into()), vec!["[::1]:0".parse().unwrap()]));
    assert!(args.deliver);
}

#[test]
fn a_configuration_is_checked_with_its_warnings() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.toml");
    fs::write(&file, EXAMPLE).unwrap();
    let file = file.to_str().unwrap();
    let ran = alone("config check", &[("POSTRIDER_CONFIG", file)]);
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert!(ran.out.ends_with("is valid\n"), "{ran:?}");
    let ran = alone("config check", &[("POSTRIDER_HOSTNAME", "mail.example.com")]);
    assert!(ran.out.starts_with("The configuration of the environment is valid\n"), "{ran:?}");
    let elsewhere = [("POSTRIDER_CONFIG", file), ("POSTRIDER_HTTP__LISTEN", "127.0.0.1:8443")];
    assert!(alone("config check", &elsewhere).out.contains("is valid\nwarning: http.tls.mode is \"acme\""));
    let ran = alone(
        &format!("config check --json --config {file}"),
        &[("POSTRIDER_HTTP__TLS__MODE", "off"), ("POSTRIDER_METRICS__LISTEN", "")],
    );
    assert_eq!(ran.out, "{\"valid\":true,\"warnings\":[]}\n");
    let missing = [("POSTRIDER_CONFIG", file), ("POSTRIDER_DELIVERY__EXTRA_ROOTS", "/nowhere/roots.pem")];
    let ran = alone("config check", &missing);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.err.contains("delivery.extra_roots: cannot read /nowhere/roots.pem: No such file"), "{ran:?}");
    let ran = alone(&format!("config check --config {file}"), &[("POSTRIDER_DELIVERY__PROT", "1")]);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(
        ran.err.contains(
            "environment variable POSTRIDER_DELIVERY__PROT: delivery.prot: unknown key; did you mean delivery.port?"
        ),
        "{ran:?}"
    );
}

#[test]
fn an_account_is_created_from_the_options_and_printed_as_the_api_returns_it() {
    let answer = format!("{{\"name\":\"Acme\", \"id\":\"{ACCOUNT}\"}}");
    let (ran, requests) = asking("account add Acme --quota-per-hour 5 --json", &[(201, &answer)]);
    assert_eq!((ran.exit, ran.out), (Exit::Done, format!("{answer}\n")));
    assert!(requests[0].starts_with("POST /v1/accounts HTTP/1.1"), "{requests:?}");
    assert!(requests[0].ends_with("\r\n\r\n{\"name\":\"Acme\",\"quota_per_hour\":5}"), "{requests:?}");
    assert!(!requests[0].contains("x-postrider-account"), "{requests:?}");
    let (ran, requests) = asking(&format!("account show {ACCOUNT}"), &[(200, &answer)]);
    assert!(ran.out.starts_with(&format!("id: {ACCOUNT}\nname: Acme\n")), "{ran:?}");
    assert!(requests[0].starts_with(&format!("GET /v1/accounts/{ACCOUNT} ")), "{requests:?}");
    let (ran, requests) =
        asking(&format!("account set {ACCOUNT} --quota-per-day 9 --name B --json"), &[(200, &answer)]);
    assert_eq!((ran.exit, ran.out), (Exit::Done, format!("{answer}\n")));
    assert!(requests[0].starts_with(&format!("PATCH /v1/accounts/{ACCOUNT} ")), "{requests:?}");
    assert!(requests[0].ends_with("\r\n\r\n{\"name\":\"B\",\"quota_per_day\":9}"), "{requests:?}");
    for line in ["account show acc_x", "account set acc_x --time-zone UTC"] {
        assert_eq!(asking(line, &[]).0.exit, Exit::NotFound, "{line}");
    }
    let (ran, requests) =
        asking("account list --json --limit 2 --cursor a&b", &[(200, "{\"data\":[],\"next_cursor\":null}")]);
    assert_eq!(ran.out, "{\"data\":[],\"next_cursor\":null}\n");
    assert!(requests[0].starts_with("GET /v1/accounts?limit=2&cursor=a%26b "), "{requests:?}");
}

#[test]
fn the_queue_is_listed_by_site() {
    let row = "{\"site\":\"google\",\"relay\":\"direct\",\"waiting\":7,\"in_flight\":1,\"next_at\":null,\
        \"held_until\":\"2026-11-20T15:04:05.000+00:00\",\"last_answer\":\"421 4.7.28\\nlater\",\
        \"reason\":\"throttled\"}";
    let page = format!("{{\"data\":[{row}],\"next_cursor\":null}}");
    let (ran, requests) = asking("queue list", &[(200, &page)]);
    assert!(ran.out.lines().nth(1).unwrap().starts_with("google  direct  7        1          throttled"), "{ran:?}");
    assert!(ran.out.contains("421 4.7.28\\nlater"), "an answer can't begin a line: {ran:?}");
    assert!(requests[0].starts_with("GET /v1/queue "), "{requests:?}");
    assert_eq!(asking("queue list --json", &[(200, &page)]).0.out, format!("{page}\n"));
}

#[test]
fn mail_for_a_site_is_paused_resumed_and_retried() {
    let one = format!("{{\"data\":[{{\"id\":\"{ACCOUNT}\"}}],\"next_cursor\":null}}");
    for (verb, answer, output) in [
        ("pause", "{\"site\":\"google\",\"paused\":true}", "Mail for google waits until it is resumed.\n"),
        ("resume", "{\"site\":\"google\",\"paused\":false}", "Mail for google continues.\n"),
        ("try", "{\"site\":\"google\",\"messages\":7,\"more\":false}", "7 messages for google are retried now.\n"),
    ] {
        let (ran, requests) = asking(&format!("queue {verb} google"), &[(200, &one), (200, answer)]);
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, output), "{ran:?}");
        assert!(requests[1].starts_with(&format!("POST /v1/queue/{verb} ")), "{requests:?}");
        assert!(requests[1].contains(&format!("x-postrider-account: {ACCOUNT}\r\n")), "{requests:?}");
        assert!(requests[1].ends_with("{\"site\":\"google\"}"), "{requests:?}");
        let (ran, _) = asking(&format!("queue {verb} google --account {ACCOUNT} --json"), &[(200, answer)]);
        assert_eq!(ran.out, format!("{answer}\n"));
    }
}

#[test]
fn the_account_is_optional_if_there_is_only_one() {
    let one = format!("{{\"data\":[{{\"id\":\"{ACCOUNT}\"}}],\"next_cursor\":null}}");
    let made = "{\"id\":\"key_1\",\"name\":\"n\",\"scopes\":[\"send\",\"read\"],\"key\":\"pr_live_x\"}";
    let line = "key add --name n --scopes send,read --stream marketing --expires-at 2030-01-01T00:00:00Z";
    let (ran, requests) = asking(line, &[(200, &one), (201, made)]);
    assert_eq!(ran.exit, Exit::Done);
    assert!(
        ran.out.contains("scopes: send, read\n") && ran.out.contains("key: pr_live_x\n\nSave the key now"),
        "{ran:?}"
    );
    assert!(requests[0].starts_with("GET /v1/accounts?limit=2 "), "{requests:?}");
    assert!(requests[1].contains(&format!("x-postrider-account: {ACCOUNT}\r\n")), "{requests:?}");
    assert!(requests[1].ends_with(
        "{\"expires_at\":\"2030-01-01T00:00:00Z\",\"name\":\"n\",\"scopes\":[\"send\",\"read\"],\"stream\":\"marketing\"}"
    ), "{requests:?}");
    let two = format!("{{\"data\":[{{\"id\":\"{ACCOUNT}\"}},{{\"id\":\"{ACCOUNT}\"}}]}}");
    let (ran, _) = asking("key list", &[(200, &two)]);
    assert_eq!(ran.exit, Exit::Usage);
    assert!(ran.err.contains("--account ID"), "{ran:?}");
    let (ran, _) = asking("key list", &[(200, "{\"data\":[]}")]);
    assert_eq!(ran.exit, Exit::NotFound);
}

#[test]
fn a_domain_is_found_by_identifier_or_by_name_on_any_page() {
    let shown = format!("{{\"id\":\"{DOMAIN}\",\"name\":\"xn--bcher-kva.example\",\"records\":[]}}");
    let line = |command: &str, name: &str| format!("domain {command} {name} --json --account {ACCOUNT}");
    let (ran, requests) = asking(&line("show", DOMAIN), &[(200, &shown)]);
    assert_eq!(ran.out, format!("{shown}\n"));
    assert!(requests[0].starts_with(&format!("GET /v1/domains/{DOMAIN} ")), "{requests:?}");
    let first =
        "{\"data\":[{\"id\":\"dom_00000000000000000000000009\",\"name\":\"a.example\"}],\"next_cursor\":\"c2\"}";
    let second = format!("{{\"data\":[{shown}],\"next_cursor\":null}}");
    let (ran, requests) = asking(&line("verify", "Bücher.example"), &[(200, first), (200, &second), (200, &shown)]);
    assert_eq!((ran.exit, ran.out), (Exit::ChecksFailed, format!("{shown}\n")));
    assert!(requests[1].starts_with("GET /v1/domains?limit=100&cursor=c2 "), "{requests:?}");
    assert!(requests[2].starts_with(&format!("POST /v1/domains/{DOMAIN}/verify ")), "{requests:?}");
    let (ran, _) = asking(&line("show", "c.example"), &[(200, first), (200, &second)]);
    assert!(
        ran.exit == Exit::NotFound && ran.err.contains("No domain c.example. Run: postrider domain list"),
        "{ran:?}"
    );
    let refusal = "{\"message\":\"Not valid.\",\"code\":\"validation_failed\",\"errors\":{\"name\":[\"is taken\"]}}";
    let (ran, requests) =
        asking(&format!("domain add a.example --stream transactional --account {ACCOUNT}"), &[(422, refusal)]);
    assert_eq!(ran.exit, Exit::Refused);
    assert!(requests[0].ends_with("{\"name\":\"a.example\",\"stream\":\"transactional\"}"), "{requests:?}");
}

#[test]
fn options_override_variables_and_a_directory_overrides_a_file() {
    let daemon = FakeDaemon::answering(&[(200, "{\"data\":[]}"), (200, "{\"data\":[]}"), (200, "{\"data\":[]}")]);
    let dir = daemon.data_dir().to_str().unwrap().to_owned();
    let file = daemon.data_dir().join("p.toml");
    fs::write(&file, format!("data_dir = \"{dir}\"\n")).unwrap();
    let file = file.to_str().unwrap();
    for (line, environment) in [
        (format!("account list --data-dir {dir}"), ("POSTRIDER_DATA_DIR", "/nowhere")),
        (format!("account --config {file} list"), ("POSTRIDER_CONFIG", "/nowhere")),
        ("account list".to_owned(), ("POSTRIDER_CONFIG", file)),
    ] {
        let ran = alone(&line, &[environment]);
        assert_eq!(ran.exit, Exit::Done, "{line}: {ran:?}");
    }
    drop(daemon.requests());
    assert_eq!(alone("account list", &[("POSTRIDER_DATA_DIR", "/nowhere")]).exit, Exit::Unreachable);
}

#[test]
fn each_command_requests_one_object_or_list_of_the_account() {
    let of_account = |line: &str| format!("{line} --account {ACCOUNT}");
    for (line, head, body) in [
        ("key show key_1", "GET /v1/keys/key_1 ", ""),
        ("key set key_1 --name app", "PATCH /v1/keys/key_1 ", "{\"name\":\"app\"}"),
        ("key remove key_1", "DELETE /v1/keys/key_1 ", ""),
        ("webhook list --limit 3", "GET /v1/webhooks?limit=3 ", ""),
        ("webhook add https://a.example/", "POST /v1/webhooks ", "{\"url\":\"https://a.example/\"}"),
        (
            "webhook add https://a.example/ --events bounced,failed --description d",
            "POST /v1/webhooks ",
            "{\"description\":\"d\",\"events\":[\"bounced\",\"failed\"],\"url\":\"https://a.example/\"}",
        ),
        ("webhook show whk_1", "GET /v1/webhooks/whk_1 ", ""),
        ("webhook set whk_1 --enabled true", "PATCH /v1/webhooks/whk_1 ", "{\"enabled\":true}"),
        ("webhook set whk_1 --all-events", "PATCH /v1/webhooks/whk_1 ", "{\"events\":null}"),
        ("webhook rotate-secret whk_1", "POST /v1/webhooks/whk_1/rotate-secret ", ""),
        ("webhook test whk_1", "POST /v1/webhooks/whk_1/test ", ""),
        ("webhook remove whk_1", "DELETE /v1/webhooks/whk_1 ", ""),
        ("suppression add a@b.example", "POST /v1/suppressions ", "{\"email\":\"a@b.example\"}"),
        ("suppression list --reason bounce --cursor c", "GET /v1/suppressions?limit=50&reason=bounce&cursor=c ", ""),
        ("suppression show a+x@b.example", "GET /v1/suppressions/a%2Bx%40b.example ", ""),
        ("suppression remove ../keys", "DELETE /v1/suppressions/..%2Fkeys ", ""),
        (
            "message list --to a@b.example --status queued",
            "GET /v1/messages?limit=50&to=a%40b.example&status=queued ",
            "",
        ),
        ("message show msg_1", "GET /v1/messages/msg_1 ", ""),
        ("message cancel msg_1", "POST /v1/messages/msg_1/cancel ", ""),
        ("event list --type bounced --message-id m", "GET /v1/events?limit=50&message_id=m&type=bounced ", ""),
        ("event list --after 1 --before 2", "GET /v1/events?limit=50&after=1&before=2 ", ""),
        (
            "message list --metadata order=10=482 --metadata test=",
            "GET /v1/messages?limit=50&metadata%5Border%5D=10%3D482&metadata%5Btest%5D= ",
            "",
        ),
    ] {
        let line = of_account(line);
        let (ran, requests) = asking(&format!("{line} --json"), &[(200, "{\"id\": 1}")]);
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "{\"id\": 1}\n"), "{line}: {ran:?}");
        assert!(requests[0].starts_with(head), "{line}: {requests:?}");
        assert!(requests[0].ends_with(&format!("\r\n\r\n{body}")), "{line}: {requests:?}");
        assert!(requests[0].contains(&format!("x-postrider-account: {ACCOUNT}\r\n")), "{line}: {requests:?}");
        let missing = "{\"message\":\"There is nothing.\",\"code\":\"not_found\"}";
        let (ran, _) = asking(&line, &[(404, missing)]);
        assert!(ran.exit == Exit::NotFound && ran.out.is_empty() && !ran.err.is_empty(), "{ran:?}");
    }
}

#[test]
fn an_empty_answer_prints_nothing_as_json_and_a_sentence_as_text() {
    let line = format!("key remove key_1 --account {ACCOUNT}");
    assert_eq!(asking(&line, &[(204, "")]).0.out, "Revoked.\n");
    let (ran, _) = asking(&format!("{line} --json"), &[(204, "")]);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, ""));
    let domain = format!("{{\"id\":\"{DOMAIN}\",\"name\":\"a.example\",\"records\":[]}}");
    for (command, head) in [
        (format!("remove {DOMAIN}"), format!("DELETE /v1/domains/{DOMAIN} ")),
        (format!("set {DOMAIN} --stream marketing"), format!("PATCH /v1/domains/{DOMAIN} ")),
        (format!("rotate-dkim {DOMAIN}"), format!("POST /v1/domains/{DOMAIN}/rotate-dkim ")),
    ] {
        let (ran, requests) = asking(&format!("domain {command} --account {ACCOUNT}"), &[(200, &domain)]);
        assert_eq!(ran.exit, Exit::Done, "{command}: {ran:?}");
        assert!(requests[0].starts_with(&head), "{command}: {requests:?}");
    }
}

#[test]
fn text_output_shows_a_secret_with_a_warning_and_a_message_with_its_timeline() {
    let account = format!("--account {ACCOUNT}");
    let made = "{\"id\":\"whk_1\",\"url\":\"https://a.example/\",\"enabled\":true,\"secret\":\"whsec_x\"}";
    let (ran, _) = asking(&format!("webhook add https://a.example/ {account}"), &[(201, made)]);
    assert!(ran.out.ends_with("secret: whsec_x\n\nSave the secret now; it won't be shown again.\n"), "{ran:?}");
    let record = "{\"id\":\"msg_1\",\"status\":\"bounced\",\"events\":[{\"created_at\":\"t\",\"type\":\"bounced\",\
        \"smtp_code\":550,\"smtp_response\":\"550 no\",\"mx_host\":\"mx\"}]}";
    let (ran, _) = asking(&format!("message show msg_1 {account}"), &[(200, record)]);
    assert!(ran.out.starts_with("id: msg_1\n") && ran.out.contains("t           bounced  mx       550"), "{ran:?}");
    let page = "{\"data\":[{\"id\":\"evt_1\",\"type\":\"queued\",\"to\":\"a@b.example\"}],\"next_cursor\":null}";
    let (ran, _) = asking(&format!("event list {account}"), &[(200, page)]);
    assert!(ran.out.starts_with("CREATED_AT  TYPE") && ran.out.contains("a@b.example"), "{ran:?}");
}
