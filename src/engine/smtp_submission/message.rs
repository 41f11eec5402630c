//! The final dot: accepts the messages of a transaction, all or none, and answers.

use super::accepting::{Failure, ReceivedTransaction};
use super::{Decision, SmtpRefusal, SmtpSession, SubmissionStage};
use crate::mail::submitted;
use crate::smtp::server::Answer;

impl SmtpSession {
    /// Accepts the message for all recipients of the transaction, which ends with it. The answer comes after the
    /// commit; the caller must not stop or drop this future before that.
    ///
    /// `message` contains the bytes between DATA and the final dot, with dots unstuffed. Line ends may be CR LF or LF.
    pub async fn message(&mut self, message: Vec<u8>) -> Decision {
        let began = self.engine.clock.monotonic();
        let (mail_from, from) = (self.mail_from(), submitted::from_text(&message));
        let accepted = match self.submitting() {
            Some(submitting) => submitting.accept(message).await,
            None => Err(Failure::Answer(Answer::new(503, "5.5.1", "MAIL and RCPT come before DATA"))),
        };
        self.engine.meters.submission.answered(self.engine.clock.monotonic().saturating_sub(began));
        match accepted {
            Ok(ids) => Decision::Answer(Answer::queued(&ids)),
            Err(Failure::InDoubt) => Decision::CloseWithoutAnswer,
            Err(Failure::Answer(answer)) => {
                let refusal = SmtpRefusal { mail_from, from, ..SmtpRefusal::default() };
                self.refused(SubmissionStage::Data, &answer, refusal);
                Decision::Answer(answer)
            }
        }
    }

    /// Ends the transaction, and returns it with its message's submission.
    fn submitting(&mut self) -> Option<ReceivedTransaction> {
        let (transaction, login) = (self.transaction.take()?, self.login.as_ref()?);
        let (engine, client) = (self.engine.clone(), self.client.clone());
        (!transaction.recipients.is_empty())
            .then(|| ReceivedTransaction::new(engine, login.caller.clone(), client, transaction))
    }

    fn mail_from(&self) -> String {
        self.transaction.as_ref().map(|transaction| transaction.sender.mail_from.clone()).unwrap_or_default()
    }
}
