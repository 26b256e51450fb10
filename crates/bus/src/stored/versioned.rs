//! JSON with a version number: `{"v":1,…}`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A value that is stored as versioned JSON, so that other programs can read it.
pub(super) trait Versioned: Serialize + DeserializeOwned {
    /// The newest version this program writes and reads.
    const VERSION: u32;

    fn encode_versioned(&self) -> Vec<u8> {
        let encoded = Envelope { v: Self::VERSION, value: self };
        serde_json::to_vec(&encoded).expect("a plain value serialises into memory")
    }

    fn decode_versioned(bytes: &[u8]) -> Result<Self, DecodeError> {
        // The number is checked on its own: the rest of a newer version may look entirely
        // different.
        let Version { v } = serde_json::from_slice(bytes)?;
        if v > Self::VERSION {
            return Err(DecodeError::Newer { found: v, supported: Self::VERSION });
        }
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// Why a stored value cannot be used. Reads as a predicate: "the cursor of … cannot be read: …".
#[derive(Debug, Error)]
pub enum DecodeError {
    /// A newer program wrote the value.
    #[error(
        "cannot be read: format version {found} is newer than the supported {supported}; use a \
         newer version of prombus"
    )]
    Newer { found: u32, supported: u32 },
    /// The value is not what its key says.
    #[error("cannot be read: {0}")]
    Invalid(#[from] serde_json::Error),
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    v: u32,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        name: String,
    }

    impl Versioned for Sample {
        const VERSION: u32 = 2;
    }

    #[test]
    fn the_version_comes_first() {
        let sample = Sample { name: "a".into() };
        assert_eq!(sample.encode_versioned(), br#"{"v":2,"name":"a"}"#);
        assert_eq!(Sample::decode_versioned(br#"{"v":2,"name":"a"}"#).unwrap(), sample);
    }

    #[test]
    fn reads_older_versions_and_rejects_newer_ones_by_number() {
        assert!(Sample::decode_versioned(br#"{"v":1,"name":"a"}"#).is_ok());
        let error = Sample::decode_versioned(br#"{"v":3,"something":"else"}"#).unwrap_err();
        assert!(matches!(error, DecodeError::Newer { found: 3, supported: 2 }));
        assert!(error.to_string().contains("format version 3 is newer"), "{error}");
    }

    #[test]
    fn rejects_what_has_no_version() {
        for bytes in [&b"nonsense"[..], br#"{"name":"a"}"#, b""] {
            assert!(matches!(Sample::decode_versioned(bytes), Err(DecodeError::Invalid(_))));
        }
    }
}
