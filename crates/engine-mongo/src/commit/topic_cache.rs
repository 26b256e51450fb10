//! The topics as this engine's last commits left them.

use std::collections::HashMap;

use parking_lot::Mutex;
use prombus_proto::{Seq, Topic};

use crate::layout::topic_document::TopicDocument;

/// Saves a commit the read of its topics. An entry may be stale after a commit of another gateway
/// or an election, so a commit that uses it writes only if the database still agrees.
#[derive(Debug, Default)]
pub(crate) struct TopicCache(Mutex<HashMap<String, TopicDocument>>);

/// A few megabytes. A full cache is cleared, which costs each topic one read.
const MAX_TOPICS: usize = 10_000;

impl TopicCache {
    /// Returns all of `topics`, or `None` if one of them is not cached.
    pub(crate) fn get_all<'a>(
        &self,
        topics: impl IntoIterator<Item = &'a str>,
    ) -> Option<HashMap<String, TopicDocument>> {
        let cached = self.0.lock();
        let get = |name: &str| Some((name.to_owned(), cached.get(name)?.clone()));
        topics.into_iter().map(get).collect()
    }

    pub(crate) fn insert(&self, topics: &[(Topic, TopicDocument)]) {
        let mut cached = self.0.lock();
        if cached.len() + topics.len() > MAX_TOPICS {
            cached.clear();
        }
        cached.extend(topics.iter().map(|(topic, document)| (topic.to_string(), document.clone())));
    }

    pub(crate) fn remove<'a>(&self, topics: impl IntoIterator<Item = &'a str>) {
        let mut cached = self.0.lock();
        for topic in topics {
            cached.remove(topic);
        }
    }

    /// Removes `topic` if its entry ends before `last`.
    pub(crate) fn remove_if_behind(&self, topic: &Topic, last: Seq) {
        let mut cached = self.0.lock();
        if cached.get(topic.as_str()).is_some_and(|document| document.last() < last) {
            cached.remove(topic.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, next: i64) -> (Topic, TopicDocument) {
        (Topic::new(name).unwrap(), TopicDocument { next, ..TopicDocument::new(name) })
    }

    fn cached(cache: &TopicCache, names: &[&str]) -> Option<Vec<i64>> {
        let found = cache.get_all(names.iter().copied())?;
        Some(names.iter().map(|name| found[*name].next).collect())
    }

    #[test]
    fn returns_all_topics_or_none() {
        let cache = TopicCache::default();
        cache.insert(&[topic("a", 3), topic("b", 7)]);
        assert_eq!(cached(&cache, &["a", "b"]), Some(vec![3, 7]));
        assert_eq!(cached(&cache, &["a", "c"]), None);
        cache.remove(["a"]);
        assert_eq!((cached(&cache, &["a"]), cached(&cache, &["b"])), (None, Some(vec![7])));
    }

    #[test]
    fn removes_only_topics_that_are_behind() {
        let cache = TopicCache::default();
        cache.insert(&[topic("a", 3)]);
        cache.remove_if_behind(&Topic::new("a").unwrap(), Seq(2));
        assert_eq!(cached(&cache, &["a"]), Some(vec![3]));
        cache.remove_if_behind(&Topic::new("a").unwrap(), Seq(3));
        assert_eq!(cached(&cache, &["a"]), None);
    }

    #[test]
    fn stays_within_its_limit() {
        let cache = TopicCache::default();
        for number in 0..=MAX_TOPICS {
            cache.insert(&[topic(&format!("t{number}"), 2)]);
        }
        assert_eq!(cache.0.lock().len(), 1);
    }
}
