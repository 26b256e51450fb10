//! Which collection holds a key of the keyed state, and under which `_id`.
//!
//! The owner of the state describes its kinds ([`StateKind`]). A kind may have a collection of its
//! own, which other programs read by ids they know; all other keys share the collection `state`.

use prombus_engine::{StateKey, StateKind};

use crate::layout::collections::STATE;

/// The kinds of keyed state that this database tells apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateLayout(&'static [StateKind]);

/// A collection of keyed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateCollection {
    /// The entries of one kind. The `_id` is the key without the kind's prefix and suffix.
    OfKind { name: &'static str, kind: &'static StateKind },
    /// All other entries. The `_id` has one character for each byte of the key: it keeps their
    /// order, and is readable if the key is.
    Shared,
}

/// Where a key is stored.
#[derive(Clone, Debug)]
pub(crate) struct StateLocation {
    pub(crate) collection: StateCollection,
    pub(crate) id: String,
    pub(crate) kind: Option<&'static StateKind>,
}

impl StateLayout {
    pub(crate) const fn new(kinds: &'static [StateKind]) -> Self {
        Self(kinds)
    }

    pub(crate) fn collections(self) -> impl Iterator<Item = StateCollection> {
        self.0.iter().filter_map(collection_of).chain([StateCollection::Shared])
    }

    pub(crate) fn locate(self, key: &StateKey) -> StateLocation {
        let found = self.0.iter().find_map(|kind| Some((kind, kind.name_in(key)?)));
        let kind = found.map(|(kind, _)| kind);
        match found.and_then(|(kind, name)| Some((collection_of(kind)?, name))) {
            Some((collection, name)) => StateLocation { collection, id: name.to_owned(), kind },
            None => {
                let id = as_text(key.as_bytes());
                StateLocation { collection: StateCollection::Shared, id, kind }
            }
        }
    }
}

fn collection_of(kind: &'static StateKind) -> Option<StateCollection> {
    kind.collection.map(|name| StateCollection::OfKind { name, kind })
}

impl StateCollection {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            StateCollection::OfKind { name, .. } => name,
            StateCollection::Shared => STATE,
        }
    }

    /// The field whose order is that of the keys.
    pub(crate) const fn order_field(self) -> &'static str {
        match self.has_key_field() {
            true => "key",
            false => "_id",
        }
    }

    /// Returns `true` if documents have the field `key`: without their suffix, ids would sort
    /// differently from keys.
    pub(crate) const fn has_key_field(self) -> bool {
        match self {
            StateCollection::OfKind { kind, .. } => !kind.suffix.is_empty(),
            StateCollection::Shared => false,
        }
    }

    const fn prefix(self) -> &'static [u8] {
        match self {
            StateCollection::OfKind { kind, .. } => kind.prefix.as_bytes(),
            StateCollection::Shared => b"",
        }
    }

    /// Returns the key of the document whose order field is `text`.
    pub(crate) fn key_of(self, text: &str) -> Option<StateKey> {
        let bytes = match self {
            StateCollection::OfKind { .. } if self.has_key_field() => text.as_bytes().to_vec(),
            StateCollection::OfKind { .. } => [self.prefix(), text.as_bytes()].concat(),
            StateCollection::Shared => {
                let as_byte = |character: char| u8::try_from(u32::from(character)).ok();
                text.chars().map(as_byte).collect::<Option<Vec<u8>>>()?
            }
        };
        StateKey::new(bytes).ok()
    }

    /// Returns a lower bound of the order field for keys from `start` on, or `None` if the
    /// collection has no such keys. The bound may be too low, but never too high.
    pub(crate) fn lower_bound(self, start: &[u8]) -> Option<String> {
        let prefix = self.prefix();
        match start.strip_prefix(prefix) {
            None if start > prefix => None,
            None => Some(String::new()),
            Some(rest) => Some(match self {
                StateCollection::OfKind { .. } if self.has_key_field() => {
                    valid_prefix(start).to_owned()
                }
                StateCollection::OfKind { .. } => valid_prefix(rest).to_owned(),
                StateCollection::Shared => as_text(start),
            }),
        }
    }

    /// Returns `true` if the collection may hold keys that start with `prefix`.
    pub(crate) fn may_hold(self, prefix: &[u8]) -> bool {
        self.prefix().starts_with(prefix) || prefix.starts_with(self.prefix())
    }
}

/// One character for each byte.
fn as_text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// The longest prefix of `bytes` that is UTF-8.
fn valid_prefix(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: StateKind = StateKind {
        prefix: "row/",
        separator: "::",
        suffix: "/0",
        collection: Some("rows"),
        fields: &[],
        marker: None,
    };
    const TAG: StateKind =
        StateKind { prefix: "tag/", suffix: "", collection: Some("tags"), ..ROW };
    const PLAIN: StateKind = StateKind { prefix: "plain/", collection: None, ..ROW };
    static KINDS: [StateKind; 3] = [ROW, TAG, PLAIN];
    const LAYOUT: StateLayout = StateLayout::new(&KINDS);
    const TAGS: StateCollection = StateCollection::OfKind { name: "tags", kind: &KINDS[1] };

    fn key(bytes: &[u8]) -> StateKey {
        StateKey::new(bytes.to_vec()).unwrap()
    }

    fn located(bytes: &[u8]) -> (&'static str, String) {
        let location = LAYOUT.locate(&key(bytes));
        (location.collection.name(), location.id)
    }

    #[test]
    fn kinds_with_a_collection_are_stored_by_name() {
        assert_eq!(located(b"row/orders.eu::billing/0"), ("rows", "orders.eu::billing".into()));
        assert_eq!(located("tag/o::b::é".as_bytes()), ("tags", "o::b::é".into()));
        assert_eq!(located(b"plain/a::b/0"), ("state", "plain/a::b/0".into()));
        assert_eq!(LAYOUT.locate(&key(b"plain/a::b/0")).kind, Some(&PLAIN));
    }

    #[test]
    fn keys_that_only_resemble_a_kind_are_shared() {
        for other in [&b"row/a::b/1"[..], b"row/a/0", b"tag/\xff::b::c", b"tag/", b"x"] {
            let location = LAYOUT.locate(&key(other));
            assert_eq!(location.collection, StateCollection::Shared, "{other:?}");
            assert_eq!(location.kind, None, "{other:?}");
        }
    }

    #[test]
    fn shared_ids_convert_back_and_keep_their_order() {
        let mut keys: Vec<Vec<u8>> =
            (0..=255u8).flat_map(|b| [vec![b], vec![b, 0], vec![b, 255]]).collect();
        keys.sort();
        let ids: Vec<String> = keys.iter().map(|k| LAYOUT.locate(&key(k)).id).collect();
        assert!(ids.is_sorted());
        for (bytes, id) in keys.iter().zip(&ids) {
            assert_eq!(StateCollection::Shared.key_of(id).unwrap().as_bytes(), bytes);
        }
        assert_eq!(StateCollection::Shared.key_of("Ā"), None);
        assert_eq!(TAGS.key_of("a::b::é").unwrap(), key("tag/a::b::é".as_bytes()));
    }

    #[test]
    fn a_bound_within_a_character_is_lowered_to_its_start() {
        assert_eq!(TAGS.lower_bound(b"tag/a\xc3").unwrap(), "a");
        assert_eq!(TAGS.lower_bound(b"ta").unwrap(), "");
        assert_eq!(TAGS.lower_bound(b"z"), None);
        assert!(TAGS.may_hold(b"ta") && TAGS.may_hold(b"tag/a"));
        assert!(!TAGS.may_hold(b"row/"));
    }
}
