//! The name of a setting, such as `limits.connection.capacity` or `topics."a.b".durability`.

use std::fmt;

/// The path of a setting through its sections.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyPath(Vec<String>);

impl KeyPath {
    /// The path of the table that holds all sections.
    pub(super) const fn root() -> Self {
        Self(Vec::new())
    }

    /// A path written in code, which needs no quotes.
    pub(super) fn of(dotted: &str) -> Self {
        Self(dotted.split('.').map(str::to_owned).collect())
    }

    /// Parses a path as a user writes it, quoted as in TOML. Returns `None` if it is not a valid key.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.contains(['\n', '\r', '=', '#']) {
            return None; // these would end the key early
        }
        let mut segments = Vec::new();
        let mut rest = toml::Value::Table(toml::from_str(&format!("{text} = 0")).ok()?);
        while let toml::Value::Table(table) = rest {
            let (segment, inner) = table.into_iter().next()?;
            segments.push(segment);
            rest = inner;
        }
        Some(Self(segments))
    }

    /// Appends one segment.
    pub(super) fn join(&self, segment: &str) -> Self {
        Self(self.0.iter().map(String::as_str).chain([segment]).map(str::to_owned).collect())
    }

    /// Appends all segments of another path.
    pub(super) fn join_all(&self, below: &Self) -> Self {
        Self(self.0.iter().chain(&below.0).cloned().collect())
    }

    pub(super) fn starts_with(&self, section: &Self) -> bool {
        self.0.starts_with(&section.0)
    }

    pub(super) fn segments(&self) -> &[String] {
        &self.0
    }

    /// The first `count` segments.
    pub(super) fn prefix(&self, count: usize) -> Self {
        Self(self.0[..count.min(self.0.len())].to_vec())
    }

    /// All but the first `count` segments.
    pub(super) fn suffix(&self, count: usize) -> Self {
        Self(self.0[count.min(self.0.len())..].to_vec())
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            if !segment.is_empty() && segment.chars().all(bare) {
                f.write_str(segment)?;
            } else {
                write!(f, "{segment:?}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_keys_like_toml_and_prints_them_back() {
        for (text, segments) in [
            ("log", &["log"][..]),
            ("limits.connection.capacity", &["limits", "connection", "capacity"]),
            (r#"topics."a.b".limit.capacity"#, &["topics", "a.b", "limit", "capacity"]),
            ("topics.'a.b'.durability", &["topics", "a.b", "durability"]),
            (" log . level ", &["log", "level"]),
        ] {
            let key = KeyPath::parse(text).unwrap();
            assert_eq!(key.segments(), segments);
            assert_eq!(KeyPath::parse(&key.to_string()), Some(key));
        }
    }

    #[test]
    fn rejects_invalid_keys() {
        for text in ["", ".", "a.", "a b", "a\nb", "a = 1", "a # b", "[a]", "\"a"] {
            assert_eq!(KeyPath::parse(text), None, "{text:?}");
        }
    }
}
