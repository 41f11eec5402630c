//! The copies of one message: each recipient's header section, signature and sealed body. CPU-bound, without side
//! effects.

use std::sync::Arc;

use super::accepting::Claims;
use super::{SmtpClient, reply};
use crate::base::id::MessageId;
use crate::domain::address::Address;
use crate::domain::submission::{Content, Submission};
use crate::engine::signing::MESSAGES_PER_JOB;
use crate::engine::submit::message_builder::{MessageBuilder, bucket};
use crate::engine::submit::{SubmitError, answer};
use crate::engine::{Caller, Engine};
use crate::machine::service_clock::ServiceTime;
use crate::mail::dkim::{self, BodyHash, SigningKey};
use crate::mail::submitted::{CopyFacts, SubmittedMessage, received};
use crate::store::content::{CompressedEnd, Place, SealedBody};
use crate::store::error::{OpError, StoreError};
use crate::store::op::accept::Accept;
use crate::store::op::admission::{self, Admission, AdmissionRequest, Admitted, Refusal, StorageRoom};
use crate::store::row::message::{MessageRow, SmtpFacts};

/// Size of sealed copies, in bytes, that are made before they are appended.
const CHUNK_BYTES: u64 = 256 << 10;
/// Maximum size of a client's text that a message keeps, in bytes. An invalid Message-ID may be as long as the header
/// section.
const TEXT_BYTES_MAX: usize = 998;
/// Maximum size of a client's name, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// The position of a recipient, and the reason why it gets no copy.
type RefusedAt = (usize, OpError<Refusal>);

/// A message, and the data that its copies share.
pub(super) struct SharedMessage {
    pub(super) message: SubmittedMessage,
    /// Digest of the message, if an idempotency key needs it.
    pub(super) fingerprint: Option<[u8; 32]>,
    body_hash: BodyHash,
    /// The compressed body. `None` for a single copy, which is compressed as a whole.
    end: Option<CompressedEnd>,
    facts: SmtpFacts,
}

impl SharedMessage {
    /// Prepares a message for its copies. Takes time in proportion to its size.
    pub(super) fn new(message: SubmittedMessage, copies: usize, mail_from: String, client: SmtpClient) -> Self {
        let facts = SmtpFacts {
            mail_from,
            client_name: cut(client.name, NAME_BYTES_MAX),
            client_address: client.address.to_string(),
            tls_version: client.tls_version,
            key_prefix: String::new(),
            original_message_id: message.original_message_id.clone().map(|id| cut(id, TEXT_BYTES_MAX)),
            keeps_message_id: false,
            recipients: 0,
            first_id: MessageId::default(),
        };
        Self {
            fingerprint: message.steering.idempotency_key.is_some().then(|| message.fingerprint()),
            body_hash: BodyHash::of(message.body()),
            end: (copies > 1).then(|| CompressedEnd::of(message.body())),
            message,
            facts,
        }
    }
}

/// The copies of a message, which are made in turn.
pub(super) struct Copies {
    caller: Arc<Caller>,
    shared: Arc<SharedMessage>,
    recipients: Arc<[Address]>,
    claims: Claims,
    admitted: Option<Box<Admitted>>,
    facts: SmtpFacts,
    time: ServiceTime,
    /// The identifier for each recipient, as far as it is known.
    ids: Vec<String>,
    /// The recipients that get a copy, each with its identifier, in ascending order of both.
    new: Vec<(usize, MessageId)>,
    /// The number of copies made so far, and their size in bytes.
    made: usize,
    stored_bytes: u64,
}

/// Some copies, ready to be appended.
#[derive(Default)]
pub(super) struct Chunk {
    pub(super) bodies: Vec<SealedBody>,
    pub(super) accepts: Vec<Accept>,
}

impl Chunk {
    /// Returns whether the chunk should be appended before more copies are made.
    pub(super) fn is_full(&self) -> bool {
        self.bodies.iter().map(SealedBody::stored_bytes).sum::<u64>() >= CHUNK_BYTES
    }
}

impl Copies {
    /// Checks in a snapshot whether every recipient may have a copy, and reserves the identifiers.
    pub(super) fn begin(
        engine: &Engine,
        caller: Arc<Caller>,
        shared: Arc<SharedMessage>,
        recipients: Arc<[Address]>,
        claims: Claims,
    ) -> Result<Self, RefusedAt> {
        let time = engine.clock.time();
        let snapshot = engine.store.snapshot().map_err(|error| (0, OpError::Failed(error)))?;
        let (mut ids, mut new, mut admitted) = (vec![String::new(); recipients.len()], Vec::new(), None);
        for (place, to) in recipients.iter().enumerate() {
            let question = AdmissionRequest {
                account: caller.account,
                key_stream: caller.key.as_ref().and_then(|key| key.stream),
                from: &shared.message.from,
                to,
                has_unsubscribe_url: shared.message.unsubscribe_url.is_some(),
                idempotency: claims[place].as_ref(),
                storage: StorageRoom { max: engine.settings.stored_bytes_per_account, wanted: 1 },
            };
            match admission::check(&snapshot, &question, &time).map_err(|stop| (place, stop))? {
                Admission::Replay { answer, .. } => ids[place] = reply::id_of(&answer),
                Admission::Admitted(found) => {
                    new.push((place, MessageId::default()));
                    admitted = Some(found);
                }
            }
        }
        let reserved = engine.store.reserve_message_ids(time.now, new.len());
        new.iter_mut().zip(&reserved).for_each(|((_, id), reserved)| *id = *reserved);
        let keeps_message_id = admitted.as_ref().is_some_and(|admitted| admitted.account.keep_message_id)
            && shared.message.has_valid_message_id;
        let facts = SmtpFacts {
            key_prefix: caller.key.as_ref().map(|key| key.prefix.clone()).unwrap_or_default(),
            keeps_message_id,
            recipients: u32::try_from(new.len()).unwrap_or(u32::MAX),
            first_id: reserved.first().copied().unwrap_or_default(),
            ..shared.facts.clone()
        };
        Ok(Self { caller, shared, recipients, claims, admitted, facts, time, ids, new, made: 0, stored_bytes: 0 })
    }

    /// Returns whether all copies are made.
    pub(super) fn is_done(&self) -> bool {
        self.made == self.new.len()
    }

    /// Returns the identifiers of replays, and the positions of the recipients with a copy.
    pub(super) fn into_ids(self) -> (Vec<String>, Vec<usize>) {
        (self.ids, self.new.into_iter().map(|(place, _)| place).collect())
    }

    /// Adds the next copies to `chunk`, as many as one job makes.
    pub(super) fn with_next(mut self, engine: &Engine, chunk: Chunk) -> (Self, Result<Chunk, RefusedAt>) {
        let chunk = engine.signing.timed(|| self.next(engine, chunk));
        (self, chunk)
    }

    fn next(&mut self, engine: &Engine, mut chunk: Chunk) -> Result<Chunk, RefusedAt> {
        let Some(admitted) = self.admitted.take() else { return Ok(chunk) };
        let end = self.new.len().min(self.made + MESSAGES_PER_JOB);
        while self.made < end && !chunk.is_full() {
            let (place, id) = self.new[self.made];
            let (body, accept) = self.copy(engine, place, id, &admitted).map_err(|stop| (place, stop))?;
            self.made += 1;
            self.stored_bytes += body.stored_bytes();
            let storage = StorageRoom { max: engine.settings.stored_bytes_per_account, wanted: self.stored_bytes };
            let checked = engine.store.snapshot().map_err(OpError::Failed);
            checked.and_then(|snapshot| storage.check(&snapshot, self.caller.account)).map_err(|stop| (place, stop))?;
            chunk.bodies.push(body);
            chunk.accepts.push(accept);
        }
        self.admitted = Some(admitted);
        Ok(chunk)
    }

    /// Makes one recipient's copy: trace field, signatures, fields for complaints, header section and body.
    fn copy(
        &self,
        engine: &Engine,
        place: usize,
        id: MessageId,
        admitted: &Admitted,
    ) -> Result<(SealedBody, Accept), OpError<Refusal>> {
        let Engine { store, settings, signing, .. } = engine;
        let workbench = MessageBuilder { store, settings, keys: signing.keys(), helpers: None };
        let (account, message, to) = (self.caller.account, &self.shared.message, &self.recipients[place]);
        let is_hosted = message.unsubscribe_url.is_some() && admitted.account.hosted_unsubscribe;
        let hosted = if is_hosted { settings.unsubscribe_link(account, id) } else { None };
        let facts = CopyFacts {
            id,
            at: self.time.wall,
            keeps_message_id: self.facts.keeps_message_id,
            hosted_unsubscribe: hosted.as_ref(),
        };
        let head = [workbench.feedback(account, id, admitted), message.head(&facts)].concat();
        let sign = |keys: &[&SigningKey]| dkim::sign_head(keys, &head, &self.shared.body_hash, self.time.wall);
        let signatures = workbench.signatures(admitted, sign).map_err(stopped)?;
        let trace = received(&settings.hostname, id, self.time.wall);
        let signed = [trace.as_slice(), &signatures, &head, message.body()].concat();
        let row = MessageRow {
            submission: Some(Box::new(self.facts.clone())),
            ..workbench.row(
                &self.caller,
                id,
                &self.submission(to),
                &message.composed(&head, to),
                admitted,
                self.time.now,
                signed.len(),
            )
        };
        let bucket = bucket(admitted, &self.time);
        let row = MessageRow { place: Place::unknown(bucket), ..row };
        let body = match &self.shared.end {
            Some(end) => store.content().seal_with(bucket, id, signed, end),
            None => store.content().seal(bucket, id, signed),
        };
        let accept = Accept {
            account,
            key_stream: self.caller.key.as_ref().and_then(|key| key.stream),
            id,
            answer: answer(id, &row),
            message: row,
            idempotency: self.claims[place],
            stored_bytes_max: settings.stored_bytes_per_account,
        };
        Ok((body, accept))
    }

    /// Returns the message to one recipient as an API submission, without its content.
    fn submission(&self, to: &Address) -> Submission {
        let message = &self.shared.message;
        Submission {
            to_name: None,
            list_unsubscribe: None,
            from: message.from.clone(),
            from_name: message.from_name.clone(),
            to: to.clone(),
            content: Content::Raw(Vec::new()),
            unsubscribe_url: message.unsubscribe_url.clone(),
            metadata: message.steering.notes.metadata.clone(),
            expires_at: message.steering.expires_at(),
        }
    }
}

/// Converts a failure in making a copy. It is never the client's fault.
fn stopped(error: SubmitError) -> OpError<Refusal> {
    match error {
        SubmitError::Failed(error) => OpError::Failed(error),
        SubmitError::Refused(refusal) => OpError::Refused(refusal),
        SubmitError::Full => OpError::Failed(StoreError::Full),
        SubmitError::Invalid(_) | SubmitError::InProgress => OpError::Failed(StoreError::Panicked),
    }
}

fn cut(mut text: String, bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes));
    text
}
