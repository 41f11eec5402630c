//! TLS between the load and the server: a certificate created for the run, and a client that trusts only this one.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Outcome;

/// The name in the certificate.
const NAME: &str = "localhost";
/// The PEM file of certificate and key.
pub(crate) const FILE: &str = "certificate.pem";

/// The client's side.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

impl Tls {
    /// Creates a certificate, writes it with its key to `folder`, and returns the client that trusts it.
    pub(crate) fn make(folder: &Path) -> Outcome<Self> {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([NAME.to_owned()])?;
        std::fs::write(folder.join(FILE), format!("{}{}", cert.pem(), signing_key.serialize_pem()))?;
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone())?;
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Connects and performs the handshake.
    pub(crate) async fn connect(&self, address: SocketAddr) -> Outcome<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(self.0.connect(ServerName::try_from(NAME)?, stream).await?)
    }
}
