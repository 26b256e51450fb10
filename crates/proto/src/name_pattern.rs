//! Patterns of topic and group names, in scopes and in the settings of topics.

use std::cmp::Ordering;
use std::str::FromStr;
use std::{fmt, iter};

use thiserror::Error;

use crate::limits::MAX_NAME_BYTES;
use crate::{InvalidName, Topic};

/// Matches names of topics or groups: `*` stands for one segment, `**` for any number of segments,
/// including none. `start*` stands for one segment that starts like this.
#[derive(Clone, PartialEq, Eq)]
pub struct NamePattern {
    segments: Box<[Segment]>,
}

#[derive(Clone, PartialEq, Eq)]
enum Segment {
    /// `*`
    Any,
    /// `**`
    AnyNumber,
    Literal(Box<str>),
    /// `start*`
    StartingWith(Box<str>),
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidPattern {
    /// It is longer than a name may be.
    #[error("a pattern has at most {MAX_NAME_BYTES} bytes, this one has {0}")]
    TooLong(usize),
    /// A segment has a star in a place where it means nothing.
    #[error(
        "a segment of a pattern is a name, the start of a name and `*`, `*` or `**`, not {0:?}"
    )]
    StarInSegment(String),
    /// A segment is not part of a name.
    #[error("a pattern is a name that may contain `*` and `**` as segments: {0}")]
    Name(#[from] InvalidName),
}

impl NamePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// If no name could match it.
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
    pub fn everything() -> Self {
        Self { segments: Box::new([Segment::AnyNumber]) }
    }

    /// Returns `true` if the pattern matches the name.
    ///
    /// On a mismatch only the last `**` seen is extended by one segment, and matching resumes after
    /// it. Backtracking to an earlier `**` is never needed: whatever it could absorb, the last one
    /// can absorb as well. The cost is therefore at most pattern length times name length.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut pattern: &[Segment] = &self.segments;
        if let [Segment::AnyNumber] = pattern {
            return true;
        }
        let mut names = name.split('.');
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

    /// Returns `true` if the pattern is a plain name, which it alone matches.
    #[must_use]
    pub fn is_name(&self) -> bool {
        self.segments.iter().all(|segment| matches!(segment, Segment::Literal(_)))
    }

    /// Compares how much two patterns leave open, segment by segment from the left: a name is more specific
    /// than the start of one, the longer start than the shorter one, both than `*`, and everything than `**`.
    #[must_use]
    pub fn cmp_specificity(&self, other: &Self) -> Ordering {
        let mut pairs = (self.segments.iter().map(Some).chain(iter::repeat(None)))
            .zip(other.segments.iter().map(Some).chain(iter::repeat(None)));
        let longest = self.segments.len().max(other.segments.len());
        pairs
            .by_ref()
            .take(longest)
            .map(|(one, other)| rank(one).cmp(&rank(other)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    /// Returns `true` if the first segment is this name, rather than a star.
    #[must_use]
    pub fn starts_with(&self, name: &str) -> bool {
        self.segments.first().is_some_and(|segment| segment.is(name))
    }

    /// Returns `true` if the last segment is this name, rather than a star.
    #[must_use]
    pub fn ends_with(&self, name: &str) -> bool {
        self.segments.last().is_some_and(|segment| segment.is(name))
    }
}

/// The rank of a segment, or of the end of a pattern, which leaves less open than `**`.
fn rank(segment: Option<&Segment>) -> (u8, usize) {
    match segment {
        Some(Segment::AnyNumber) => (0, 0),
        None => (1, 0),
        Some(Segment::Any) => (2, 0),
        Some(Segment::StartingWith(start)) => (3, start.len()),
        Some(Segment::Literal(_)) => (4, 0),
    }
}

impl Segment {
    fn new(text: &str) -> Result<Self, InvalidPattern> {
        match text {
            "*" => Ok(Self::Any),
            "**" => Ok(Self::AnyNumber),
            "" => Err(InvalidName::EmptySegment.into()),
            _ => {
                let start = text.strip_suffix('*');
                let name = start.unwrap_or(text);
                if name.contains('*') {
                    return Err(InvalidPattern::StarInSegment(text.to_owned()));
                }
                Topic::new(name)?;
                Ok(if start.is_some() {
                    Self::StartingWith(name.into())
                } else {
                    Self::Literal(name.into())
                })
            }
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any | Self::AnyNumber => true,
            Self::Literal(literal) => **literal == *name,
            Self::StartingWith(start) => name.starts_with(&**start),
        }
    }

    fn is(&self, name: &str) -> bool {
        matches!(self, Self::Literal(literal) if **literal == *name)
    }
}

impl FromStr for NamePattern {
    type Err = InvalidPattern;
    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        Self::new(text)
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            match segment {
                Segment::Any => f.write_str("*"),
                Segment::AnyNumber => f.write_str("**"),
                Segment::Literal(name) => f.write_str(name),
                Segment::StartingWith(start) => write!(f, "{start}*"),
            }?;
        }
        Ok(())
    }
}

impl fmt::Debug for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, topic: &str) -> bool {
        NamePattern::new(pattern).unwrap().matches(topic)
    }

    /// The definition taken literally. Exponential, so only for small inputs.
    fn matches_by_definition(pattern: &[&str], topic: &[&str]) -> bool {
        match pattern {
            [] => topic.is_empty(),
            ["**", after @ ..] => {
                (0..=topic.len()).any(|taken| matches_by_definition(after, &topic[taken..]))
            }
            [segment, after @ ..] => {
                topic.first().is_some_and(|name| {
                    *segment == "*" || segment == name || *segment == "a*" && name.starts_with('a')
                }) && matches_by_definition(after, &topic[1..])
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
            ("a.billing-*", "a.billing-eu", true),
            ("a.billing-*", "a.billing-", true),
            ("a.billing-*", "a.billing", false),
            ("a.billing-*", "a.billing-eu.x", false),
            ("**.x*.z", "a.x1.b.x2.z", true),
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
            ("a.b*c", StarInSegment("b*c".into())),
            ("a.*b", StarInSegment("*b".into())),
            ("a.b**", StarInSegment("b**".into())),
            ("***", StarInSegment("***".into())),
            ("a.?", Name(InvalidName::BadCharacter('?'))),
        ] {
            assert_eq!(NamePattern::new(text), Err(error), "{text}");
        }
    }

    #[test]
    fn what_leaves_less_open_is_more_specific() {
        let from_general = [
            "**", "**.x", "*.**", "*", "*.*", "a*", "ab*", "a.**", "a.**.x", "a", "a.*.**", "a.*",
            "a.*.c", "a.b*.c", "a.b.**", "a.b", "a.b.*", "a.b.c",
        ];
        let pattern = |text: &str| NamePattern::new(text).unwrap();
        for (index, general) in from_general.iter().enumerate() {
            assert!(pattern(general).cmp_specificity(&pattern(general)).is_eq());
            for specific in &from_general[index + 1..] {
                let order = pattern(general).cmp_specificity(&pattern(specific));
                assert!(order.is_lt(), "{general} and {specific}");
            }
        }
        assert!(pattern("a.b-c_d").is_name() && !pattern("a.b*").is_name());
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
        for text in ["a.*.**.b", "**", "*", "a.b-*"] {
            assert_eq!(NamePattern::new(text).unwrap().to_string(), text);
            assert_eq!(text.parse::<NamePattern>().unwrap(), NamePattern::new(text).unwrap());
        }
        assert_eq!(NamePattern::everything(), NamePattern::new("**").unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn agrees_with_the_definition(
            pattern in prop::collection::vec(prop::sample::select(vec!["a", "b", "a*", "*", "**"]), 1..7),
            topic in prop::collection::vec(prop::sample::select(vec!["a", "ab", "b", "c"]), 1..9),
        ) {
            prop_assert_eq!(
                matches(&pattern.join("."), &topic.join(".")),
                matches_by_definition(&pattern, &topic)
            );
        }

        #[test]
        fn any_text_is_a_pattern_or_an_error(text in "\\PC{0,30}|[a-c.*]{0,12}") {
            if let Ok(pattern) = NamePattern::new(&text) {
                prop_assert_eq!(pattern.to_string(), text);
            }
        }
    }
}
