//! Header fields that tie a complaint to its message: `Feedback-ID` on every message, and `CFBL-Address` with
//! `CFBL-Feedback-ID` (RFC 9477) if the domain's return path points to us.
//!
//! Every recipient sees them, so their token uses separate keys and is not a return path. They are written before
//! signing, so the DKIM signature covers them. A mailbox provider that returns the header section of a reported message
//! returns the token with it.

use super::field;
use crate::domain::hostname::DomainName;
use crate::domain::return_path::AccountHint;
use crate::domain::stream::Stream;

/// The local part of the complaints mailbox, at any of our hosts.
pub const FEEDBACK_MAILBOX: &str = "fbl";

/// Values of the fields.
#[derive(Clone, Copy, Debug)]
pub struct Feedback<'a> {
    /// The message's authenticated token.
    pub token: &'a str,
    /// The message's stream.
    pub stream: Stream,
    /// The sender's identifier, by which mailbox providers aggregate complaints.
    pub sender: AccountHint,
    /// The sending domain, if `rp.<domain>` is known to point to us.
    pub aligned: Option<&'a DomainName>,
}

/// Returns the fields, each with its line end.
pub fn fields(feedback: &Feedback<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let Feedback { token, stream, sender, aligned } = feedback;
    // The sender's identifier comes last and has 5 to 15 characters, as Gmail requires.
    field::plain(&mut out, "Feedback-ID", &format!("{token}:{stream}:{sender}"));
    if let Some(domain) = aligned {
        field::plain(&mut out, "CFBL-Address", &format!("{FEEDBACK_MAILBOX}@rp.{domain}; report=arf"));
        field::plain(&mut out, "CFBL-Feedback-ID", token);
    }
    out
}

/// Returns the possible tokens in a value of `Feedback-ID` or `CFBL-Feedback-ID`.
pub fn candidates(value: &str) -> impl Iterator<Item = &str> {
    value.split(':').map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::AccountId;

    #[test]
    fn complaint_fields_are_written_only_if_the_return_path_is_ours() {
        let domain: DomainName = "news.example.com".parse().unwrap();
        let sender = AccountHint::of(AccountId::default());
        let feedback = Feedback { token: "0abc", stream: Stream::Marketing, sender, aligned: None };
        let id = format!("Feedback-ID: 0abc:marketing:{sender}\r\n");
        assert_eq!(String::from_utf8(fields(&feedback)).unwrap(), id);
        let both = fields(&Feedback { aligned: Some(&domain), ..feedback });
        let cfbl = "CFBL-Address: fbl@rp.news.example.com; report=arf\r\nCFBL-Feedback-ID: 0abc\r\n";
        assert_eq!(String::from_utf8(both).unwrap(), format!("{id}{cfbl}"));
    }

    #[test]
    fn finds_the_token_at_any_position_of_the_value() {
        assert!(candidates(" x : 0abc:marketing").any(|candidate| candidate == "0abc"));
        assert_eq!(candidates("0abc").collect::<Vec<_>>(), ["0abc"]);
    }
}
