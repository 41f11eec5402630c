//! The part of Postrider that fuzz targets reach, as a library of the same name: its own files, where they stand in
//! the house, without the floors that they do not need.

#![expect(dead_code, reason = "the rest of the house uses what no target does")]

/// Floor 0, as far as it is needed.
#[path = "../../src/base"]
pub mod base {
    pub mod time;
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
