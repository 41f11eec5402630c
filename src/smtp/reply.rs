//! One reply of an SMTP server (RFC 5321 4.2), kept as received.

/// A whole reply: the code of its last line, and every byte as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The three digits of the last line, 200 to 599.
    pub code: u16,
    /// The lines as received, code included, without their line ends.
    pub lines: Vec<Vec<u8>>,
}
