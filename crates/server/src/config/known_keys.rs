//! The settings that exist: those of the default file, and those of a topic.

use super::KeyPath;

/// The section whose second segment is a topic name.
pub(super) const TOPICS: &str = "topics";
/// The settings of a single topic.
const TOPIC_KEYS: [&str; 5] =
    ["durability", "retention_ms", "retention_bytes", "limit.capacity", "limit.refill_per_sec"];
/// Settings whose values are never printed.
const SECRETS: [&str; 2] = ["auth.tokens", "auth.jwt.secret"];
/// The similarity, from 0 to 1, above which a name is suggested for a misspelled one.
const SUGGESTION_THRESHOLD: f64 = 0.6;

/// The settings that exist, in the order of the default file.
pub(super) struct KnownKeys {
    in_order: Vec<KeyPath>,
    strings: Vec<KeyPath>,
}

impl KnownKeys {
    /// Takes each key with whether its value is a string.
    pub(super) fn new(in_order: Vec<(KeyPath, bool)>) -> Self {
        let strings =
            in_order.iter().filter(|(_, is_string)| *is_string).map(|(key, _)| key.clone());
        Self {
            strings: strings.collect(),
            in_order: in_order.into_iter().map(|(key, _)| key).collect(),
        }
    }

    /// Returns `true` if the value is a string, so its quotes can be omitted.
    pub(super) fn is_string(&self, key: &KeyPath) -> bool {
        self.strings.contains(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &KeyPath> {
        self.in_order.iter()
    }

    pub(super) fn contains(&self, key: &KeyPath) -> bool {
        match key.segments() {
            [section, _, ..] if section == TOPICS => {
                TOPIC_KEYS.iter().any(|known| key.suffix(2) == KeyPath::of(known))
            }
            _ => self.in_order.contains(key),
        }
    }

    /// Returns `true` if `key` is a section.
    pub(super) fn has_section(&self, key: &KeyPath) -> bool {
        match key.segments() {
            [] => true,
            [section] if section == TOPICS => true,
            [section, _] if section == TOPICS => true,
            [section, _, inner] if section == TOPICS => inner == "limit",
            segments => self
                .in_order
                .iter()
                .any(|k| k.segments().len() > segments.len() && k.starts_with(key)),
        }
    }

    /// Returns the setting that was probably meant by an unknown key.
    pub(super) fn suggest(&self, key: &KeyPath) -> Option<KeyPath> {
        match key.segments() {
            [section, name, ..] if section == TOPICS => {
                let topic = KeyPath::of(TOPICS).join(name);
                let below = |known: &KeyPath| topic.join_all(known);
                with_quoted_topic(key).or_else(|| {
                    nearest(&key.suffix(2), TOPIC_KEYS.map(KeyPath::of).iter()).map(|k| below(&k))
                })
            }
            _ => nearest(key, self.in_order.iter()),
        }
    }

    /// Returns each key with the environment variable that sets it.
    pub(super) fn variables(&self) -> impl Iterator<Item = (String, KeyPath)> {
        let topics = KeyPath::of(TOPICS);
        self.in_order.iter().cloned().chain([topics]).map(|key| (variable(&key), key))
    }
}

/// Returns `true` if values of this setting are never printed.
pub(super) fn is_secret(key: &KeyPath) -> bool {
    SECRETS.iter().any(|secret| *key == KeyPath::of(secret))
}

/// Returns the most similar candidate above the suggestion threshold.
pub(super) fn closest_match<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    // `maxFrameBytes` and `MAX-FRAME-BYTES` both mean `max_frame_bytes`.
    let normalized = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    candidates
        .map(|c| (c, strsim::normalized_damerau_levenshtein(&normalized(name), &normalized(c))))
        .filter(|&(_, similarity)| similarity >= SUGGESTION_THRESHOLD)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(candidate, _)| candidate)
}

fn variable(key: &KeyPath) -> String {
    format!("PROMBUS_{}", key.segments().join("_").to_uppercase())
}

fn nearest<'a>(key: &KeyPath, known: impl Iterator<Item = &'a KeyPath>) -> Option<KeyPath> {
    let known: Vec<_> = known.map(|k| (k.to_string(), k)).collect();
    let of = |name: &str| known.iter().find(|(n, _)| n == name).map(|&(_, k)| k.clone());
    let similar = closest_match(&key.to_string(), known.iter().map(|(name, _)| name.as_str()));
    // The right name in the wrong section, or without a section.
    let misplaced = || {
        let mut same = known.iter().filter(|(_, k)| k.segments().last() == key.segments().last());
        same.next().map(|&(_, k)| k.clone())
    };
    similar.and_then(of).or_else(misplaced)
}

/// Adds the missing quotes to `topics.a.b.durability`.
fn with_quoted_topic(key: &KeyPath) -> Option<KeyPath> {
    let segments = key.segments();
    (2..segments.len()).find_map(|end| {
        let setting = key.suffix(end);
        let known = TOPIC_KEYS.iter().any(|k| setting == KeyPath::of(k));
        known.then(|| KeyPath::of(TOPICS).join(&segments[1..end].join(".")).join_all(&setting))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suggested(text: &str) -> Option<String> {
        let known =
            ["server.ws", "limits.enabled", "limits.topic.capacity", "gateway.max_frame_bytes"];
        let known = KnownKeys::new(known.map(|key| (KeyPath::of(key), false)).to_vec());
        known.suggest(&KeyPath::parse(text).unwrap()).map(|key| key.to_string())
    }

    #[test]
    fn suggests_the_setting_that_was_probably_meant() {
        for (written, meant) in [
            ("limits.enbaled", "limits.enabled"),
            ("limit.enabled", "limits.enabled"),
            ("gateway.maxFrameBytes", "gateway.max_frame_bytes"),
            ("ws", "server.ws"),
            ("max_frame_bytes", "gateway.max_frame_bytes"),
            ("topics.a.durabilty", "topics.a.durability"),
            ("topics.a.capacity", "topics.a.limit.capacity"),
            ("topics.a.b.retention_ms", r#"topics."a.b".retention_ms"#),
            ("topics.a.b.limit.capacity", r#"topics."a.b".limit.capacity"#),
        ] {
            assert_eq!(suggested(written).as_deref(), Some(meant), "{written}");
        }
        for unrelated in ["colour", "topics.a.colour", "server.colour"] {
            assert_eq!(suggested(unrelated), None, "{unrelated}");
        }
    }
}
