//! The parts of Postrider for the fuzz targets, as a library of the same name. It includes the program's own source
//! files at their usual paths, without unneeded floors.

#![expect(dead_code, reason = "the targets do not use all items")]

/// The needed modules of floor 0.
#[path = "../../src/base"]
pub mod base {
    pub mod time;

    /// The type of passwords. The service's own type is in a module with ciphers that take minutes to build.
    pub mod secret {
        use zeroize::Zeroizing;

        /// Bytes that are wiped on drop.
        #[derive(Clone, Debug)]
        pub struct Secret(Zeroizing<Vec<u8>>);

        impl Secret {
            /// Stores a copy of `bytes`.
            pub fn new(bytes: impl AsRef<[u8]>) -> Self {
                Self(Zeroizing::new(bytes.as_ref().to_vec()))
            }

            /// Returns the bytes.
            pub fn expose(&self) -> &[u8] {
                &self.0
            }
        }
    }
}

/// The needed modules of floor 1.
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

/// The needed modules of floor 3.
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
