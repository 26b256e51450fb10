//! Which topics a rule speaks of.

use std::fmt;
use std::str::FromStr;

use prombus_proto::limits::MAX_NAME_BYTES;
use prombus_proto::{InvalidName, Topic};
use thiserror::Error;

/// Topics by the look of their names: `*` stands for one segment, `**` for any number of them,
/// also for none.
#[derive(Clone, PartialEq, Eq)]
pub struct TopicPattern {
    segments: Box<[Segment]>,
}

#[derive(Clone, PartialEq, Eq)]
enum Segment {
    /// `*`
    One,
    /// `**`
    AnyNumber,
    Exactly(Box<str>),
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidPattern {
    /// Longer than a topic can be.
    #[error("a topic pattern has at most {MAX_NAME_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// A star beside other characters.
    #[error("in a topic pattern a segment is `*`, `**` or a name, not {0:?}")]
    StarInSegment(String),
    /// A segment that no topic can have.
    #[error("a topic pattern is made like a topic, with `*` and `**` as segments: {0}")]
    Name(#[from] InvalidName),
}

impl TopicPattern {
    /// The pattern that a text describes.
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

    /// The pattern of all topics: `**`.
    #[must_use]
    pub fn every_topic() -> Self {
        Self { segments: Box::new([Segment::AnyNumber]) }
    }

    /// Whether the topic is one of those.
    ///
    /// When a segment does not fit, only the last `**` passed takes one more segment and matching
    /// goes on behind it. Earlier ones need not: what they could take instead, the last one can
    /// take as well. So the work is at most pattern times topic, however many `**` there are.
    #[must_use]
    pub fn matches(&self, topic: &Topic) -> bool {
        let mut wanted: &[Segment] = &self.segments;
        if let [Segment::AnyNumber] = wanted {
            return true;
        }
        let mut names = topic.as_str().split('.');
        let mut behind_last_any_number = None;
        loop {
            if let [Segment::AnyNumber, after @ ..] = wanted {
                behind_last_any_number = Some((after, names.clone()));
                wanted = after;
                continue;
            }
            let mut names_after = names.clone();
            match (wanted, names_after.next()) {
                ([], None) => return true,
                ([_, ..], None) => return false,
                ([segment, after @ ..], Some(name)) if segment.fits(name) => {
                    wanted = after;
                    names = names_after;
                }
                _ => {
                    let Some((after, retry_at)) = &mut behind_last_any_number else {
                        return false;
                    };
                    if retry_at.next().is_none() {
                        return false;
                    }
                    wanted = after;
                    names = retry_at.clone();
                }
            }
        }
    }
}

impl Segment {
    fn new(text: &str) -> Result<Self, InvalidPattern> {
        match text {
            "*" => Ok(Self::One),
            "**" => Ok(Self::AnyNumber),
            "" => Err(InvalidName::EmptySegment.into()),
            _ if text.contains('*') => Err(InvalidPattern::StarInSegment(text.to_owned())),
            _ => {
                Topic::new(text)?;
                Ok(Self::Exactly(text.into()))
            }
        }
    }

    fn fits(&self, name: &str) -> bool {
        match self {
            Self::One | Self::AnyNumber => true,
            Self::Exactly(wanted) => **wanted == *name,
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::One => "*",
            Self::AnyNumber => "**",
            Self::Exactly(name) => name,
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
        for (place, segment) in self.segments.iter().enumerate() {
            if place > 0 {
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

    /// The definition, word by word. Exponential, so only for small things.
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
    fn a_star_is_one_segment_and_two_are_any_number() {
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
    fn refuses_what_no_topic_could_fit() {
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
    fn many_wildcards_cost_little() {
        // By definition this takes more steps than there is time.
        let pattern = format!("{}z", "**.a.".repeat(39));
        let topic = vec!["a"; 100].join(".");
        assert!(!matches(&pattern, &topic));
    }

    #[test]
    fn shows_itself_as_it_was_written() {
        for text in ["a.*.**.b", "**", "*"] {
            assert_eq!(TopicPattern::new(text).unwrap().to_string(), text);
            assert_eq!(text.parse::<TopicPattern>().unwrap(), TopicPattern::new(text).unwrap());
        }
        assert_eq!(TopicPattern::every_topic(), TopicPattern::new("**").unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn matches_what_the_definition_matches(
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
