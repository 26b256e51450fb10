//! Where a key of the keyed state is: cursors and marks in collections that other programs can read,
//! by ids they know, all else in one of ours.

use prombus_engine::StateKey;

use crate::layout::collections::{CURSORS, DEDUPE, STATE};

/// A collection of keyed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Shelf {
    /// `cursor/<topic>::<group>/0`, by `<topic>::<group>`.
    Cursors,
    /// `dedupe/<topic>::<group>::<id>`, by what follows the first slash.
    Dedupe,
    /// All other keys, each byte as the character of that number: in the same order, and readable
    /// where the key is.
    Other,
}

/// A key, as the document that holds its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) shelf: Shelf,
    pub(crate) id: String,
}

const CURSOR_PREFIX: &[u8] = b"cursor/";
const CURSOR_SUFFIX: &[u8] = b"/0";
const DEDUPE_PREFIX: &[u8] = b"dedupe/";

impl Shelf {
    pub(crate) const ALL: [Shelf; 3] = [Shelf::Cursors, Shelf::Dedupe, Shelf::Other];

    pub(crate) const fn collection(self) -> &'static str {
        match self {
            Shelf::Cursors => CURSORS,
            Shelf::Dedupe => DEDUPE,
            Shelf::Other => STATE,
        }
    }

    /// The member whose order is that of the keys.
    pub(crate) const fn ordered_by(self) -> &'static str {
        match self {
            // Not the id: what follows it in the key takes part in the order.
            Shelf::Cursors => "key",
            Shelf::Dedupe | Shelf::Other => "_id",
        }
    }

    const fn prefix(self) -> &'static [u8] {
        match self {
            Shelf::Cursors => CURSOR_PREFIX,
            Shelf::Dedupe => DEDUPE_PREFIX,
            Shelf::Other => b"",
        }
    }

    /// The key, if its value is here; of `ordered_by`'s text.
    pub(crate) fn key_of(self, text: &str) -> Option<StateKey> {
        let bytes = match self {
            Shelf::Cursors => text.as_bytes().to_vec(),
            Shelf::Dedupe => [DEDUPE_PREFIX, text.as_bytes()].concat(),
            Shelf::Other => {
                let as_byte = |character: char| u8::try_from(u32::from(character)).ok();
                text.chars().map(as_byte).collect::<Option<Vec<u8>>>()?
            }
        };
        StateKey::new(bytes).ok()
    }

    /// From which text on, in the order of `ordered_by`, keys from `start` on are; nothing where there
    /// are none. It may be some earlier, never later.
    pub(crate) fn text_from(self, start: &[u8]) -> Option<String> {
        let prefix = self.prefix();
        match start.strip_prefix(prefix) {
            None if start > prefix => None,
            None => Some(String::new()),
            Some(rest) => Some(match self {
                Shelf::Cursors => valid_start(start).to_owned(),
                Shelf::Dedupe => valid_start(rest).to_owned(),
                Shelf::Other => as_text(start),
            }),
        }
    }

    /// Whether it may hold keys that start with `prefix`.
    pub(crate) fn may_hold(self, prefix: &[u8]) -> bool {
        self.prefix().starts_with(prefix) || prefix.starts_with(self.prefix())
    }
}

impl Place {
    pub(crate) fn of(key: &StateKey) -> Self {
        let bytes = key.as_bytes();
        if let Some(names) =
            bytes.strip_prefix(CURSOR_PREFIX).and_then(|rest| rest.strip_suffix(CURSOR_SUFFIX))
            && let Ok(names) = std::str::from_utf8(names)
            && names.contains("::")
        {
            return Self { shelf: Shelf::Cursors, id: names.to_owned() };
        }
        if let Some(Ok(names)) = bytes.strip_prefix(DEDUPE_PREFIX).map(std::str::from_utf8)
            && names.contains("::")
        {
            return Self { shelf: Shelf::Dedupe, id: names.to_owned() };
        }
        Self { shelf: Shelf::Other, id: as_text(bytes) }
    }
}

/// Each byte as the character of that number.
fn as_text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// As much as is whole characters.
fn valid_start(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> StateKey {
        StateKey::new(bytes.to_vec()).unwrap()
    }

    fn place(bytes: &[u8]) -> (Shelf, String) {
        let Place { shelf, id } = Place::of(&key(bytes));
        (shelf, id)
    }

    #[test]
    fn cursors_and_marks_have_the_ids_that_other_programs_know() {
        assert_eq!(
            place(b"cursor/orders.eu::billing/0"),
            (Shelf::Cursors, "orders.eu::billing".into())
        );
        assert_eq!(place("dedupe/o::b::é".as_bytes()), (Shelf::Dedupe, "o::b::é".into()));
    }

    #[test]
    fn what_only_looks_like_one_is_with_the_others() {
        for other in [&b"cursor/a::b/1"[..], b"cursor/a/0", b"dedupe/\xff::b::c", b"dedupe/", b"x"]
        {
            assert_eq!(Place::of(&key(other)).shelf, Shelf::Other, "{other:?}");
        }
    }

    #[test]
    fn a_key_comes_back_and_keeps_its_order() {
        let mut keys: Vec<Vec<u8>> =
            (0..=255u8).flat_map(|b| [vec![b], vec![b, 0], vec![b, 255]]).collect();
        keys.sort();
        let texts: Vec<String> = keys.iter().map(|k| Place::of(&key(k)).id).collect();
        assert!(texts.is_sorted());
        for (bytes, text) in keys.iter().zip(&texts) {
            assert_eq!(Shelf::Other.key_of(text).unwrap().as_bytes(), bytes);
        }
        assert_eq!(Shelf::Other.key_of("Ā"), None);
        assert_eq!(Shelf::Dedupe.key_of("a::b::é").unwrap(), key("dedupe/a::b::é".as_bytes()));
    }

    #[test]
    fn a_start_within_a_character_begins_before_it() {
        assert_eq!(Shelf::Dedupe.text_from(b"dedupe/a\xc3").unwrap(), "a");
        assert_eq!(Shelf::Dedupe.text_from(b"ded").unwrap(), "");
        assert_eq!(Shelf::Dedupe.text_from(b"z"), None);
        assert!(Shelf::Dedupe.may_hold(b"ded") && Shelf::Dedupe.may_hold(b"dedupe/a"));
        assert!(!Shelf::Dedupe.may_hold(b"cursor/"));
    }
}
