//! Names of topics and groups in the arguments of calls.

use prombus_proto::{ErrorCode, Group, Topic};

use crate::{Error, Result};

/// The name of a topic: text, or a [`Topic`], which is validated only once.
pub trait IntoTopic {
    /// Converts the name.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::BadTopic`] if the name is not valid.
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
            .map_err(|error| Error::refused(ErrorCode::BadTopic, format_args!("topic: {error}")))
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

pub(crate) fn parse_group(name: &str) -> Result<Group> {
    Group::new(name)
        .map_err(|error| Error::refused(ErrorCode::BadGroup, format_args!("group: {error}")))
}
