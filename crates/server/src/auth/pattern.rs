//! The topics that a rule covers.

use std::fmt;
use std::str::FromStr;

use prombus_proto::limits::MAX_NAME_BYTES;
use prombus_proto::{InvalidName, Topic};
use thiserror::Error;

/// Matches topics by name: `*` stands for one segment, `**` for any number of segments, including
/// none.
#[derive(Clone, PartialEq, Eq)]
pub struct TopicPattern {
    segments: Box<[Segment]>,
}

#[derive(Clone, PartialEq, Eq)]
enum Segment {
    /// `*`
    Any,
    /// `**`
    AnyNumber,
    Literal(Box<str>),
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidPattern {
    #[error("a topic pattern has at most {MAX_NAME_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    #[error("a segment of a topic pattern is `*`, `**` or a name, not {0:?}")]
    StarInSegment(String),
    #[error("a topic pattern is a topic name that may contain `*` and `**` as segments: {0}")]
    Name(#[from] InvalidName),
}

impl TopicPattern {
    pub fn new(text: &str) -> Result<Self, InvalidPattern> {
        if text.len() > MAX_NAME_BYTES {
            return Err(InvalidPattern::TooLong(text.len()));
        }
        if text.is_empty() {
            return Err(InvalidName::Empty.into());
        }
        let segments = text.split('.').map(Segment::new).collect::<Result<_, _>>()?;
        Ok(Self { segments })
    }

    /// The pattern `**`.
    #[must_use]
    pub fn all_topics() -> Self {
        Self { segments: Box::new([Segment::AnyNumber]) }
    }

    /// Returns `true` if the pattern matches the topic.
    ///
    /// On a mismatch only the last `**` seen is extended by one segment, and matching resumes after
    /// it. Backtracking to an earlier `**` is never needed: whatever it could absorb, the last one
    /// can absorb as well. The cost is therefore at most pattern length times topic length.
    #[must_use]
    pub fn matches(&self, topic: &Topic) -> bool {
        let mut pattern: &[Segment] = &self.segments;
        if let [Segment::AnyNumber] = pattern {
            return true;
        }
        let mut names = topic.as_str().split('.');
        let mut after_last_any_number = None;
        loop {
            if let [Segment::AnyNumber, after @ ..] = pattern {
                after_last_any_number = Some((after, names.clone()));
                pattern = after;
                continue;
            }
            let mut names_after = names.clone();
            match (pattern, names_after.next()) {
                ([], None) => return true,
                ([_, ..], None) => return false,
                ([segment, after @ ..], Some(name)) if segment.matches(name) => {
                    pattern = after;
                    names = names_after;
                }
                _ => {
                    let Some((after, retry_at)) = &mut after_last_any_number else {
                        return false;
                    };
                    if retry_at.next().is_none() {
                        return false;
                    }
                    pattern = after;
                    names = retry_at.clone();
                }
            }
        }
    }
}

impl Segment {
    fn new(text: &str) -> Result<Self, InvalidPattern> {
        match text {
            "*" => Ok(Self::Any),
            "**" => Ok(Self::AnyNumber),
            "" => Err(InvalidName::EmptySegment.into()),
            _ if text.contains('*') => Err(InvalidPattern::StarInSegment(text.to_owned())),
            _ => {
                Topic::new(text)?;
                Ok(Self::Literal(text.into()))
            }
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any | Self::AnyNumber => true,
            Self::Literal(literal) => **literal == *name,
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Any => "*",
            Self::AnyNumber => "**",
            Self::Literal(name) => name,
        }
    }
}

impl FromStr for TopicPattern {
    type Err = InvalidPattern;
    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        Self::new(text)
    }
}

impl fmt::Display for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            f.write_str(segment.as_str())?;
        }
        Ok(())
    }
}

impl fmt::Debug for TopicPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, topic: &str) -> bool {
        TopicPattern::new(pattern).unwrap().matches(&Topic::new(topic).unwrap())
    }

    /// The definition taken literally. Exponential, so only for small inputs.
    fn matches_by_definition(pattern: &[&str], topic: &[&str]) -> bool {
        match pattern {
            [] => topic.is_empty(),
            ["**", after @ ..] => {
                (0..=topic.len()).any(|taken| matches_by_definition(after, &topic[taken..]))
            }
            [segment, after @ ..] => {
                topic.first().is_some_and(|name| *segment == "*" || segment == name)
                    && matches_by_definition(after, &topic[1..])
            }
        }
    }

    #[test]
    fn one_star_is_one_segment_and_two_are_any_number() {
        for (pattern, topic, expected) in [
            ("heartbeat.received", "heartbeat.received", true),
            ("heartbeat.received", "heartbeat", false),
            ("heartbeat.received", "heartbeat.received.late", false),
            ("heartbeat.*", "heartbeat.received", true),
            ("heartbeat.*", "heartbeat", false),
            ("heartbeat.*", "heartbeat.received.late", false),
            ("heartbeat.*", "heartbeats.received", false),
            ("*", "heartbeat", true),
            ("*", "heartbeat.received", false),
            ("*.received", "heartbeat.received", true),
            ("process.**", "process", true),
            ("process.**", "process.started", true),
            ("process.**", "process.started.twice", true),
            ("process.**", "processes", false),
            ("**", "a", true),
            ("**", "a.b.c", true),
            ("**.failed", "failed", true),
            ("**.failed", "a.b.failed", true),
            ("**.failed", "a.failed.b", false),
            ("a.**.z", "a.z", true),
            ("a.**.z", "a.b.z.c.z", true),
            ("a.**.z", "a", false),
            ("**.*", "a", true),
            ("*.**.*", "a", false),
            ("*.**.*", "a.b", true),
            ("**.**", "a", true),
            ("**.a.**.b.**", "x.a.y.b.z", true),
            ("**.a.**.b.**", "x.b.y.a.z", false),
        ] {
            assert_eq!(matches(pattern, topic), expected, "{pattern} on {topic}");
        }
    }

    #[test]
    fn rejects_patterns_that_match_no_topic() {
        use InvalidPattern::*;
        let long = "x".repeat(201);
        for (text, error) in [
            ("", Name(InvalidName::Empty)),
            (long.as_str(), TooLong(201)),
            ("a..b", Name(InvalidName::EmptySegment)),
            (".", Name(InvalidName::EmptySegment)),
            ("a.", Name(InvalidName::EmptySegment)),
            ("A.*", Name(InvalidName::BadCharacter('A'))),
            ("a b", Name(InvalidName::BadCharacter(' '))),
            ("a.b*", StarInSegment("b*".into())),
            ("***", StarInSegment("***".into())),
            ("a.?", Name(InvalidName::BadCharacter('?'))),
        ] {
            assert_eq!(TopicPattern::new(text), Err(error), "{text}");
        }
    }

    #[test]
    fn many_wildcards_are_cheap() {
        // Backtracking would take exponential time.
        let pattern = format!("{}z", "**.a.".repeat(39));
        let topic = vec!["a"; 100].join(".");
        assert!(!matches(&pattern, &topic));
    }

    #[test]
    fn displays_as_written() {
        for text in ["a.*.**.b", "**", "*"] {
            assert_eq!(TopicPattern::new(text).unwrap().to_string(), text);
            assert_eq!(text.parse::<TopicPattern>().unwrap(), TopicPattern::new(text).unwrap());
        }
        assert_eq!(TopicPattern::all_topics(), TopicPattern::new("**").unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn agrees_with_the_definition(
            pattern in prop::collection::vec(prop::sample::select(vec!["a", "b", "*", "**"]), 1..7),
            topic in prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..9),
        ) {
            prop_assert_eq!(
                matches(&pattern.join("."), &topic.join(".")),
                matches_by_definition(&pattern, &topic)
            );
        }

        #[test]
        fn any_text_is_a_pattern_or_an_error(text in "\\PC{0,30}|[a-c.*]{0,12}") {
            if let Ok(pattern) = TopicPattern::new(&text) {
                prop_assert_eq!(pattern.to_string(), text);
            }
        }
    }
}
