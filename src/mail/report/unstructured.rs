//! Bounces in the words of their programs: qmail's QSBMF, Exim's and Exchange's older forms, plain text. What they say
//! is a guess, so nobody is suppressed for it.

use crate::domain::enhanced_code::EnhancedCode;

/// A bounce without fields that could be relied on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnstructuredBounce {
    /// What it says, up to where it quotes the message; at most [`super::TEXT_OCTETS_MAX`].
    pub text: String,
    /// The reply code that it most likely quotes, 400 to 599.
    pub smtp_code: Option<u16>,
    /// The enhanced code that it most likely quotes.
    pub enhanced: Option<EnhancedCode>,
}
