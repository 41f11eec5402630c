//! Which keys were set though the part they speak of does not exist yet. A warning at start: what an operator
//! configured and does not get must be said.

use super::{Config, Tls};

impl Config {
    /// A sentence for each key whose value asks for what is not built yet.
    pub fn unbuilt(&self) -> Vec<&'static str> {
        let table = [(
            matches!(self.http.tls, Tls::Acme(_)),
            "http.tls.mode = \"acme\" is not built yet: `serve` refuses to start with it.",
        )];
        table.into_iter().filter(|(is_set, _)| *is_set).map(|(_, sentence)| sentence).collect()
    }
}
