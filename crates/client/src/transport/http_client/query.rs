//! Query parameters.

use std::fmt::{Display, Write};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters to be percent-encoded.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path with query parameters.
pub struct Query(String);

impl Query {
    /// Creates a query without parameters.
    #[must_use]
    pub fn of(path: &str) -> Self {
        Self(path.to_owned())
    }

    /// Adds a parameter unless `value` is `None`.
    #[must_use]
    pub fn with(mut self, name: &str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            let separator = if self.0.contains('?') { '&' } else { '?' };
            let value = value.to_string();
            let value = utf8_percent_encode(&value, RESERVED);
            write!(self.0, "{separator}{name}={value}").expect("writing to a string cannot fail");
        }
        self
    }

    /// Returns the path and parameters, percent-encoded.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_values_and_skips_absent_ones() {
        let query = Query::of("/export")
            .with("topic", Some("a.b"))
            .with("fromTs", None::<u64>)
            .with("afterId", Some("é &=+%?#/"));
        assert_eq!(query.as_str(), "/export?topic=a.b&afterId=%C3%A9%20%26%3D%2B%25%3F%23%2F");
        assert_eq!(Query::of("/topics").as_str(), "/topics");
    }
}
