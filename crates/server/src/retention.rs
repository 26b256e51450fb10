//! The retention of each topic of a database, for `prombus migrate`.

use std::collections::BTreeMap;

use prombus_bus::TopicSettings;
use prombus_bus::topic_settings::{self, UnusableSettings};
use prombus_engine::ReadError;
use prombus_engine_mongo::Migration;
use prombus_proto::Topic;
use thiserror::Error;

use crate::config::Config;
use crate::server::bus_settings;

/// Why the retention of the topics cannot be determined.
#[derive(Debug, Error)]
pub enum RetentionError {
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The stored settings of a topic are not readable.
    #[error(transparent)]
    Settings(#[from] UnusableSettings),
}

/// Topic settings read per page.
const PAGE_ENTRIES: usize = 512;

/// Returns the retention of each topic that has one, in milliseconds. Settings stored while a server ran take
/// precedence over `config`.
pub async fn effective_retention_ms(
    config: &Config,
    migration: &Migration,
) -> Result<BTreeMap<Topic, u64>, RetentionError> {
    let settings = bus_settings(config);
    let mut own: BTreeMap<Topic, TopicSettings> =
        settings.topics.names().map(|topic| (topic.clone(), TopicSettings::default())).collect();
    let mut after = None;
    loop {
        let page = migration.scan(topic_settings::prefix(), after.as_ref(), PAGE_ENTRIES).await?;
        for entry in &page {
            own.extend(topic_settings::read(entry)?);
        }
        match page.last() {
            Some(last) if page.len() == PAGE_ENTRIES => after = Some(last.key.clone()),
            _ => break,
        }
    }
    let limited = own.into_iter().filter_map(|(topic, own)| {
        let ms = settings.rules(&topic, &own).retention_ms?;
        Some((topic, ms))
    });
    Ok(limited.collect())
}
