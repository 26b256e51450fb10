//! Topics and groups, as callers may write them.

use prombus_proto::{ErrorCode, Group, Topic};

use crate::{Error, Result};

/// What names a topic: text, or a [`Topic`], which is checked once however often it is used.
pub trait IntoTopic {
    /// The topic, if it is one.
    fn into_topic(self) -> Result<Topic>;
}

impl IntoTopic for Topic {
    fn into_topic(self) -> Result<Topic> {
        Ok(self)
    }
}

impl IntoTopic for &Topic {
    fn into_topic(self) -> Result<Topic> {
        Ok(self.clone())
    }
}

impl IntoTopic for &str {
    fn into_topic(self) -> Result<Topic> {
        Topic::new(self)
            .map_err(|wrong| Error::refused(ErrorCode::BadTopic, format_args!("topic: {wrong}")))
    }
}

impl IntoTopic for &String {
    fn into_topic(self) -> Result<Topic> {
        self.as_str().into_topic()
    }
}

impl IntoTopic for String {
    fn into_topic(self) -> Result<Topic> {
        self.as_str().into_topic()
    }
}

pub(crate) fn group_named(name: &str) -> Result<Group> {
    Group::new(name)
        .map_err(|wrong| Error::refused(ErrorCode::BadGroup, format_args!("group: {wrong}")))
}
