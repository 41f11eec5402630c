//! Floor 0: what everything else is made of. Time, identifiers, chance, secrets, signatures, cursors.
//! Knows no runtime, no protocol and no storage.

pub mod cursor;
pub mod digest;
pub mod entropy;
pub mod id;
pub mod jws;
pub mod meter;
pub mod secret;
pub mod signature;
pub mod time;
pub mod totp;
