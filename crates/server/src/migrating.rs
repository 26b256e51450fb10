//! How long the topics of a database are to keep their events, whoever said so.

use std::collections::BTreeMap;

use prombus_bus::TopicSettings;
use prombus_bus::topic_settings::{self, UnusableSettings};
use prombus_engine::ReadError;
use prombus_engine_mongo::Migration;
use prombus_proto::Topic;
use thiserror::Error;

use crate::config::Config;
use crate::server::bus_settings;

/// Why that is not known.
#[derive(Debug, Error)]
pub enum WantedError {
    /// The database does not say.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What was set for a topic earlier cannot be read.
    #[error(transparent)]
    Settings(#[from] UnusableSettings),
}

/// Entries of settings that are read at once.
const AT_ONCE: usize = 512;

/// How long, in milliseconds, for those that do not keep them for ever: as `config` says, and as was set
/// while a bus ran, which comes first.
pub async fn wanted_ttls(
    config: &Config,
    migration: &Migration,
) -> Result<BTreeMap<Topic, u64>, WantedError> {
    let settings = bus_settings(config);
    let mut own: BTreeMap<Topic, TopicSettings> =
        settings.topics.keys().map(|topic| (topic.clone(), TopicSettings::default())).collect();
    let mut after = None;
    loop {
        let page = migration.scan(topic_settings::prefix(), after.as_ref(), AT_ONCE).await?;
        for entry in &page {
            own.extend(topic_settings::read(entry)?);
        }
        match page.last() {
            Some(last) if page.len() == AT_ONCE => after = Some(last.key.clone()),
            _ => break,
        }
    }
    let kept = own.into_iter().filter_map(|(topic, own)| {
        let ms = settings.rules(&topic, &own).retention_ms?;
        Some((topic, ms))
    });
    Ok(kept.collect())
}
