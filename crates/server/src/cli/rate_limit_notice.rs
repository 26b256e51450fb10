//! Says which limit a command waits for, and where it is set.

use prombus_server::config::{BucketConfig, Config, Sources};

use super::human_bytes::human_bytes;

/// Explains each kind of limit once per command.
#[derive(Default)]
pub(super) struct RateLimitNotice {
    explained: Vec<String>,
}

impl RateLimitNotice {
    /// Returns an explanation of the server's message about a rate limit, unless it was given before.
    pub(super) fn explain(&mut self, message: &str) -> Option<String> {
        if self.explained.iter().any(|explained| explained == message) {
            return None;
        }
        self.explained.push(message.to_owned());
        Some(explanation(message))
    }
}

fn explanation(message: &str) -> String {
    let limit = default_limit(message).unwrap_or_else(|| message.to_owned());
    format!("waiting for the rate limit: {limit}; --no-limits on the server turns limits off")
}

/// Names the limit and its default value; the server may be configured differently.
fn default_limit(message: &str) -> Option<String> {
    let limits = Config::load(&Sources::default()).ok()?.limits;
    let events = |bucket: BucketConfig, whose: &str, key: &str| {
        let BucketConfig { capacity, refill_per_sec } = bucket;
        let burst = match capacity == refill_per_sec {
            true => String::new(),
            false => format!(", {capacity} at once"),
        };
        format!("by default {refill_per_sec} events/s{burst} per {whose} (limits.{key})")
    };
    let bytes = |whose: &str| {
        let rate = human_bytes(limits.connection_bytes_per_sec as f64);
        format!("by default {rate}/s per {whose} (limits.connection.bytes_per_sec)")
    };
    let (limit, _) = message.split_once(" publish ")?;
    let is_bytes = message.contains("byte rate");
    Some(match (limit, is_bytes) {
        ("conn", false) => events(limits.connection, "connection", "connection"),
        ("principal", false) => events(limits.principal, "client", "principal"),
        ("topic", false) => events(limits.topic, "topic", "topic"),
        ("conn", true) => bytes("connection"),
        ("principal", true) => format!("bytes per client ({message})"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_limit_its_default_and_its_setting() {
        let mut notice = RateLimitNotice::default();
        let text = notice.explain("conn publish rate exceeded").unwrap();
        let expected = "waiting for the rate limit: by default 200 events/s per connection \
                        (limits.connection); --no-limits on the server turns limits off";
        assert_eq!(text, expected);
        assert_eq!(notice.explain("conn publish rate exceeded"), None);
        let text = notice.explain("topic publish rate exceeded").unwrap();
        assert!(text.contains("1000 events/s per topic (limits.topic)"), "{text}");
        let text = notice.explain("principal publish rate exceeded").unwrap();
        assert!(text.contains("4000 events/s per client (limits.principal)"), "{text}");
        let text = notice.explain("conn publish byte rate exceeded").unwrap();
        assert!(text.contains("64.0 MiB/s per connection"), "{text}");
        assert!(explanation("something else").contains("something else"));
    }
}
