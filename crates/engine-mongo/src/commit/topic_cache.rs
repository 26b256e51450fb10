//! Where topics ended when this engine last wrote to them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prombus_proto::{Seq, Topic};

use crate::layout::topic_document::TopicDocument;

/// What commits begin with instead of looking. It may be out of date, by another gateway or an
/// election: whoever builds on it writes only where the database still agrees.
#[derive(Debug, Default)]
pub(crate) struct Ends(Mutex<HashMap<String, TopicDocument>>);

/// Some megabytes. Above it all are forgotten: that costs each a look, once.
const MOST: usize = 10_000;

impl Ends {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, TopicDocument>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of `topics`, unless one of them is not known.
    pub(crate) fn of_all<'a>(
        &self,
        topics: impl IntoIterator<Item = &'a str>,
    ) -> Option<HashMap<String, TopicDocument>> {
        let known = self.lock();
        let one = |name: &str| Some((name.to_owned(), known.get(name)?.clone()));
        topics.into_iter().map(one).collect()
    }

    pub(crate) fn remember(&self, grown: &[(Topic, TopicDocument)]) {
        let mut known = self.lock();
        if known.len() + grown.len() > MOST {
            known.clear();
        }
        known.extend(grown.iter().map(|(topic, end)| (topic.to_string(), end.clone())));
    }

    pub(crate) fn forget<'a>(&self, topics: impl IntoIterator<Item = &'a str>) {
        let mut known = self.lock();
        for topic in topics {
            known.remove(topic);
        }
    }

    /// Somebody says that `topic` reaches to `last`: if that is news, what is known is out of date.
    pub(crate) fn heard(&self, topic: &Topic, last: Seq) {
        let mut known = self.lock();
        if known.get(topic.as_str()).is_some_and(|end| end.last() < last) {
            known.remove(topic.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grown(name: &str, next: i64) -> (Topic, TopicDocument) {
        (Topic::new(name).unwrap(), TopicDocument { next, ..TopicDocument::new(name) })
    }

    fn known(ends: &Ends, names: &[&str]) -> Option<Vec<i64>> {
        let found = ends.of_all(names.iter().copied())?;
        Some(names.iter().map(|name| found[*name].next).collect())
    }

    #[test]
    fn all_are_known_or_none_is_of_use() {
        let ends = Ends::default();
        ends.remember(&[grown("a", 3), grown("b", 7)]);
        assert_eq!(known(&ends, &["a", "b"]), Some(vec![3, 7]));
        assert_eq!(known(&ends, &["a", "c"]), None);
        ends.forget(["a"]);
        assert_eq!((known(&ends, &["a"]), known(&ends, &["b"])), (None, Some(vec![7])));
    }

    #[test]
    fn only_news_makes_it_out_of_date() {
        let ends = Ends::default();
        ends.remember(&[grown("a", 3)]);
        ends.heard(&Topic::new("a").unwrap(), Seq(2));
        assert_eq!(known(&ends, &["a"]), Some(vec![3]));
        ends.heard(&Topic::new("a").unwrap(), Seq(3));
        assert_eq!(known(&ends, &["a"]), None);
    }

    #[test]
    fn it_stays_small() {
        let ends = Ends::default();
        for number in 0..=MOST {
            ends.remember(&[grown(&format!("t{number}"), 2)]);
        }
        assert_eq!(ends.lock().len(), 1);
    }
}
