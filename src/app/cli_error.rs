//! Error of a command for the operator: the action that failed, the reason, and the remedy, a line each.
//!
//! All errors of the program are printed in this form. It includes the exit code.

use std::fmt;

use super::exit::Exit;

/// A failure to report to the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliError {
    exit: Exit,
    what: String,
    why: Vec<String>,
    remedy: String,
    code: Option<String>,
}

impl CliError {
    /// Creates a failure with an exit code: the action, the reason, and the remedy.
    pub fn new(exit: Exit, what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { exit, what: what.into(), why: vec![why.into()], remedy: remedy.into(), code: None }
    }

    /// Creates a failure with several reasons, one line each.
    pub fn with_reasons(
        exit: Exit,
        what: impl Into<String>,
        why: impl IntoIterator<Item = String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { exit, what: what.into(), why: why.into_iter().collect(), remedy: remedy.into(), code: None }
    }

    /// Returns the failure with the exit code `exit`.
    #[must_use]
    pub fn ending(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// Returns the failure with another reason and without a remedy.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Self {
        Self { why: vec![why.into()], remedy: String::new(), ..self }
    }

    /// Returns the failure with the error code of the service's answer.
    #[must_use]
    pub fn with_code(self, code: Option<&str>) -> Self {
        Self { code: code.map(str::to_owned), ..self }
    }

    /// Returns the error code of the service's answer, if the service refused the request.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Returns the reasons and the remedy as one line.
    pub fn reason(&self) -> String {
        let sentences = self.why.iter().chain([&self.remedy]).filter(|line| !line.is_empty());
        sentences.map(|line| line.trim_end_matches('.')).collect::<Vec<_>>().join(". ") + "."
    }

    /// Returns the error's exit code.
    pub const fn exit(&self) -> Exit {
        self.exit
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postrider: {}", self.what)?;
        for line in self.why.iter().chain([&self.remedy]).filter(|line| !line.is_empty()) {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CliError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_one_line_each_for_action_reason_and_remedy() {
        let cli_error =
            CliError::new(Exit::NotFound, "cannot show the domain", "it does not exist", "List the domains.");
        assert_eq!(
            cli_error.to_string(),
            "postrider: cannot show the domain\n  it does not exist\n  List the domains."
        );
        assert_eq!(cli_error.exit(), Exit::NotFound);
    }
}
