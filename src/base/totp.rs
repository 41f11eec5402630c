//! Time-based one-time passwords (RFC 6238): HMAC-SHA-1, six digits, steps of 30 seconds, which every authenticator app
//! expects.

use aws_lc_rs::hmac;
use subtle::ConstantTimeEq as _;

use super::secret::Secret;
use super::time::Timestamp;

/// Length of a secret in bytes: the length of the hash (RFC 4226 4, R6).
pub const SECRET_BYTES: usize = 20;
const STEP_SECONDS: u64 = 30;
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Returns the step of a code at `now`.
pub const fn step_of(now: Timestamp) -> u64 {
    now.as_secs() / STEP_SECONDS
}

/// Returns the code of a step.
pub fn code(secret: &Secret, step: u64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.expose());
    let digest = hmac::sign(&key, &step.to_be_bytes());
    let digest = digest.as_ref();
    // RFC 4226 5.3: the last four bits give the offset of the number.
    let at = usize::from(digest[digest.len() - 1] & 0x0f);
    let number = u32::from_be_bytes([digest[at] & 0x7f, digest[at + 1], digest[at + 2], digest[at + 3]]);
    format!("{:06}", number % 1_000_000)
}

/// Returns the step of the code `given` if it is the current step or a neighbour (RFC 6238 5.2). It must be later than
/// `last`, the step of the last accepted code.
pub fn accepted_step(secret: &Secret, given: &str, now: Timestamp, last: u64) -> Option<u64> {
    let given: String = given.chars().filter(|c| !c.is_whitespace()).collect();
    let present = step_of(now);
    let steps = [present, present.saturating_sub(1), present + 1];
    let mut found = None;
    for step in steps {
        let is_it = bool::from(code(secret, step).as_bytes().ct_eq(given.as_bytes()));
        if is_it && step > last {
            found = found.or(Some(step));
        }
    }
    found
}

/// Returns the secret in the form for typing (RFC 4648 6, without padding).
pub fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    for chunk in bytes.chunks(5) {
        let mut bits = [0; 8];
        bits[3..3 + chunk.len()].copy_from_slice(chunk);
        let bits = u64::from_be_bytes(bits);
        for place in 0..(chunk.len() * 8).div_ceil(5) {
            text.push(char::from(BASE32[(bits >> (35 - 5 * place)) as usize & 31]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn codes_match_the_rfc() {
        let secret = Secret::new(*b"12345678901234567890");
        // RFC 6238 appendix B, the last six of its eight digits.
        for (seconds, expected) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(code(&secret, step_of(at(seconds))), expected);
        }
        // RFC 4648 10.
        for (clear, expected) in [("f", "MY"), ("fo", "MZXQ"), ("foob", "MZXW6YQ"), ("foobar", "MZXW6YTBOI")] {
            assert_eq!(base32(clear.as_bytes()), expected);
        }
    }

    #[test]
    fn a_code_is_accepted_one_step_early_or_late_and_only_once() {
        let secret = Secret::new([7; SECRET_BYTES]);
        let now = at(3_000_000);
        let present = step_of(now);
        for step in [present - 1, present, present + 1] {
            assert_eq!(accepted_step(&secret, &code(&secret, step), now, 0), Some(step));
        }
        assert_eq!(accepted_step(&secret, &code(&secret, present - 2), now, 0), None);
        assert_eq!(accepted_step(&secret, &code(&secret, present), now, present), None);
        let spaced = code(&secret, present);
        assert_eq!(accepted_step(&secret, &format!("{} {}", &spaced[..3], &spaced[3..]), now, 0), Some(present));
        assert_eq!(accepted_step(&secret, "", now, 0), None);
    }
}
