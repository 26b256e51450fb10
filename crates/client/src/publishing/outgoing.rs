//! An event to publish.

use prombus_proto::limits::MAX_HEADERS;
use prombus_proto::{ErrorCode, EventId, Headers, IdSource, Key, NewEvent, Payload, Timestamp};
use serde::Serialize;

use crate::{Error, Result};

/// An event to publish: a payload, and what is beside it.
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
/// What is wrong with a key, an id or headers is said when the event is published.
#[derive(Clone, Debug)]
pub struct Outgoing {
    event: NewEvent,
    headers: Vec<(String, String)>,
    /// What was found wrong first.
    wrong: Option<Error>,
}

/// What can be published: a reference to anything that serde can write, or an [`Outgoing`].
pub trait IntoOutgoing {
    /// The event that it is.
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
    /// An event with this payload, which serde makes JSON of.
    pub fn new<T: Serialize + ?Sized>(payload: &T) -> Result<Self> {
        let payload =
            Payload::of(payload).map_err(|wrong| Error::refused(ErrorCode::BadJson, wrong))?;
        Ok(Self { event: NewEvent::of(payload), headers: Vec::new(), wrong: None })
    }

    /// What it is about: 1 to 256 bytes.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        match Key::new(key) {
            Ok(key) => self.event.key = Some(key),
            Err(wrong) => self.is_wrong(format_args!("key: {wrong}")),
        }
        self
    }

    /// A small fact beside the payload. Of one name the last counts; there are 64 at most.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Its identity, 1 to 256 bytes without control characters. A topic stores one event of an id.
    /// Without this the client makes a UUID of version 7.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        match EventId::new(id) {
            Ok(id) => self.event.id = Some(id),
            Err(wrong) => self.is_wrong(format_args!("id: {wrong}")),
        }
        self
    }

    /// When it happened, in milliseconds since 1970. Otherwise when the server got it.
    #[must_use]
    pub fn ts(mut self, ms: u64) -> Self {
        self.event.ts = Some(Timestamp(ms));
        self
    }

    /// A free label; there may be many.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.event.tags.push(tag.into());
        self
    }

    /// An event that led to it; there may be many.
    #[must_use]
    pub fn caused_by(mut self, id: &EventId) -> Self {
        self.event.caused_by.push(id.clone());
        self
    }

    /// The session or stream it comes from.
    #[must_use]
    pub fn sid(mut self, sid: impl Into<String>) -> Self {
        self.event.sid = Some(sid.into());
        self
    }

    fn is_wrong(&mut self, what: impl std::fmt::Display) {
        self.wrong.get_or_insert_with(|| Error::refused(ErrorCode::BadFrame, what));
    }

    /// The event as frames take it, or what is wrong with it.
    pub(crate) fn checked(mut self) -> Result<NewEvent> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        if !self.headers.is_empty() {
            self.event.headers = Headers::new(self.headers).ok_or_else(|| {
                let most = format_args!("headers: at most {MAX_HEADERS}");
                Error::refused(ErrorCode::BadFrame, most)
            })?;
        }
        Ok(self.event)
    }

    /// The same, with an id whatever happens: sent again it is known as the same.
    pub(crate) fn identified(self, ids: &IdSource) -> Result<NewEvent> {
        let mut event = self.checked()?;
        event.id.get_or_insert_with(|| ids.next_id());
        Ok(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(event: Outgoing) -> String {
        let error = event.checked().unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::BadFrame));
        error.to_string()
    }

    #[test]
    fn what_is_wrong_is_named() {
        let event = || Outgoing::new(&1).unwrap();
        assert!(wrong(event().key("")).contains("key: "));
        assert!(wrong(event().id("a\nb").key("")).contains("id: "));
        let many = (0..65).fold(event(), |event, n| event.header(n.to_string(), ""));
        assert!(wrong(many).contains("headers: at most 64"));
        let pairs = std::collections::HashMap::from([((1, 2), 3)]);
        let error = Outgoing::new(&pairs).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::BadJson));
    }

    #[test]
    fn all_of_it_is_in_the_event() {
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
