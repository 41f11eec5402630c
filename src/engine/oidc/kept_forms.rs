//! Forms that wait until their users have signed in again at the identity provider. A form can contain secrets, so it
//! stays in memory; the browser gets only its random name.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::base::entropy::{self, Entropy};
use crate::base::id::UserId;
use crate::base::secret::Secret;
use crate::base::time::Timestamp;

/// Time for which a form is kept: some minutes for the decision, and the time limit at the provider.
const LIFETIME: Duration = Duration::from_secs(20 * 60);
/// Maximum number of forms of one user. A new one replaces the oldest.
const OF_USER_MAX: usize = 4;
/// Maximum number of forms of all users. The panel limits a form to 8 KiB, so these are at most 2 MiB.
const FORMS_MAX: usize = 256;

/// A form of the panel.
pub struct KeptForm {
    /// Path that the form posts to.
    pub path: String,
    /// The form's fields, encoded.
    pub body: Secret,
}

struct Entry {
    name: String,
    user: UserId,
    kept_at: Timestamp,
    form: KeptForm,
}

/// The kept forms of all users, oldest first.
#[derive(Default)]
pub struct KeptForms(Mutex<VecDeque<Entry>>);

impl KeptForms {
    /// Keeps a form of a user from `now` on. Returns its name.
    pub fn keep(&self, user: UserId, form: KeptForm, now: Timestamp, entropy: &dyn Entropy) -> String {
        let name = hex::encode(entropy::bytes::<16>(entropy));
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| is_current(entry, now));
        let of_user = entries.iter().filter(|entry| entry.user == user).count();
        let oldest = match of_user < OF_USER_MAX {
            true if entries.len() < FORMS_MAX => None,
            true => Some(0),
            false => entries.iter().position(|entry| entry.user == user),
        };
        if let Some(oldest) = oldest {
            entries.remove(oldest);
        }
        entries.push_back(Entry { name: name.clone(), user, kept_at: now, form });
        name
    }

    /// Removes and returns the user's form with this name.
    pub fn take(&self, user: UserId, name: &str, now: Timestamp) -> Option<KeptForm> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| is_current(entry, now));
        let at = entries.iter().position(|entry| entry.user == user && entry.name == name)?;
        entries.remove(at).map(|entry| entry.form)
    }
}

fn is_current(entry: &Entry, now: Timestamp) -> bool {
    now.since(entry.kept_at) < LIFETIME
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;
    use crate::base::id::Ulid;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn user(number: u128) -> UserId {
        UserId(Ulid(number.to_be_bytes()))
    }

    fn form(path: &str) -> KeptForm {
        KeptForm { path: path.to_owned(), body: Secret::new("a=1") }
    }

    #[test]
    fn only_the_same_user_gets_a_form_once_and_in_time() {
        let (forms, entropy) = (KeptForms::default(), SeededEntropy::new(1));
        let name = forms.keep(user(1), form("/users"), NOW, &entropy);
        assert!(forms.take(user(2), &name, NOW).is_none() && forms.take(user(1), "", NOW).is_none());
        let taken = forms.take(user(1), &name, NOW).unwrap();
        assert_eq!((taken.path.as_str(), taken.body.expose_text()), ("/users", "a=1"));
        assert!(forms.take(user(1), &name, NOW).is_none());
        let late = forms.keep(user(1), form("/users"), NOW, &entropy);
        assert!(forms.take(user(1), &late, NOW + LIFETIME).is_none());
    }

    #[test]
    fn the_number_of_forms_is_bounded_for_each_user_and_in_total() {
        let (forms, entropy) = (KeptForms::default(), SeededEntropy::new(2));
        let names: Vec<_> = (0..=OF_USER_MAX).map(|_| forms.keep(user(1), form("/"), NOW, &entropy)).collect();
        assert!(forms.take(user(1), &names[0], NOW).is_none() && forms.take(user(1), &names[1], NOW).is_some());
        for number in 0..FORMS_MAX as u128 * 2 {
            forms.keep(user(number + 2), form("/"), NOW, &entropy);
        }
        assert_eq!(forms.0.lock().unwrap().len(), FORMS_MAX);
        forms.keep(user(1), form("/"), NOW + LIFETIME, &entropy);
        assert_eq!(forms.0.lock().unwrap().len(), 1, "expired forms are removed");
    }
}
