//! A change of the keyed state, as the write-ahead log stores it.
//!
//! ```text
//! is put u8 | version u64 | key length u16 | key [ | expires at u64 | value length u32 | value ]
//! ```

use bytes::{Buf, BufMut, Bytes};
use prombus_proto::Timestamp;

use crate::{StateEntry, StateKey, Version};

/// A put or a delete whose expectation was already checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateChange {
    pub(crate) key: StateKey,
    pub(crate) version: Version,
    /// The value and its expiry; `None` for a delete.
    pub(crate) put: Option<(Bytes, Option<Timestamp>)>,
}

impl StateChange {
    /// The entry after the change; `None` for a delete.
    pub(crate) fn entry(&self) -> Option<StateEntry> {
        self.put.as_ref().map(|(value, expires_at)| StateEntry {
            key: self.key.clone(),
            value: value.clone(),
            version: self.version,
            expires_at: *expires_at,
        })
    }

    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        out.put_u8(u8::from(self.put.is_some()));
        out.put_u64_le(self.version.0);
        out.put_u16_le(u16::try_from(self.key.as_bytes().len()).expect("keys are below 64 KiB"));
        out.put_slice(self.key.as_bytes());
        if let Some((value, expires_at)) = &self.put {
            out.put_u64_le(expires_at.map_or(u64::MAX, |at| at.0));
            out.put_u32_le(u32::try_from(value.len()).expect("values are below 4 GiB"));
            out.put_slice(value);
        }
    }

    /// Decodes the change at the start of `bytes` and removes it from there.
    pub(crate) fn take_from(bytes: &mut Bytes) -> Option<StateChange> {
        let has_value = bytes.try_get_u8().ok()? != 0;
        let version = Version(bytes.try_get_u64_le().ok()?);
        let key_bytes = usize::from(bytes.try_get_u16_le().ok()?);
        let key = StateKey::new(take(bytes, key_bytes)?).ok()?;
        let put = if has_value {
            let expires_at = Some(bytes.try_get_u64_le().ok()?).filter(|at| *at != u64::MAX);
            let value_bytes = bytes.try_get_u32_le().ok()? as usize;
            Some((take(bytes, value_bytes)?, expires_at.map(Timestamp)))
        } else {
            None
        };
        Some(StateChange { key, version, put })
    }
}

fn take(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (bytes.len() >= length).then(|| bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_changes_round_trip() {
        let key = |text: &'static str| StateKey::new(text.as_bytes()).unwrap();
        let changes = [
            StateChange { key: key("a"), version: Version(1), put: None },
            StateChange { key: key("b"), version: Version(2), put: Some((Bytes::new(), None)) },
            StateChange {
                key: key("c"),
                version: Version(3),
                put: Some((Bytes::from_static(b"v"), Some(Timestamp(9)))),
            },
        ];
        let mut bytes = Vec::new();
        changes.iter().for_each(|change| change.append_to(&mut bytes));
        let mut bytes = Bytes::from(bytes);
        let decoded: Vec<_> = std::iter::from_fn(|| StateChange::take_from(&mut bytes)).collect();
        assert_eq!(decoded, changes);
        assert!(bytes.is_empty());
    }
}
