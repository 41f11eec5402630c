//! The source of the configuration: an option, `POSTRIDER_CONFIG`, the path that packages use, or the defaults with the
//! environment's variables.

use std::path::{Path, PathBuf};

use super::{CONFIG_VARIABLE, EarlyExit};
use crate::app::cli_error::CliError;
use crate::app::config::Config;
use crate::app::environment::Environment;
use crate::app::exit::Exit;

/// Path of the configuration in packages.
pub(super) const PACKAGED: &str = "/etc/postrider/postrider.toml";
/// Variable with this server's name, if there is no file.
pub(super) const HOSTNAME_VARIABLE: &str = "POSTRIDER_HOSTNAME";

/// Returns the file that an option or the variable names.
pub(super) fn named(option: Option<PathBuf>, environment: &Environment) -> Option<PathBuf> {
    option.or_else(|| environment.path(CONFIG_VARIABLE))
}

/// Returns the file to read: the named one, or `packaged` if it exists.
pub(super) fn file(option: Option<PathBuf>, environment: &Environment, packaged: &Path) -> Option<PathBuf> {
    named(option, environment).or_else(|| packaged.exists().then(|| packaged.to_owned()))
}

/// Returns the configuration from the file to read, or the defaults with the variables if there is no file.
pub(super) fn configuration(option: Option<PathBuf>, environment: &Environment) -> Result<Config, EarlyExit> {
    let read = match file(option, environment, Path::new(PACKAGED)) {
        Some(file) => Config::load(&file, environment),
        None => Config::of_environment(environment),
    };
    Ok(read.map_err(CliError::from)?)
}

/// Returns the configuration for `serve`. Without a file the environment must contain the server's name.
pub(super) fn to_serve(
    option: Option<PathBuf>,
    environment: &Environment,
    packaged: &Path,
) -> Result<Config, CliError> {
    if let Some(file) = file(option, environment, packaged) {
        return Ok(Config::load(&file, environment)?);
    }
    if environment.text(HOSTNAME_VARIABLE).is_none() {
        return Err(CliError::new(
            Exit::Usage,
            "no configuration to serve with",
            format!("there is no file {} and {HOSTNAME_VARIABLE} is not set", packaged.display()),
            format!(
                "Choose a file with --config or {CONFIG_VARIABLE}, or set {HOSTNAME_VARIABLE} to this server's name."
            ),
        ));
    }
    Ok(Config::of_environment(environment)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        Environment::of(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn an_option_overrides_the_variable_which_overrides_the_packaged_path() {
        let folder = tempfile::tempdir().unwrap();
        let packaged = folder.path().join("postrider.toml");
        let (nothing, variable) = (environment(&[]), environment(&[(CONFIG_VARIABLE, "/variable.toml")]));
        let found = |option: Option<&str>, environment| file(option.map(PathBuf::from), environment, &packaged);
        assert_eq!(found(None, &nothing), None);
        fs::write(&packaged, "").unwrap();
        assert_eq!(found(None, &nothing), Some(packaged.clone()));
        assert_eq!(found(None, &variable), Some("/variable.toml".into()));
        assert_eq!(found(Some("/option.toml"), &variable), Some("/option.toml".into()));
    }

    #[test]
    fn serve_requires_a_file_or_a_hostname() {
        let folder = tempfile::tempdir().unwrap();
        let packaged = folder.path().join("postrider.toml");
        let cli_error = to_serve(None, &environment(&[]), &packaged).unwrap_err();
        let said = cli_error.to_string();
        assert_eq!(cli_error.exit(), Exit::Usage);
        assert!(said.contains(packaged.to_str().unwrap()) && said.contains("POSTRIDER_HOSTNAME"), "{said}");
        let named = environment(&[
            (HOSTNAME_VARIABLE, "mail.example.com"),
            ("POSTRIDER_HTTP__TLS__MODE", "off"),
            ("POSTRIDER_HTTP__LISTEN", r#"["0.0.0.0:8025"]"#),
            ("POSTRIDER_DATA_DIR", "/data"),
        ]);
        let config = to_serve(None, &named, &packaged).unwrap();
        assert_eq!((config.hostname.as_str(), config.data_dir.to_str()), ("mail.example.com", Some("/data")));
        assert_eq!(config.http.listen, ["0.0.0.0:8025".parse().unwrap()]);
    }
}
