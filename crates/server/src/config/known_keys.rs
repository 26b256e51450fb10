//! Which settings there are: those of the default file, and those of a topic.

use super::KeyPath;

/// The section whose second segment is a topic's name.
pub(super) const TOPICS: &str = "topics";
/// What a topic can have of its own.
const TOPIC_KEYS: [&str; 5] =
    ["durability", "retention_ms", "retention_bytes", "limit.capacity", "limit.refill_per_sec"];
/// The settings whose values are shown to nobody.
const SECRETS: [&str; 2] = ["auth.tokens", "auth.jwt.secret"];
/// How alike two names have to be for one to be offered in place of the other.
const ALIKE: f64 = 0.6;

/// The settings there are, in the order of the default file.
pub(super) struct KnownKeys {
    in_order: Vec<KeyPath>,
    texts: Vec<KeyPath>,
}

impl KnownKeys {
    /// Of settings, each with whether it is a text.
    pub(super) fn new(in_order: Vec<(KeyPath, bool)>) -> Self {
        let texts = in_order.iter().filter(|(_, is_text)| *is_text).map(|(key, _)| key.clone());
        Self {
            texts: texts.collect(),
            in_order: in_order.into_iter().map(|(key, _)| key).collect(),
        }
    }

    /// Whether a setting is a text, so that quotes can be left out.
    pub(super) fn is_text(&self, key: &KeyPath) -> bool {
        self.texts.contains(key)
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

    /// Whether settings stand below this name.
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

    /// The setting that was probably meant.
    pub(super) fn nearest(&self, key: &KeyPath) -> Option<KeyPath> {
        match key.segments() {
            [section, name, ..] if section == TOPICS => {
                let topic = KeyPath::of(TOPICS).join(name);
                let below = |known: &KeyPath| topic.join_all(known);
                unquoted_topic(key).or_else(|| {
                    nearest(&key.suffix(2), TOPIC_KEYS.map(KeyPath::of).iter()).map(|k| below(&k))
                })
            }
            _ => nearest(key, self.in_order.iter()),
        }
    }

    /// The variable of the environment that sets a key.
    pub(super) fn variables(&self) -> impl Iterator<Item = (String, KeyPath)> {
        let topics = KeyPath::of(TOPICS);
        self.in_order.iter().cloned().chain([topics]).map(|key| (variable(&key), key))
    }
}

/// Whether values of this setting are shown to nobody.
pub(super) fn is_secret(key: &KeyPath) -> bool {
    SECRETS.iter().any(|secret| *key == KeyPath::of(secret))
}

/// The most similar of some names, if it is similar at all.
pub(super) fn most_alike<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    // `maxFrameBytes` and `MAX-FRAME-BYTES` are `max_frame_bytes` to whoever wrote them.
    let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    candidates
        .map(|c| (c, strsim::normalized_damerau_levenshtein(&plain(name), &plain(c))))
        .filter(|&(_, alike)| alike >= ALIKE)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(candidate, _)| candidate)
}

fn variable(key: &KeyPath) -> String {
    format!("PROMBUS_{}", key.segments().join("_").to_uppercase())
}

fn nearest<'a>(key: &KeyPath, known: impl Iterator<Item = &'a KeyPath>) -> Option<KeyPath> {
    let known: Vec<_> = known.map(|k| (k.to_string(), k)).collect();
    let of = |name: &str| known.iter().find(|(n, _)| n == name).map(|&(_, k)| k.clone());
    let whole = most_alike(&key.to_string(), known.iter().map(|(name, _)| name.as_str()));
    // The right name in the wrong section, or in none.
    let astray = || {
        let mut same = known.iter().filter(|(_, k)| k.segments().last() == key.segments().last());
        same.next().map(|&(_, k)| k.clone())
    };
    whole.and_then(of).or_else(astray)
}

/// `topics.a.b.durability` with the quotes that it lacks.
fn unquoted_topic(key: &KeyPath) -> Option<KeyPath> {
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

    fn offered(text: &str) -> Option<String> {
        let known =
            ["server.ws", "limits.enabled", "limits.topic.capacity", "gateway.max_frame_bytes"];
        let known = KnownKeys::new(known.map(|key| (KeyPath::of(key), false)).to_vec());
        known.nearest(&KeyPath::parse(text).unwrap()).map(|key| key.to_string())
    }

    #[test]
    fn offers_what_was_probably_meant() {
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
            assert_eq!(offered(written).as_deref(), Some(meant), "{written}");
        }
        for nothing in ["colour", "topics.a.colour", "server.colour"] {
            assert_eq!(offered(nothing), None, "{nothing}");
        }
    }
}
