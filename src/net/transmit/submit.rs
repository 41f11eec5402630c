//! Sessions with a smarthost: the connection is secured as the operator says, by a certificate that verifies for the
//! server's name, and then logged in. Nothing here ever falls back to clear text.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{Transmitter, dial, failed_to_connect, server_name, settings};
use crate::engine::ports::{Security, Session, Target};
use crate::net::smtp_session::{Driver, SmtpSession, Wire};
use crate::smtp::client::{Client, StartTls, Want};
use crate::smtp::outcome::{Ending, Outcome, Phase};

impl Transmitter {
    /// Opens a session with the smarthost `target`.
    pub(super) async fn submit(&self, target: &Target, security: Security) -> Result<Box<dyn Session>, Outcome> {
        match security {
            Security::StartTls => self.submit_in_clear(target, StartTls::Required).await,
            Security::Off => self.submit_in_clear(target, StartTls::Never).await,
            Security::Implicit => self.submit_over_tls(target).await,
        }
    }

    async fn submit_in_clear(&self, target: &Target, starttls: StartTls) -> Result<Box<dyn Session>, Outcome> {
        let mut socket = dial(target).await.map_err(|ending| failed_to_connect(target, ending))?;
        let mut driver = Driver::new(Client::new(settings(target, starttls), Duration::ZERO));
        driver.drive(&mut socket).await;
        let wire = match driver.client.want() {
            Want::Handshake => self.secure(&mut driver, socket, target, &self.tls.verified).await,
            Want::Ready | Want::Finished | Want::Read | Want::Write => Some(Wire::Clear(socket)),
        };
        opened(driver, wire, target)
    }

    async fn submit_over_tls(&self, target: &Target) -> Result<Box<dyn Session>, Outcome> {
        let socket = dial(target).await.map_err(|ending| failed_to_connect(target, ending))?;
        let name = server_name(target);
        let connector = TlsConnector::from(Arc::clone(&self.tls.verified));
        let shaken = timeout(target.deadlines.starttls, connector.connect(name.clone(), socket)).await;
        let mut stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(fault)) => return Err(not_secured(target, Ending::TlsFailed(fault.to_string()))),
            Err(_) => return Err(not_secured(target, Ending::TimedOut)),
        };
        let facts = self.tls.facts(stream.get_ref().1, &name, &target.tls);
        let facts = facts.map_err(|(_, why)| not_secured(target, Ending::TlsFailed(why)))?;
        let client = Client::new(settings(target, StartTls::Never), Duration::ZERO).over_tls(facts);
        let mut driver = Driver::new(client);
        driver.drive(&mut stream).await;
        opened(driver, Some(Wire::Secured(Box::new(stream))), target)
    }
}

fn opened(mut driver: Driver, wire: Option<Wire>, target: &Target) -> Result<Box<dyn Session>, Outcome> {
    match (driver.client.take_outcome(), wire) {
        (None, Some(wire)) => Ok(Box::new(SmtpSession { driver, wire })),
        (Some(outcome), _) => Err(outcome),
        (None, None) => Err(not_secured(target, Ending::TlsFailed("no handshake".to_owned()))),
    }
}

fn not_secured(target: &Target, ending: Ending) -> Outcome {
    Outcome { phase: Phase::StartTls, ending, peer: Some(target.address.ip()), tls: None }
}
