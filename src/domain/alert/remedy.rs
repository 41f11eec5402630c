//! The advice for each condition. The documentation says more under an anchor with the condition's name.

use super::Condition;

impl Condition {
    /// Returns the steps that end the condition, in one or two sentences.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Port25Blocked => {
                "Ask the hoster to open outgoing port 25, or send through a smarthost: a [[relay]] of kind \
                 \"smarthost\"."
            }
            Self::ReverseDns => {
                "Have the owner of the address set its reverse name (PTR) to the EHLO name, and publish that name's \
                 address."
            }
            Self::Blocklisted => {
                "Find the cause first: a high bounce or complaint rate, or a stolen key. Then follow the removal \
                 steps of the list."
            }
            Self::CertificateExpiring => {
                "Renew the certificate files, or run `postrider doctor` to see why the authority issues none."
            }
            Self::DiskLow => "Free disk space, or move data_dir to a larger disk.",
            Self::BackupOld => "Run `postrider backup`, and check the timer that should have run it.",
            Self::UncleanStop => {
                "Look at the log and the system's journal before the restart: a crash, a full memory or a power \
                 failure ended the service."
            }
            Self::QueueStalled => {
                "Run `postrider queue list` to see the reasons and `postrider doctor` to check ports and DNS."
            }
            Self::RelayFailing => {
                "Correct user name and password of the relay, or name addresses of this machine under source."
            }
            Self::BounceRate => {
                "Find the origin of the addresses that bounce (events of type bounced), and stop mailing to them."
            }
            Self::ComplaintRate => {
                "Send only to people who asked for it, and let them unsubscribe with one click (see events of type \
                 complained)."
            }
            Self::ProviderBlocking => {
                "Read the provider's answers on the page Providers, and follow the links there before sending more."
            }
            Self::WebhookDisabled => {
                "Correct the receiver, then reactivate the webhook. Its deliveries are held until then."
            }
            Self::DomainFailing => {
                "Publish the domain's DKIM record again. Without it the domain can't send after 72 hours."
            }
            Self::DomainRecord => "Publish the records that the page of the domain shows as missing or different.",
            Self::Quota => "Wait for the next window, send less, or ask the operator for a larger quota.",
            Self::DmarcOwnFailing => {
                "Look at the failing sources on the DMARC page of the domain, and check its DKIM and return path \
                 records."
            }
            Self::NewSignIn => "Nothing, if this was you. If not, choose another password and sign out everywhere.",
            Self::ClockDoubtful => "Correct the machine's clock, or run `postrider clock accept` if it is right.",
            Self::StoreDamaged => {
                "Take a backup now, stop the service, and run `postrider check`. Look for faults of disk and memory."
            }
            Self::Replica => "Run `postrider replica status` for the reason.",
        }
    }
}
