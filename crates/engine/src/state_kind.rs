//! Kinds of keyed state.

use crate::StateKey;

/// One kind of keyed state, described by the layer that owns it.
///
/// No engine interprets keys or values. An engine whose store other programs read uses this
/// description to store entries where those programs look for them; other engines ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateKind {
    /// What every key of this kind starts with.
    pub prefix: &'static str,
    /// What the name, the part of the key between prefix and suffix, always contains.
    pub separator: &'static str,
    /// What every key of this kind ends with; may be empty.
    pub suffix: &'static str,
    /// The collection that holds this kind only, by name; `None` if it is stored with all other
    /// state.
    pub collection: Option<&'static str>,
    /// Members of the JSON value, and the names under which they are also stored as separate
    /// fields.
    pub fields: &'static [(&'static str, &'static str)],
    /// For entries that only record the existence of a key until they expire: the value that all of
    /// them have. The store may remove such entries itself, and other programs may add them without
    /// a value.
    pub marker: Option<&'static [u8]>,
}

impl StateKind {
    /// Returns the name in `key`, or `None` if the key is not of this kind.
    #[must_use]
    pub fn name_in<'k>(&self, key: &'k StateKey) -> Option<&'k str> {
        let rest = key.as_bytes().strip_prefix(self.prefix.as_bytes())?;
        let name = std::str::from_utf8(rest.strip_suffix(self.suffix.as_bytes())?).ok()?;
        name.contains(self.separator).then_some(name)
    }
}
