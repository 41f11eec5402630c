//! Limits on a submission client's behaviour: faulty commands, commands without effect, failed logins.
//!
//! A client that loops or probes ends its own session. A client that sends mail never reaches these limits.

use super::answer::Answer;

/// Number of faulty commands before the login after which the session ends.
const FAULTS_MAX_BEFORE_LOGIN: u32 = 5;
/// Number of commands without effect between two messages after which the session ends.
const IDLE_MAX: u32 = 100;
/// Number of failed logins after which the session ends.
const LOGINS_MAX: u32 = 3;

/// The counts of one session.
#[derive(Debug, Default)]
pub(super) struct SessionCounts {
    faults: u32,
    idle: u32,
    failed_logins: u32,
}

impl SessionCounts {
    /// Counts an answer. Returns whether the session must end with it. `faults_max` applies after the login.
    pub(super) const fn answered(&mut self, answer: &Answer, is_logged_in: bool, faults_max: u32) -> bool {
        if !matches!(answer.code(), 500..=504 | 530 | 555) {
            return false;
        }
        self.faults += 1;
        self.faults >= if is_logged_in { faults_max } else { FAULTS_MAX_BEFORE_LOGIN }
    }

    /// Counts a command without effect, such as NOOP. Returns whether the session must end with it.
    pub(super) const fn idled(&mut self) -> bool {
        self.idle += 1;
        self.idle >= IDLE_MAX
    }

    /// Counts a failed login. Returns whether the session must end with it.
    pub(super) const fn login_failed(&mut self) -> bool {
        self.failed_logins += 1;
        self.failed_logins >= LOGINS_MAX
    }

    /// Resets the count of commands without effect after a message.
    pub(super) const fn message_came(&mut self) {
        self.idle = 0;
    }
}
