//! The part of Postrider that fuzz targets reach, as a library of the same name: its own files, where they stand in
//! the house, without the floors that they do not need.

#![expect(dead_code, reason = "the rest of the house uses what no target does")]

/// Floor 0, as far as it is needed.
#[path = "../../src/base"]
pub mod base {
    pub mod time;

    /// The type of passwords. The service's own stands beside ciphers that take minutes to build.
    pub mod secret {
        use zeroize::Zeroizing;

        /// Bytes that are wiped when dropped.
        #[derive(Clone, Debug)]
        pub struct Secret(Zeroizing<Vec<u8>>);

        impl Secret {
            /// Keeps a copy of `bytes`.
            pub fn new(bytes: impl AsRef<[u8]>) -> Self {
                Self(Zeroizing::new(bytes.as_ref().to_vec()))
            }

            /// The bytes.
            pub fn expose(&self) -> &[u8] {
                &self.0
            }
        }
    }
}

/// Floor 1, as far as it is needed.
#[path = "../../src/domain"]
pub mod domain {
    pub mod address;
    pub mod dmarc_record;
    pub mod dmarc_source;
    pub mod enhanced_code;
    pub mod hostname;
    pub mod limits;
    pub mod text;
}

/// Floor 3, as far as it is needed.
#[path = "../../src/mail"]
pub mod mail {
    mod content_type;
    pub mod dmarc;
    pub mod report;
    mod section;
}

/// The receiving side of SMTP.
#[path = "../../src/smtp"]
pub mod smtp {
    pub mod server;
}
