//! Digests of tokens, which the server stores instead of the tokens.

use std::fmt;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use subtle::{Choice, ConstantTimeEq};

use super::secret::REDACTED;

/// The SHA-256 digest of a token. Its `Debug` output reveals nothing: a weak token can be guessed from
/// its digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; SHA256_OUTPUT_LEN]);

impl TokenDigest {
    #[must_use]
    pub fn of(token: &str) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(bytes)
    }

    /// Parses 64 hexadecimal digits, as `sha256sum` prints them.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        let digit =
            |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }
}

impl ConstantTimeEq for TokenDigest {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_sha256sum_prints() {
        // printf %s hunter2 | sha256sum
        let hex = "f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7";
        assert!(TokenDigest::from_hex(hex) == Some(TokenDigest::of("hunter2")));
        assert!(TokenDigest::from_hex(&hex.to_uppercase()) == Some(TokenDigest::of("hunter2")));
        assert!(TokenDigest::of("hunter2") != TokenDigest::of("hunter3"));
    }

    #[test]
    fn rejects_anything_else() {
        for bad in ["", "f5", &"g".repeat(64), &"0".repeat(63), &"0".repeat(65), &"é".repeat(32)] {
            assert!(TokenDigest::from_hex(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn debug_output_reveals_nothing() {
        assert_eq!(format!("{:?}", TokenDigest::of("hunter2")), REDACTED);
    }
}
