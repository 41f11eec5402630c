//! The advice for each condition. The documentation has more under an anchor with the condition's name.

use super::Condition;

impl Condition {
    /// Returns the steps that end the condition, in one or two sentences.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Port25Blocked => {
                "Ask your hosting provider to open outgoing port 25, or send through a smarthost: a [[relay]] of kind \
                 \"smarthost\"."
            }
            Self::ReverseDns => {
                "Have the owner of the address set its reverse name (PTR) to the EHLO name, and publish that name's \
                 address."
            }
            Self::Blocklisted => {
                "Find the cause first: a high bounce or complaint rate, or a stolen key. Then follow the removal \
                 procedure of the block list."
            }
            Self::CertificateExpiring => {
                "Renew the certificate files, or run `postrider doctor` to see why no new one was issued."
            }
            Self::DiskLow => "Free disk space, or move data_dir to a larger disk.",
            Self::BackupOld => "Run `postrider backup`, and check the timer that runs it.",
            Self::UncleanStop => {
                "Look at the log and the system's journal before the restart: a crash, a lack of memory or a power \
                 failure ended the service."
            }
            Self::QueueStalled => {
                "Run `postrider queue list` to see the reasons and `postrider doctor` to check ports and DNS."
            }
            Self::RelayFailing => {
                "Correct the relay's user name and password, or list addresses of this machine under source."
            }
            Self::BounceRate => {
                "Find the origin of the bouncing addresses (events of type bounced), and stop mailing to them."
            }
            Self::ComplaintRate => {
                "Send only to people who asked for it, and let them unsubscribe with one click (see events of type \
                 complained)."
            }
            Self::ProviderBlocking => {
                "Read the provider's replies on the Providers page, and follow the links there before sending more."
            }
            Self::WebhookDisabled => {
                "Fix the receiver, then reactivate the webhook. Its deliveries are held until then."
            }
            Self::DomainFailing => {
                "Publish the domain's DKIM record again, as the only TXT record at its name. Without it the domain \
                 can't send after 72 hours."
            }
            Self::DomainRecord => {
                "Publish again the records shown as missing or different on the domain's page. Give a DMARC record the \
                 policy that it had before, if that was stricter."
            }
            Self::Quota => "Wait for the next window, send less, or ask the operator for a larger quota.",
            Self::DmarcOwnFailing => {
                "Check the failing sources on the domain's DMARC page, and the domain's DKIM and return path \
                 records."
            }
            Self::NewSignIn => "If this was you, do nothing. If not, choose another password and sign out everywhere.",
            Self::ClockDoubtful => "Correct the machine's clock, or run `postrider clock accept` if it is right.",
            Self::StoreDamaged => {
                "Take a backup now, stop the service, and run `postrider check`. Test the disk and the memory."
            }
            Self::Replica => {
                "Run `postrider replica status` for the reason. After another machine has taken over, run it there, \
                 and `postrider replica stranded` on the deposed machine for what the log lacks."
            }
        }
    }
}
