//! Forms whose answer shows a secret once. A browser that reloads such an answer sends the same form again. Each page
//! gives its forms a number, so the repeated form is recognised and not executed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::base::entropy::{self, Entropy};

/// Maximum number of remembered forms: about 200 KiB. Beyond it, forms of the oldest pages are refused.
const REMEMBERED_MAX: usize = 4096;

/// Digest of a form: its sender, path and fields.
pub(crate) type FormDigest = [u8; 32];

/// Remembers the forms that were sent since the start.
#[derive(Default)]
pub struct SentForms {
    /// Number of this run. Forms of pages from another run may have been sent then.
    run: OnceLock<u64>,
    pages: AtomicU64,
    sent: Mutex<Sent>,
}

#[derive(Default)]
struct Sent {
    /// Number of the oldest page whose forms are remembered.
    oldest: u64,
    forms: BTreeSet<(u64, FormDigest)>,
}

/// Result of looking up a form.
pub(crate) enum FormLookup<'f> {
    /// The form was not sent before. It is remembered while the value lives, and longer after [`SentForm::keep`].
    New(SentForm<'f>),
    /// The form was sent before.
    Repeated,
    /// The form's page is too old to know whether the form was sent.
    Outdated,
}

/// A form that is being executed.
pub(crate) struct SentForm<'f> {
    forms: &'f SentForms,
    form: (u64, FormDigest),
    is_kept: bool,
}

impl SentForms {
    /// Returns the number for the forms of a new page.
    pub(crate) fn number(&self, entropy: &dyn Entropy) -> String {
        let run = self.run.get_or_init(|| u64::from_be_bytes(entropy::bytes(entropy)));
        format!("{run:016x}-{:x}", self.pages.fetch_add(1, Relaxed))
    }

    /// Looks up a form by the number of its page and its digest.
    pub(crate) fn look_up(&self, number: &str, digest: FormDigest) -> FormLookup<'_> {
        let Some(page) = self.page(number) else { return FormLookup::Outdated };
        let mut sent = self.sent();
        if page < sent.oldest {
            return FormLookup::Outdated;
        }
        if !sent.forms.insert((page, digest)) {
            return FormLookup::Repeated;
        }
        if sent.forms.len() > REMEMBERED_MAX
            && let Some((oldest, _)) = sent.forms.pop_first()
        {
            sent.oldest = oldest.saturating_add(1);
        }
        FormLookup::New(SentForm { forms: self, form: (page, digest), is_kept: false })
    }

    /// Returns the page of a number of this run.
    fn page(&self, number: &str) -> Option<u64> {
        let (run, page) = number.split_once('-')?;
        let run = u64::from_str_radix(run, 16).ok()?;
        let page = u64::from_str_radix(page, 16).ok()?;
        (self.run.get() == Some(&run) && page < self.pages.load(Relaxed)).then_some(page)
    }

    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SentForm<'_> {
    /// Remembers the form, because it was executed.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for SentForm<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.forms.sent().forms.remove(&self.form);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::entropy::SeededEntropy;

    fn is_new(forms: &SentForms, number: &str, digest: u8) -> bool {
        match forms.look_up(number, [digest; 32]) {
            FormLookup::New(form) => {
                form.keep();
                true
            }
            FormLookup::Repeated | FormLookup::Outdated => false,
        }
    }

    #[test]
    fn a_form_is_new_once_and_again_if_it_was_not_executed() {
        let (forms, entropy) = (SentForms::default(), SeededEntropy::new(1));
        let (one, other) = (forms.number(&entropy), forms.number(&entropy));
        drop(forms.look_up(&one, [1; 32]));
        assert!(is_new(&forms, &one, 1));
        assert!(matches!(forms.look_up(&one, [1; 32]), FormLookup::Repeated));
        assert!(is_new(&forms, &one, 2) && is_new(&forms, &other, 1), "another form, and another page");
    }

    #[test]
    fn numbers_of_another_run_and_invented_ones_are_outdated() {
        let (forms, entropy) = (SentForms::default(), SeededEntropy::new(1));
        let number = forms.number(&entropy);
        let run = number.split_once('-').unwrap().0;
        let earlier = SentForms::default().number(&SeededEntropy::new(2));
        for unknown in [earlier.as_str(), &format!("{run}-1"), "x-y", "x"] {
            assert!(matches!(forms.look_up(unknown, [1; 32]), FormLookup::Outdated), "{unknown}");
        }
    }

    #[test]
    fn memory_is_bounded_and_forgotten_forms_are_never_new_again() {
        let (forms, entropy) = (SentForms::default(), SeededEntropy::new(1));
        let numbers: Vec<_> = (0..=REMEMBERED_MAX).map(|_| forms.number(&entropy)).collect();
        assert!(numbers.iter().all(|number| is_new(&forms, number, 1)));
        assert_eq!(forms.sent().forms.len(), REMEMBERED_MAX);
        assert!(matches!(forms.look_up(&numbers[0], [1; 32]), FormLookup::Outdated));
        assert!(matches!(forms.look_up(&numbers[1], [1; 32]), FormLookup::Repeated));
    }
}
