//! The part of Postrider that fuzz targets reach, as a library of the same name: its own files, where they stand in
//! the house, without the floors that they do not need.

#![expect(dead_code, reason = "the rest of the house uses what no target does")]

/// Floor 1, as far as it is needed.
#[path = "../../src/domain"]
pub mod domain {
    pub mod enhanced_code;
}

/// Floor 3, as far as it is needed.
#[path = "../../src/mail"]
pub mod mail {
    mod content_type;
    pub mod report;
    mod section;
}
