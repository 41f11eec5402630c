//! Zstd compression of bodies, backup rows, and lists that are being imported. Each thread keeps its contexts, because
//! creating one costs as much as compressing a small message.

use std::cell::RefCell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};

/// Fast, with most of zstd's gain on HTML.
const LEVEL: i32 = 1;
/// Maximum size of a decompressed body: the largest message plus a margin.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Returns `body` compressed.
pub(crate) fn compress(body: &[u8]) -> Vec<u8> {
    COMPRESSOR.with_borrow_mut(|kept| {
        let fresh = || Compressor::new(LEVEL).unwrap_or_else(|error| unreachable!("level 1 is a level: {error}"));
        let compressor = kept.get_or_insert_with(fresh);
        compressor.compress(body).unwrap_or_else(|error| unreachable!("zstd compresses any bytes: {error}"))
    })
}

/// Returns the input of [`compress`]. For several concatenated results it returns the concatenated inputs.
///
/// # Errors
/// The bytes are damaged, or are larger than any message.
pub(crate) fn decompress(compressed: &[u8]) -> io::Result<Vec<u8>> {
    let length = Decompressor::upper_bound(compressed).unwrap_or(BODY_BYTES_MAX).min(BODY_BYTES_MAX);
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::new()?),
        };
        decompressor.decompress(compressed, length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decompresses_a_body_and_rejects_damage() {
        let body = b"<p>Hello</p>".repeat(100);
        let mut compressed = compress(&body);
        assert!(compressed.len() < body.len() / 4);
        assert_eq!(decompress(&compressed).unwrap(), body);
        assert_eq!(decompress(&compress(b"")).unwrap(), b"");
        let in_two = [compress(&body[..100]), compress(&body[100..])].concat();
        assert_eq!(decompress(&in_two).unwrap(), body);
        compressed.truncate(compressed.len() / 2);
        assert!(decompress(&compressed).is_err());
    }
}
