//! Reads and scans the keyed state.

use std::collections::{BTreeMap, HashMap};

use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::{ClientSession, Collection};
use prombus_engine::{ReadError, StateEntry, StateKey};

use crate::error::read_error;
use crate::state::document::{decode, not_expired};
use crate::state::location::{StateCollection, StateLayout};
use crate::store::Store;

/// A few megabytes with the longest keys.
const KEYS_PER_QUERY: usize = 2000;
const MAX_BATCH_SIZE: u32 = 1000;

impl Store {
    pub(crate) async fn get_many(
        &self,
        keys: &[StateKey],
    ) -> Result<Vec<Option<StateEntry>>, ReadError> {
        let mut session = self.read_session().await.map_err(read_error)?;
        let now = self.clock.now();
        let layout = self.collections.state_layout;
        let collection = |name: &str| self.collections.state(name);
        let found = entries_of(&mut session, layout, keys, collection).await.map_err(read_error)?;
        let get = |key| found.get(key).filter(|entry| !entry.has_expired(now)).cloned();
        Ok(keys.iter().map(get).collect())
    }

    pub(crate) async fn scan(
        &self,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, ReadError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut session = self.read_session().await.map_err(read_error)?;
        let mut found = Vec::new();
        let collections = self.collections.state_layout.collections();
        for collection in collections.filter(|collection| collection.may_hold(prefix)) {
            let entries = self.scan_one(&mut session, collection, prefix, after, limit).await;
            found.extend(entries.map_err(read_error)?);
        }
        found.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        found.truncate(limit);
        Ok(found)
    }

    /// Returns the first `limit` matching entries of `collection`.
    async fn scan_one(
        &self,
        session: &mut ClientSession,
        collection: StateCollection,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, Error> {
        let after = after.map_or(&b""[..], StateKey::as_bytes);
        let start = prefix.max(after);
        let Some(lower_bound) = collection.lower_bound(start) else { return Ok(Vec::new()) };
        let now = self.clock.now();
        let mut filter = not_expired(now);
        filter.insert(collection.order_field(), doc! { "$gte": lower_bound });
        let documents = self.collections.state(collection.name());
        let batch_size = u32::try_from(limit).unwrap_or(u32::MAX).saturating_add(1);
        let query = documents
            .find(filter)
            .sort(doc! { collection.order_field(): 1 })
            .batch_size(batch_size.min(MAX_BATCH_SIZE));
        let mut cursor = query.session(&mut *session).await?;
        let mut found = Vec::new();
        while found.len() < limit && cursor.advance(session).await? {
            let Some(entry) = decode(collection, cursor.current()) else { continue };
            let key = entry.key.as_bytes();
            if key.starts_with(prefix) && key > after && !entry.has_expired(now) {
                found.push(entry);
            } else if key > prefix && !key.starts_with(prefix) {
                break;
            }
        }
        Ok(found)
    }
}

/// Returns the entries at `keys`, expired ones included.
pub(crate) async fn entries_of(
    session: &mut ClientSession,
    layout: StateLayout,
    keys: &[StateKey],
    open: impl Fn(&'static str) -> Collection<RawDocumentBuf>,
) -> Result<HashMap<StateKey, StateEntry>, Error> {
    let mut ids_by_name: BTreeMap<&str, (StateCollection, Vec<String>)> = BTreeMap::new();
    for key in keys {
        let location = layout.locate(key);
        let collection = location.collection;
        let (_, ids) =
            ids_by_name.entry(collection.name()).or_insert_with(|| (collection, Vec::new()));
        ids.push(location.id);
    }
    let mut entries = HashMap::new();
    for (collection, ids) in ids_by_name.into_values() {
        let documents = open(collection.name());
        for ids in ids.chunks(KEYS_PER_QUERY) {
            let query = documents.find(doc! { "_id": { "$in": ids } });
            let mut cursor = query.session(&mut *session).await?;
            while cursor.advance(session).await? {
                if let Some(entry) = decode(collection, cursor.current()) {
                    entries.insert(entry.key.clone(), entry);
                }
            }
        }
    }
    Ok(entries)
}
