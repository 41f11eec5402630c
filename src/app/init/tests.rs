//! Tests of `init`: the files it creates, the ones it keeps, and the ones it never changes.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn options(folder: &Path, hostname: Option<&str>) -> InitOptions {
    InitOptions {
        hostname: hostname.map(|name| name.parse().unwrap()),
        config: Some(folder.join("etc").join("postrider.toml")),
        data_dir: Some(folder.join("data")),
        user: None,
    }
}

fn set_up(options: &InitOptions) -> Result<InitResult, CliError> {
    run(options, &Environment::of([("POSTRIDER_DNS__SERVERS".to_owned(), "127.0.0.1:53".to_owned())]))
}

#[test]
fn init_creates_a_configuration_an_account_and_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let made = set_up(&options(folder.path(), Some("mail.example.com"))).unwrap();
    assert!(made.api_key.starts_with("pr_live_") && made.account_id.starts_with("acc_") && made.config_is_new);
    assert_eq!(made.panel_url, "https://mail.example.com/login");
    assert_eq!(made.panel_user, "postmaster@mail.example.com");
    assert!(made.panel_password.len() >= 12, "long enough to be hard to guess");
    let config = Config::load(made.config.as_ref().unwrap(), &Environment::default()).unwrap();
    assert_eq!((config.hostname.as_str(), &config.data_dir), ("mail.example.com", &folder.path().join("data")));
    let text = fs::read_to_string(made.config.as_ref().unwrap()).unwrap();
    assert_eq!(text.lines().count(), EXAMPLE.lines().count(), "the comments are kept");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&made.data_dir), mode(&made.data_dir.join("master.key"))), (0o700, 0o600));
}

#[test]
fn the_user_option_sets_the_panel_user() {
    let folder = tempfile::tempdir().unwrap();
    let named = options(folder.path(), Some("mail.example.com"));
    let made = set_up(&InitOptions { user: Some("ada@example.com".parse().unwrap()), ..named }).unwrap();
    assert_eq!(made.panel_user, "ada@example.com");
}

#[test]
fn an_existing_store_is_a_conflict_and_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), Some("mail.example.com"));
    set_up(&options).unwrap();
    let store = fs::read(folder.path().join("data/postrider.redb")).unwrap();
    let cli_error = set_up(&options).unwrap_err();
    assert_eq!((cli_error.exit(), cli_error.to_string().lines().count()), (Exit::Conflict, 3));
    assert_eq!(fs::read(folder.path().join("data/postrider.redb")).unwrap(), store);
}

#[test]
fn an_existing_configuration_is_used_and_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let options_of = |hostname| options(folder.path(), hostname);
    let config = options_of(None).config.unwrap();
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let text = "hostname = \"mx.example.org\" # ours\n";
    fs::write(&config, text).unwrap();
    let cli_error = set_up(&options_of(Some("mail.example.com"))).unwrap_err();
    assert_eq!(cli_error.exit(), Exit::Conflict);
    assert!(!folder.path().join("data").exists(), "nothing was created");
    let made = set_up(&options_of(None)).unwrap();
    assert_eq!((made.hostname.as_str(), made.config_is_new), ("mx.example.org", false));
    assert_eq!(fs::read_to_string(&config).unwrap(), text);
}

/// Uses a file as from a package: every key, and no name.
#[test]
fn a_configuration_without_a_hostname_gets_only_that_added() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), Some("mail.example.com"));
    let file = options.config.clone().unwrap();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let brought = EXAMPLE.replace("\nhostname = ", "\n#hostname = ");
    fs::write(&file, &brought).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let made = set_up(&options).unwrap();
    assert_eq!((made.hostname.as_str(), made.config_is_new), ("mail.example.com", false));
    assert_eq!(fs::read_to_string(&file).unwrap(), EXAMPLE);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);

    let bare = tempfile::tempdir().unwrap();
    let options = self::options(bare.path(), Some("mail.example.com"));
    let file = options.config.clone().unwrap();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "[log]\nlevel = \"warn\"\n").unwrap();
    set_up(&options).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text, "hostname = \"mail.example.com\"\n[log]\nlevel = \"warn\"\n");
}

#[test]
fn an_unfinished_init_can_be_repeated() {
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
fn an_inaccessible_path_is_reported_in_three_lines() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("etc"), "a file where a folder should be").unwrap();
    let cli_error = set_up(&options(folder.path(), Some("mail.example.com"))).unwrap_err();
    assert_eq!((cli_error.exit(), cli_error.to_string().lines().count()), (Exit::Failed, 3), "{cli_error}");
}

#[test]
fn with_the_hostname_in_the_environment_no_file_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let environment = Environment::of([
        ("POSTRIDER_HOSTNAME".to_owned(), "mail.example.com".to_owned()),
        ("POSTRIDER_DNS__SERVERS".to_owned(), "127.0.0.1:53".to_owned()),
        ("POSTRIDER_DATA_DIR".to_owned(), data.display().to_string()),
    ]);
    let nothing = InitOptions { hostname: None, config: None, data_dir: None, user: None };
    let made = run(&nothing, &environment).unwrap();
    assert_eq!((made.hostname.as_str(), &made.data_dir, made.config), ("mail.example.com", &data, None));
    assert!(data.join("postrider.redb").exists());
    let entries: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(entries, ["data"], "nothing else is written");
    let other = InitOptions { hostname: Some("other.example.com".parse().unwrap()), ..nothing };
    assert_eq!(run(&other, &environment).unwrap_err().exit(), Exit::Conflict);
}
