//! Floor 0, the base of all others: time, identifiers, randomness, secrets, signatures, cursors. It depends on no
//! runtime, protocol or storage.

pub mod cursor;
pub mod digest;
pub mod digits;
pub mod entropy;
pub mod id;
pub mod jws;
pub mod meter;
pub mod secret;
pub mod signature;
pub mod time;
pub mod totp;
