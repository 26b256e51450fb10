//! The payload of an event, written when it is sent and read when it is delivered.

use std::time::Duration;

use bytes::Bytes;
use memchr::memmem::Finder;
use prombus_proto::{Event, EventId, Headers, Payload, Seq, Timestamp, Topic};

use crate::{BenchError, Load};

/// An event's size is computed with a `seq` of seven digits.
const NOMINAL_SEQ: Seq = Seq(1_000_000);
/// It has 13 digits, like all timestamps from 2001 to 2286.
const NOMINAL_TIME: Timestamp = Timestamp(1_700_000_000_000);
/// It has the length of all ids that the bus generates.
const NOMINAL_ID: &str = "0190f5e4-8d4b-7c3a-9f2e-0123456789ab";
/// The digits of two hours in nanoseconds. In a longer run, events may grow by one byte.
const TIME_DIGITS: usize = 13;

/// The payloads of one run: `{"run":"…","t0":…,"i":…,"pad":"xxx"}`. `t0` is when the event is
/// sent, or scheduled to be sent, in nanoseconds since the start of the run; `i` counts events.
#[derive(Debug)]
pub(crate) struct EventText {
    /// The text before the time, which events of other runs do not contain.
    before_time: Vec<u8>,
    finder: Finder<'static>,
    /// Bytes per payload, by topic.
    payload_bytes: Vec<usize>,
}

impl EventText {
    pub(crate) fn new(load: &Load, topics: &[Topic], run: &str) -> Result<Self, BenchError> {
        let before_time = format!(r#"{{"run":"{run}","t0":"#).into_bytes();
        let rest = br#","i":,"pad":""}"#.len() + TIME_DIGITS + digits(load.events);
        let smallest = before_time.len() + rest;
        let payload_bytes = topics.iter().map(|topic| {
            let around = bytes_around_payload(topic)?;
            load.size.checked_sub(around).filter(|bytes| *bytes >= smallest).ok_or_else(|| {
                BenchError::Load(format!(
                    "--size {} is too small: events of {topic} have at least {} bytes",
                    load.size,
                    around + smallest
                ))
            })
        });
        let payload_bytes = payload_bytes.collect::<Result<_, _>>()?;
        let finder = Finder::new(&before_time).into_owned();
        Ok(Self { before_time, finder, payload_bytes })
    }

    pub(crate) fn payload_bytes(&self, topic: usize) -> usize {
        self.payload_bytes[topic]
    }

    /// Appends the payload of event `number`.
    pub(crate) fn write(&self, topic: usize, number: u64, at: Duration, out: &mut Vec<u8>) {
        let end = out.len() + self.payload_bytes[topic];
        out.extend_from_slice(&self.before_time);
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        // `write!` took longer than everything else here.
        out.extend_from_slice(itoa::Buffer::new().format(nanos).as_bytes());
        out.extend_from_slice(br#","i":"#);
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        out.extend_from_slice(br#","pad":""#);
        // Leaves room for the closing quote and brace.
        let padded = end.saturating_sub(2).max(out.len());
        out.resize(padded, b'x');
        out.extend_from_slice(b"\"}");
    }

    /// Returns when the event with this JSON was sent, or `None` if it is from another run.
    pub(crate) fn sent_at(&self, json: &[u8]) -> Option<Duration> {
        let start = self.finder.find(json)? + self.before_time.len();
        let digits = json[start..].iter().take_while(|byte| byte.is_ascii_digit());
        let nanos = digits.fold(0_u64, |nanos, digit| {
            nanos.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))
        });
        Some(Duration::from_nanos(nanos))
    }
}

fn digits(number: u64) -> usize {
    number.to_string().len()
}

/// Returns the bytes of an event of `topic` without its payload.
fn bytes_around_payload(topic: &Topic) -> Result<usize, BenchError> {
    const PAYLOAD: &[u8] = b"0";
    let event = Event {
        id: EventId::new(NOMINAL_ID).expect("a valid id"),
        ts: NOMINAL_TIME,
        topic: topic.clone(),
        key: None,
        headers: Headers::NONE,
        payload: Payload::parse(Bytes::from_static(PAYLOAD))?,
        caused_by: Vec::new(),
        tags: Vec::new(),
        sid: None,
    };
    let mut json = Vec::new();
    event.encode().write_json(NOMINAL_SEQ, &mut json);
    Ok(json.len() - PAYLOAD.len())
}

#[cfg(test)]
mod tests {
    use prombus_proto::NewEvent;

    use super::*;

    fn json(text: &EventText, topic: &Topic, number: u64, at: Duration) -> Vec<u8> {
        let mut payload = Vec::new();
        text.write(0, number, at, &mut payload);
        let event = NewEvent::of(Payload::parse(payload.into()).unwrap());
        let id = EventId::new(NOMINAL_ID).unwrap();
        let event = event.complete(topic.clone(), || id, NOMINAL_TIME);
        let mut json = Vec::new();
        event.encode().write_json(NOMINAL_SEQ, &mut json);
        json
    }

    #[test]
    fn events_have_the_requested_size_and_the_time_they_were_sent() {
        let topic = Topic::new("bench.topic").unwrap();
        for size in [200, 236, 65_536] {
            let load = Load { size, ..Load::default() };
            let text = EventText::new(&load, std::slice::from_ref(&topic), "1a2b").unwrap();
            for (number, nanos) in [(0, 0), (7, 1_234_567), (99_999, 9_999_999_999_999)] {
                let at = Duration::from_nanos(nanos);
                let json = json(&text, &topic, number, at);
                assert_eq!(json.len(), size);
                assert_eq!(text.sent_at(&json), Some(at));
            }
        }
    }

    #[test]
    fn ignores_events_of_other_runs() {
        let topic = Topic::new("t").unwrap();
        let text =
            |run| EventText::new(&Load::default(), std::slice::from_ref(&topic), run).unwrap();
        let json = json(&text("a"), &topic, 1, Duration::ZERO);
        assert_eq!(text("b").sent_at(&json), None);
    }

    #[test]
    fn rejects_a_size_that_is_too_small_and_names_the_least() {
        let topics = [Topic::new("bench.topic").unwrap()];
        let of = |size| EventText::new(&Load { size, ..Load::default() }, &topics, "1a2b");
        let error = of(10).unwrap_err().to_string();
        let least = error.split_whitespace().find_map(|word| word.parse().ok().filter(|n| *n > 10));
        let least = least.expect("the least size");
        of(least).unwrap();
        of(least - 1).unwrap_err();
    }
}
