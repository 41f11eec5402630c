//! Warnings about valid settings that may not be intended. They are shown at the start and by `config check`, and do
//! not stop either.

use super::{Config, Tls};

/// Ports to which an ACME authority connects (RFC 8555 8.3, RFC 8737 3).
const AUTHORITY_PORTS: [u16; 2] = [443, 80];

impl Config {
    /// Returns a sentence for each warning.
    pub fn warnings(&self) -> Vec<&'static str> {
        let mut listened_on = self.http.listen.iter().map(std::net::SocketAddr::port);
        let table = [(
            matches!(self.http.tls, Tls::Acme(_)) && !listened_on.any(|port| AUTHORITY_PORTS.contains(&port)),
            "http.tls.mode is \"acme\", but http.listen has no port 443 or 80, to which the authority connects; \
             forward one of these ports to this server.",
        )];
        table.into_iter().filter(|(is_so, _)| *is_so).map(|(_, sentence)| sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::environment::Environment;

    #[test]
    fn warns_if_the_authority_cannot_connect() {
        let warned = |more: &str| {
            let text = format!("hostname = \"mail.example.com\"\n{more}");
            !Config::parse(&text, "p.toml", &Environment::default()).unwrap().warnings().is_empty()
        };
        assert!(warned("[http]\nlisten = [\"127.0.0.1:8443\"]"));
        assert!(!warned("[http]\nlisten = [\"127.0.0.1:8443\", \"[::]:80\"]"));
        assert!(!warned("[http]\nlisten = [\"127.0.0.1:8443\"]\n[http.tls]\nmode = \"off\""));
    }
}
