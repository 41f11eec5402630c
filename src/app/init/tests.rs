//! Stories of setting up: what is made, what is kept, and what is never touched.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn options(folder: &Path, hostname: Option<&str>) -> InitOptions {
    InitOptions {
        hostname: hostname.map(|name| name.parse().unwrap()),
        config: folder.join("etc").join("postrider.toml"),
        data_dir: Some(folder.join("data")),
        user: None,
    }
}

fn set_up(options: &InitOptions) -> Result<Made, Trouble> {
    run(options, &Environment::of([("POSTRIDER_DNS__SERVERS".to_owned(), "127.0.0.1:53".to_owned())]))
}

#[test]
fn from_nothing_to_a_configuration_an_account_and_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let made = set_up(&options(folder.path(), Some("mail.example.com"))).unwrap();
    assert!(made.api_key.starts_with("pr_live_") && made.account_id.starts_with("acc_") && made.config_is_new);
    assert_eq!(made.panel_url, "https://mail.example.com/login");
    assert_eq!(made.panel_user, "postmaster@mail.example.com");
    assert!(made.panel_password.len() >= 12, "one that a person would not guess");
    let config = Config::load(&made.config, &Environment::default()).unwrap();
    assert_eq!((config.hostname.as_str(), &config.data_dir), ("mail.example.com", &folder.path().join("data")));
    let text = fs::read_to_string(&made.config).unwrap();
    assert_eq!(text.lines().count(), EXAMPLE.lines().count(), "the comments are there");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&made.data_dir), mode(&made.data_dir.join("master.key"))), (0o700, 0o600));
}

#[test]
fn whoever_is_named_signs_in_to_the_panel() {
    let folder = tempfile::tempdir().unwrap();
    let named = options(folder.path(), Some("mail.example.com"));
    let made = set_up(&InitOptions { user: Some("ada@example.com".parse().unwrap()), ..named }).unwrap();
    assert_eq!(made.panel_user, "ada@example.com");
}

#[test]
fn a_store_that_is_there_is_a_conflict_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), Some("mail.example.com"));
    set_up(&options).unwrap();
    let store = fs::read(folder.path().join("data/postrider.redb")).unwrap();
    let trouble = set_up(&options).unwrap_err();
    assert_eq!((trouble.exit(), trouble.to_string().lines().count()), (Exit::Conflict, 3));
    assert_eq!(fs::read(folder.path().join("data/postrider.redb")).unwrap(), store);
}

#[test]
fn a_configuration_that_is_there_is_used_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let options_of = |hostname| options(folder.path(), hostname);
    let config = options_of(None).config;
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let text = "hostname = \"mx.example.org\" # ours\n";
    fs::write(&config, text).unwrap();
    let trouble = set_up(&options_of(Some("mail.example.com"))).unwrap_err();
    assert_eq!(trouble.exit(), Exit::Conflict);
    assert!(!folder.path().join("data").exists(), "nothing was begun");
    let made = set_up(&options_of(None)).unwrap();
    assert_eq!((made.hostname.as_str(), made.config_is_new), ("mx.example.org", false));
    assert_eq!(fs::read_to_string(&config).unwrap(), text);
}

/// As a package brings it: every key, and no name.
#[test]
fn a_configuration_without_a_name_gets_it_and_keeps_all_else() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), Some("mail.example.com"));
    fs::create_dir_all(options.config.parent().unwrap()).unwrap();
    let brought = EXAMPLE.replace("\nhostname = ", "\n#hostname = ");
    fs::write(&options.config, &brought).unwrap();
    fs::set_permissions(&options.config, fs::Permissions::from_mode(0o640)).unwrap();
    let made = set_up(&options).unwrap();
    assert_eq!((made.hostname.as_str(), made.config_is_new), ("mail.example.com", false));
    assert_eq!(fs::read_to_string(&options.config).unwrap(), EXAMPLE);
    assert_eq!(fs::metadata(&options.config).unwrap().permissions().mode() & 0o777, 0o640);

    let bare = tempfile::tempdir().unwrap();
    let options = self::options(bare.path(), Some("mail.example.com"));
    fs::create_dir_all(options.config.parent().unwrap()).unwrap();
    fs::write(&options.config, "[log]\nlevel = \"warn\"\n").unwrap();
    set_up(&options).unwrap();
    let text = fs::read_to_string(&options.config).unwrap();
    assert_eq!(text, "hostname = \"mail.example.com\"\n[log]\nlevel = \"warn\"\n");
}

#[test]
fn what_was_begun_and_not_finished_does_not_stand_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    for name in ["postrider.redb", "master.key"] {
        fs::write(data.join(name), "half").unwrap();
    }
    clear(&data);
    assert!(set_up(&options(folder.path(), Some("mail.example.com"))).is_ok());
}

#[test]
fn a_place_that_is_not_ours_is_told_in_three_lines() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("etc"), "a file where a folder should be").unwrap();
    let trouble = set_up(&options(folder.path(), Some("mail.example.com"))).unwrap_err();
    assert_eq!((trouble.exit(), trouble.to_string().lines().count()), (Exit::Failed, 3), "{trouble}");
}
