//! Exit codes of the program (contract 8), and the exit code for an answer of the API.

use std::process::ExitCode;

/// The program's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: failed.
    Failed,
    /// 2: the command line can't be used, or the configuration for `serve`.
    Usage,
    /// 3: the named object does not exist.
    NotFound,
    /// 4: the service is not reachable.
    Unreachable,
    /// 5: not permitted.
    NotPermitted,
    /// 6: a conflict, or the store is locked.
    Conflict,
    /// 7: `doctor` or `check` found failures.
    ChecksFailed,
    /// 8: refused by the API.
    Refused,
}

impl Exit {
    /// Returns the number that the caller of the program sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Unreachable => 4,
            Self::NotPermitted => 5,
            Self::Conflict => 6,
            Self::ChecksFailed => 7,
            Self::Refused => 8,
        }
    }

    /// Returns the exit code for an answer of the API, by its status and error code (contract 1, Errors).
    ///
    /// A 5xx is a failure of the service, not a refusal. A service that is shutting down counts as unreachable.
    pub fn of_answer(status: u16, code: &str) -> Self {
        match (status, code) {
            (200..=299, _) => Self::Done,
            (401 | 403, _) => Self::NotPermitted,
            (404, _) => Self::NotFound,
            (409, _) => Self::Conflict,
            (400..=499, _) => Self::Refused,
            (503, "shutting_down") => Self::Unreachable,
            (_, _) => Self::Failed,
        }
    }
}

impl Exit {
    /// Ends the process because of damage in the database that makes it impossible to continue. Destructors don't run.
    #[expect(clippy::disallowed_methods, reason = "nothing in the process can continue")]
    #[expect(clippy::print_stderr, reason = "the log may need what can't continue")]
    pub fn end_on_damage(self, fault: &str) {
        eprintln!("The database is damaged: {fault}. Run `postrider check`, or restore a backup.");
        std::process::exit(self.code().into());
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_api_answer_has_its_exit_code() {
        for (status, code, exit) in [
            (200, "", 0),
            (201, "", 0),
            (204, "", 0),
            (401, "unauthenticated", 5),
            (403, "stream_forbidden", 5),
            (403, "scope_forbidden", 5),
            (403, "account_suspended", 5),
            (404, "not_found", 3),
            (405, "method_not_allowed", 8),
            (408, "request_timeout", 8),
            (409, "idempotency_mismatch", 6),
            (409, "idempotency_in_progress", 6),
            (409, "conflict", 6),
            (410, "content_gone", 8),
            (413, "payload_too_large", 8),
            (415, "unsupported_media_type", 8),
            (422, "invalid_json", 8),
            (422, "validation_failed", 8),
            (422, "domain_unknown", 8),
            (422, "domain_unverified", 8),
            (422, "recipient_suppressed", 8),
            (429, "rate_limited", 8),
            (429, "quota_exceeded", 8),
            (431, "headers_too_large", 8),
            (500, "internal", 1),
            (503, "storage_full", 1),
            (503, "storage_failed", 1),
            (503, "overloaded", 1),
            (503, "shutting_down", 4),
            (301, "", 1),
        ] {
            assert_eq!(Exit::of_answer(status, code).code(), exit, "{status} {code}");
        }
    }
}
