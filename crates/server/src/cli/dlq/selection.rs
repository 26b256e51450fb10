//! Which dead letters a command is for, and the requests for them.

use bytes::Bytes;
use hyper::Method;
use prombus_client::transport::{HttpClient, HttpFailure};
use prombus_proto::{EventId, Group, Topic};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Ids per request.
const MAX_IDS: usize = 1000;

#[derive(clap::Args)]
pub(super) struct Selection {
    /// Only the letters of this group
    #[arg(long, value_name = "GROUP")]
    pub(super) group: Option<Group>,
    /// Only the letters of the event with this id, or the letter with this id; repeatable
    #[arg(long = "id", value_name = "ID")]
    pub(super) ids: Vec<EventId>,
}

/// An answer, and where the next request goes on.
#[derive(Deserialize)]
struct Page<T> {
    #[serde(flatten)]
    counts: T,
    next: Option<EventId>,
    /// Where the letters ended when the request began.
    end_seq: u64,
}

impl Selection {
    /// Sends requests until the server has no more letters, and hands each answer to `count`. All of them have the
    /// members `everywhere`.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        client: &mut HttpClient,
        path: &str,
        everywhere: &Map<String, Value>,
        mut count: impl FnMut(T),
    ) -> Result<(), HttpFailure> {
        for mut body in self.bodies(everywhere) {
            loop {
                let json = Bytes::from(Value::Object(body.clone()).to_string());
                let answer = client.send(Method::POST, path, "application/json", json).await?;
                let Page { counts, next, end_seq } = answer.json().await?;
                count(counts);
                // Not those that arrive meanwhile: an event that fails again at once would be redriven for ever.
                body.entry("before_seq").or_insert(json!(end_seq));
                let Some(next) = next else { break };
                let next = json!(next);
                if body.get("after") == Some(&next) {
                    let reason = "the next page is the same page".to_owned();
                    return Err(HttpFailure::NotUnderstood(reason));
                }
                body.insert("after".to_owned(), next);
            }
        }
        Ok(())
    }

    /// Returns `true` if it names no letters and no group.
    pub(super) const fn is_everything(&self) -> bool {
        self.group.is_none() && self.ids.is_empty()
    }

    /// Returns an error if letters were named. To be called if there are none.
    pub(super) fn reject_unknown_ids(&self, topic: &Topic) -> Result<(), String> {
        match self.ids.as_slice() {
            [] => Ok(()),
            [id] => Err(format!("{topic} has no dead letter of the event {id}")),
            _ => Err(format!("{topic} has no dead letter of any of these events")),
        }
    }

    /// Returns the bodies of the first requests: one, or as many as the ids need.
    fn bodies(&self, everywhere: &Map<String, Value>) -> Vec<Map<String, Value>> {
        let mut all = everywhere.clone();
        if let Some(group) = &self.group {
            all.insert("group".to_owned(), json!(group));
        }
        if self.ids.is_empty() {
            return vec![all];
        }
        let with_ids = |ids: &[EventId]| {
            let mut body = all.clone();
            body.insert("ids".to_owned(), json!(ids));
            body
        };
        self.ids.chunks(MAX_IDS).map(with_ids).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ids_take_several_requests() {
        let bodies = |group: Option<&str>, ids: usize| {
            let group = group.map(|group| Group::new(group).unwrap());
            let ids = (0..ids).map(|n| EventId::new(&format!("e{n}")).unwrap()).collect();
            let everywhere = Map::from_iter([("limit".to_owned(), json!(7))]);
            let bodies = Selection { group, ids }.bodies(&everywhere);
            bodies.into_iter().map(Value::Object).collect::<Vec<_>>()
        };
        assert_eq!(bodies(None, 0), [json!({"limit": 7})]);
        assert_eq!(bodies(Some("g"), 0), [json!({"group": "g", "limit": 7})]);
        assert_eq!(bodies(None, 2), [json!({"ids": ["e0", "e1"], "limit": 7})]);
        let many = bodies(Some("g"), 2001);
        let sizes: Vec<_> = many.iter().map(|body| body["ids"].as_array().unwrap().len()).collect();
        assert_eq!(sizes, [1000, 1000, 1]);
        assert!(many.iter().all(|body| body["group"] == "g"));
    }
}
