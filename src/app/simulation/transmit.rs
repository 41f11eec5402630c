//! Connections to the simulated mail servers: the real SMTP client state machine, whose bytes go to a model in the same
//! task.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::isolation::Transfer;
use super::mail_server::MailServer;
use super::plan::FaultClass;
use super::world::World;
use crate::domain::event::TlsFacts;
use crate::engine::ports::{Body, BoxFuture, Session, Target, Transmit};
use crate::smtp::client::{Client, ClientAction, Settings, StartTls};
use crate::smtp::outcome::{Ending, Envelope, Outcome, Phase};
use crate::smtp::tls_policy::TlsFault;
use crate::smtp::transcript::Transcript;

/// Opens sessions with simulated mail servers.
pub(super) struct SimulatedTransmit {
    pub(super) world: Arc<World>,
    /// The process that sends.
    pub(super) life: u32,
}

struct SimulatedSession {
    world: Arc<World>,
    client: Client,
    server: MailServer,
    epoch: Instant,
}

impl Transmit for SimulatedTransmit {
    fn connect<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn Session>, Outcome>> {
        Box::pin(async move {
            let world = &self.world;
            let _transfer = Transfer::begin(world, &target.host);
            sleep(world.millis(1, 60)).await;
            if world.strikes_at(&target.host, FaultClass::Connect, 100) {
                return Err(failed(target, Phase::Connect, Ending::Unreachable("connection refused".to_owned())));
            }
            if world.strikes_at(&target.host, FaultClass::Silence, 20) {
                sleep(target.deadlines.connect).await;
                return Err(failed(target, Phase::Connect, Ending::TimedOut));
            }
            let settings = Settings {
                ehlo: target.ehlo.clone(),
                peer: Some(target.address.ip()),
                deadlines: target.deadlines,
                loop_check: target.loop_check,
                starttls: StartTls::WhereOffered,
                login: None,
            };
            let mut session = SimulatedSession {
                world: Arc::clone(world),
                client: Client::new(settings, Duration::ZERO),
                server: MailServer::new(world, &target.host, self.life),
                epoch: Instant::now(),
            };
            session.drive().await;
            match session.client.take_outcome() {
                None => Ok(Box::new(session) as Box<dyn Session>),
                Some(outcome) => Err(outcome),
            }
        })
    }
}

fn failed(target: &Target, phase: Phase, ending: Ending) -> Outcome {
    Outcome { phase, ending, peer: Some(target.address.ip()), tls: None, transcript: Transcript::default() }
}

impl SimulatedSession {
    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Writes and reads until the state machine requests another action.
    async fn drive(&mut self) {
        loop {
            match self.client.want() {
                ClientAction::Write => self.write().await,
                ClientAction::Read => self.read().await,
                ClientAction::Handshake | ClientAction::Body | ClientAction::Ready | ClientAction::Finished => return,
            }
        }
    }

    /// Writes the message block by block, and asks `body` before the final dot, as the service does.
    async fn hand_over(&mut self, body: &mut dyn Body) {
        while self.client.want() == ClientAction::Write {
            if self.client.is_at_dot() && !body.may_end().await {
                return self.client.body_missing();
            }
            self.write().await;
        }
        self.drive().await;
    }

    async fn write(&mut self) {
        let output = self.client.output().to_vec();
        if self.server.is_closed {
            return self.client.write_failed(&[], "broken pipe");
        }
        self.server.receive(&output);
        sleep(self.world.millis(0, 40)).await;
        self.client.written(self.now());
    }

    async fn read(&mut self) {
        if self.server.output.is_empty() {
            if self.server.is_closed {
                self.client.closed("the server closed the connection");
                return;
            }
            sleep_until(self.epoch + self.client.due()).await;
            self.client.deadline_passed();
            return;
        }
        // Answers arrive in random fragments.
        let length = self.server.output.len();
        let piece = if self.world.below(4) == 0 { 1 + self.world.below(length as u64) } else { length as u64 };
        let bytes: Vec<u8> = self.server.output.drain(..usize::try_from(piece).unwrap()).collect();
        sleep(self.world.millis(0, 40)).await;
        self.client.received(&bytes, self.now());
    }
}

impl Session for SimulatedSession {
    fn reset(&mut self) -> Option<BoxFuture<'_, bool>> {
        let now = self.now();
        if !self.client.reset(now) {
            return None;
        }
        Some(Box::pin(async {
            self.drive().await;
            self.is_reusable()
        }))
    }

    fn send<'a>(&'a mut self, envelope: &'a Envelope, body: &'a mut dyn Body) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let _transfer = Transfer::begin(&self.world, &self.server.name);
            let now = self.now();
            self.client.begin(envelope, body.size(), now);
            self.drive().await;
            if self.client.want() == ClientAction::Body {
                match body.read().await {
                    Some(message) => self.client.give_body(message, self.now()),
                    None => self.client.body_missing(),
                }
                self.hand_over(body).await;
            }
            self.client.take_outcome().unwrap_or_else(|| Outcome {
                phase: Phase::Rset,
                ending: Ending::Closed("the session had ended".to_owned()),
                peer: None,
                tls: None,
                transcript: Transcript::default(),
            })
        })
    }

    fn tls(&self) -> Result<&TlsFacts, TlsFault> {
        self.client.tls().ok_or_else(|| self.client.fault_of_clear_text())
    }

    fn is_reusable(&self) -> bool {
        self.client.is_reusable() && !self.server.is_closed
    }

    fn quit(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let now = self.now();
            self.client.quit(now);
            self.drive().await;
        })
    }
}
