//! Sessions with a smarthost: the connection is secured as configured, with a certificate that verifies for the
//! server's name, and then logged in. They never fall back to clear text.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{Transmitter, dial, failed_to_connect, opened, server_name, settings};
use crate::engine::ports::{Security, Session, Target};
use crate::net::plain_error::plain_error;
use crate::net::smtp_session::{ClientStream, Driver};
use crate::smtp::client::{Client, StartTls};
use crate::smtp::outcome::{Ending, Outcome, Phase};

impl Transmitter {
    /// Opens a session with the smarthost `target`.
    pub(super) async fn submit(&self, target: &Target, security: Security) -> Result<Box<dyn Session>, Outcome> {
        match security {
            Security::StartTls => self.open_over(target, StartTls::Required, &self.tls.verified).await,
            Security::Off => self.open_over(target, StartTls::Never, &self.tls.verified).await,
            Security::Implicit => self.submit_over_tls(target).await,
        }
    }

    async fn submit_over_tls(&self, target: &Target) -> Result<Box<dyn Session>, Outcome> {
        let socket = dial(target).await.map_err(|ending| failed_to_connect(target, ending))?;
        let name = server_name(target);
        let connector = TlsConnector::from(Arc::clone(&self.tls.verified));
        let shaken = timeout(target.deadlines.starttls, connector.connect(name.clone(), socket)).await;
        let mut stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(fault)) => return Err(not_secured(target, Ending::TlsFailed(plain_error(fault)))),
            Err(_) => return Err(not_secured(target, Ending::TimedOut)),
        };
        let facts = self.tls.facts(stream.get_ref().1, &name, &target.tls);
        let facts = facts.map_err(|(_, why)| not_secured(target, Ending::TlsFailed(why)))?;
        let client = Client::new(settings(target, StartTls::Never), Duration::ZERO).over_tls(facts);
        let mut driver = Driver::new(client);
        driver.drive(&mut stream).await;
        opened(driver, Some(ClientStream::Secured(Box::new(stream))), target)
    }
}

fn not_secured(target: &Target, ending: Ending) -> Outcome {
    super::unopened(target, Phase::StartTls, ending)
}
