//! Looking up and scanning the keyed state.

use std::collections::{BTreeMap, HashMap};

use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::{ClientSession, Collection};
use prombus_engine::{ReadError, StateEntry, StateKey};

use crate::error::of_read;
use crate::state::collection::{Place, Shelf};
use crate::state::document::{decode, not_over};
use crate::store::Store;

/// Keys in one question; with the longest keys some megabytes.
const KEYS_AT_ONCE: usize = 2000;
const ENTRIES_AT_ONCE: u32 = 1000;

impl Store {
    pub(crate) async fn get_many(
        &self,
        keys: &[StateKey],
    ) -> Result<Vec<Option<StateEntry>>, ReadError> {
        let mut session = self.reader().await.map_err(of_read)?;
        let now = self.clock.now();
        let shelf = |shelf: Shelf| self.collections.state(shelf.collection());
        let found = entries_of(&mut session, keys, shelf).await.map_err(of_read)?;
        let alive = |key| found.get(key).filter(|entry| !entry.has_expired(now)).cloned();
        Ok(keys.iter().map(alive).collect())
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
        let mut session = self.reader().await.map_err(of_read)?;
        let mut found = Vec::new();
        for shelf in Shelf::ALL.into_iter().filter(|shelf| shelf.may_hold(prefix)) {
            let entries = self.scan_shelf(&mut session, shelf, prefix, after, limit).await;
            found.extend(entries.map_err(of_read)?);
        }
        found.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        found.truncate(limit);
        Ok(found)
    }

    /// The first `limit` entries of one shelf.
    async fn scan_shelf(
        &self,
        session: &mut ClientSession,
        shelf: Shelf,
        prefix: &[u8],
        after: Option<&StateKey>,
        limit: usize,
    ) -> Result<Vec<StateEntry>, Error> {
        let after = after.map_or(&b""[..], StateKey::as_bytes);
        let Some(text) = shelf.text_from(prefix.max(after)) else { return Ok(Vec::new()) };
        let now = self.clock.now();
        let mut wanted = not_over(now);
        wanted.insert(shelf.ordered_by(), doc! { "$gte": text });
        let collection = self.collections.state(shelf.collection());
        let at_once = u32::try_from(limit).unwrap_or(u32::MAX).saturating_add(1);
        let query = collection
            .find(wanted)
            .sort(doc! { shelf.ordered_by(): 1 })
            .batch_size(at_once.min(ENTRIES_AT_ONCE));
        let mut cursor = query.session(&mut *session).await?;
        let mut found = Vec::new();
        while found.len() < limit && cursor.advance(session).await? {
            let Some(entry) = decode(shelf, cursor.current()) else { continue };
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

/// What is stored at `keys`, also what has expired.
pub(crate) async fn entries_of(
    session: &mut ClientSession,
    keys: &[StateKey],
    collection_of: impl Fn(Shelf) -> Collection<RawDocumentBuf>,
) -> Result<HashMap<StateKey, StateEntry>, Error> {
    let mut wanted: BTreeMap<Shelf, Vec<String>> = BTreeMap::new();
    for key in keys {
        let place = Place::of(key);
        wanted.entry(place.shelf).or_default().push(place.id);
    }
    let mut entries = HashMap::new();
    for (shelf, ids) in wanted {
        let collection = collection_of(shelf);
        for ids in ids.chunks(KEYS_AT_ONCE) {
            let query = collection.find(doc! { "_id": { "$in": ids } });
            let mut cursor = query.session(&mut *session).await?;
            while cursor.advance(session).await? {
                if let Some(entry) = decode(shelf, cursor.current()) {
                    entries.insert(entry.key.clone(), entry);
                }
            }
        }
    }
    Ok(entries)
}
