//! An event to publish.

use prombus_proto::limits::MAX_HEADERS;
use prombus_proto::{ErrorCode, EventId, Headers, IdSource, Key, NewEvent, Payload, Timestamp};
use serde::Serialize;

use crate::{Error, Result};

/// An event to publish: a payload with a key, an id, headers and other attributes.
///
/// ```
/// # use prombus_client::Outgoing;
/// # fn main() -> prombus_client::Result<()> {
/// let event = Outgoing::new(&("node-3", 0.25))?.key("node-3").header("unit", "percent");
/// # let _ = event;
/// # Ok(())
/// # }
/// ```
///
/// An invalid key, id or header is reported when the event is published.
#[derive(Clone, Debug)]
pub struct Outgoing {
    event: NewEvent,
    headers: Vec<(String, String)>,
    /// The first invalid attribute.
    invalid: Option<Error>,
}

/// What can be published: a reference to anything that serde can serialize, or an [`Outgoing`].
pub trait IntoOutgoing {
    /// Converts it into an event.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BadJson`] if serde cannot serialize the payload as JSON.
    fn into_outgoing(self) -> Result<Outgoing>;
}

impl IntoOutgoing for Outgoing {
    fn into_outgoing(self) -> Result<Outgoing> {
        Ok(self)
    }
}

impl<T: Serialize + ?Sized> IntoOutgoing for &T {
    fn into_outgoing(self) -> Result<Outgoing> {
        Outgoing::new(self)
    }
}

impl Outgoing {
    /// Creates an event with this payload, which serde serializes as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BadJson`] if serde cannot serialize it.
    pub fn new<T: Serialize + ?Sized>(payload: &T) -> Result<Self> {
        let payload =
            Payload::of(payload).map_err(|error| Error::refused(ErrorCode::BadJson, error))?;
        Ok(Self { event: NewEvent::of(payload), headers: Vec::new(), invalid: None })
    }

    /// Sets the key, the entity the event is about: 1 to 256 bytes.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        match Key::new(key) {
            Ok(key) => self.event.key = Some(key),
            Err(error) => self.set_invalid(format_args!("key: {error}")),
        }
        self
    }

    /// Adds a header, at most 64. The last value of a name wins.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the id, 1 to 256 bytes without control characters. A topic stores only one event per
    /// id. By default, the client generates a UUIDv7.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        match EventId::new(id) {
            Ok(id) => self.event.id = Some(id),
            Err(error) => self.set_invalid(format_args!("id: {error}")),
        }
        self
    }

    /// Sets when it happened, in milliseconds since the Unix epoch. By default, the server sets
    /// the time at which it receives the event.
    #[must_use]
    pub fn ts(mut self, ms: u64) -> Self {
        self.event.ts = Some(Timestamp(ms));
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.event.tags.push(tag.into());
        self
    }

    /// Adds an event that led to this one.
    #[must_use]
    pub fn caused_by(mut self, id: &EventId) -> Self {
        self.event.caused_by.push(id.clone());
        self
    }

    /// Sets the session or stream it comes from.
    #[must_use]
    pub fn sid(mut self, sid: impl Into<String>) -> Self {
        self.event.sid = Some(sid.into());
        self
    }

    fn set_invalid(&mut self, reason: impl std::fmt::Display) {
        self.invalid.get_or_insert_with(|| Error::refused(ErrorCode::BadFrame, reason));
    }

    /// Returns the event, or the first error in it.
    pub(crate) fn checked(mut self) -> Result<NewEvent> {
        if let Some(invalid) = self.invalid {
            return Err(invalid);
        }
        if !self.headers.is_empty() {
            self.event.headers = Headers::new(self.headers).ok_or_else(|| {
                let reason = format_args!("headers: at most {MAX_HEADERS}");
                Error::refused(ErrorCode::BadFrame, reason)
            })?;
        }
        Ok(self.event)
    }

    /// Returns the event with an id, so that sending it again does not store it twice.
    pub(crate) fn identified(self, ids: &IdSource) -> Result<NewEvent> {
        let mut event = self.checked()?;
        event.id.get_or_insert_with(|| ids.next_id());
        Ok(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(event: Outgoing) -> String {
        let error = event.checked().unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::BadFrame));
        error.to_string()
    }

    #[test]
    fn names_the_invalid_attribute() {
        let event = || Outgoing::new(&1).unwrap();
        assert!(reason(event().key("")).contains("key: "));
        assert!(reason(event().id("a\nb").key("")).contains("id: "));
        let many = (0..65).fold(event(), |event, n| event.header(n.to_string(), ""));
        assert!(reason(many).contains("headers: at most 64"));
        let pairs = std::collections::HashMap::from([((1, 2), 3)]);
        let error = Outgoing::new(&pairs).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::BadJson));
    }

    #[test]
    fn every_attribute_is_in_the_event() {
        let cause = EventId::new("before").unwrap();
        let event = Outgoing::new(&[1]).unwrap();
        let event =
            event.key("k").id("i").ts(7).tag("t").sid("s").header("a", "1").header("a", "2");
        let event = event.caused_by(&cause).identified(&IdSource::system()).unwrap();
        assert_eq!(event.id, Some(EventId::new("i").unwrap()));
        assert_eq!(event.headers.get("a"), Some("2"));
        assert_eq!((event.ts, event.sid.as_deref()), (Some(Timestamp(7)), Some("s")));
        assert_eq!((event.tags, event.caused_by), (vec!["t".to_owned()], vec![cause]));
        let other = Outgoing::new(&1).unwrap().identified(&IdSource::system()).unwrap();
        assert!(other.id.unwrap().as_uuid().is_some());
    }
}
