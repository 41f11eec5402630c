//! A scripted server for tests of the client: the lines that it sends, and those that it must receive.

use std::time::Duration;

use bytes::Bytes;

use crate::domain::event::{Authenticated, TlsFacts, TlsPolicy};
use crate::smtp::client::{Client, ClientAction, Settings, StartTls};
use crate::smtp::deadlines::Deadlines;
use crate::smtp::outcome::{Envelope, LoopCheck, Outcome};

pub(super) const MESSAGE: &str = "Subject: a\r\n\r\n.dot\r\n";
pub(super) const WIRE: &str = "Subject: a\r\n\r\n..dot\r\n.\r\n";
pub(super) const ALL: &str = "250-mx.example\r\n250-PIPELINING\r\n250-SIZE 1000\r\n250-8BITMIME\r\n250 SMTPUTF8\r\n";
pub(super) const PIPELINED: &str = "MAIL FROM:<b@r.example> SIZE=20\r\nRCPT TO:<a@mx.example>\r\nDATA\r\n";

pub(super) fn settings() -> Settings {
    Settings {
        ehlo: "us.example".into(),
        peer: None,
        deadlines: Deadlines::default(),
        loop_check: LoopCheck::OwnNameIsLoop,
        starttls: StartTls::WhereOffered,
        login: None,
    }
}

pub(super) fn envelope() -> Envelope {
    Envelope {
        mail_from: "b@r.example".to_owned(),
        rcpt_to: "a@mx.example".to_owned(),
        eight_bit: false,
        smtputf8: false,
    }
}

pub(super) fn facts() -> TlsFacts {
    TlsFacts {
        version: "TLSv1.3".to_owned(),
        cipher: "TLS_AES_128_GCM_SHA256".to_owned(),
        authenticated: Authenticated::None,
        policy: TlsPolicy::Opportunistic,
    }
}

/// A client and the current time of the script.
pub(super) struct Scene {
    pub(super) client: Client,
    pub(super) now: Duration,
    pub(super) message: Bytes,
}

impl Scene {
    pub(super) fn new() -> Self {
        Self::with(settings())
    }

    pub(super) fn with(settings: Settings) -> Self {
        let message = Bytes::from_static(MESSAGE.as_bytes());
        Self { client: Client::new(settings, Duration::ZERO), now: Duration::ZERO, message }
    }

    /// Returns a scene after greeting and EHLO, with these capabilities.
    pub(super) fn ready(ehlo: &str) -> Self {
        let mut scene = Self::new();
        scene.says("220 mx.example ESMTP\r\n").hears("EHLO us.example\r\n").says(ehlo);
        assert_eq!(scene.client.want(), ClientAction::Ready);
        scene
    }

    pub(super) fn says(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        assert_eq!(self.client.want(), ClientAction::Read, "before {:?}", String::from_utf8_lossy(text.as_ref()));
        self.client.received(text.as_ref(), self.now);
        if self.client.want() == ClientAction::Body {
            self.client.give_body(self.message.clone(), self.now);
        }
        self
    }

    pub(super) fn hears(&mut self, text: &str) -> &mut Self {
        assert_eq!(self.client.want(), ClientAction::Write, "before {text:?}");
        assert_eq!(String::from_utf8_lossy(self.client.output()), text);
        self.client.written(self.now);
        self
    }

    pub(super) fn begins(&mut self) -> &mut Self {
        self.begins_with(&envelope())
    }

    pub(super) fn begins_with(&mut self, envelope: &Envelope) -> &mut Self {
        assert_eq!(self.client.want(), ClientAction::Ready);
        self.client.begin(envelope, self.message.len(), self.now);
        self
    }

    pub(super) fn passes(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    pub(super) fn outcome(&mut self) -> Outcome {
        assert_eq!(self.client.want(), ClientAction::Finished);
        self.client.take_outcome().unwrap()
    }
}
