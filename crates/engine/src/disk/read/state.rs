//! Reading the keyed state: what is still in the write-ahead log, then the sorted files.

use crate::disk::shared::Shared;
use crate::disk::state::KeyedRange;
use crate::{Damaged, Incident, ReadError, StateEntry, StateKey};

/// See [`crate::Engine::get`].
pub(crate) fn get(shared: &Shared, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
    if let Some(entry) = get_recent(shared, key) {
        return Ok(entry);
    }
    // A checkpoint shows its file before it takes the change out of the log's view: what was not
    // there is in a file.
    let change = shared.keyed().get(key).map_err(|detail| damaged(shared, detail))?;
    let now = shared.options.clock.now();
    Ok(change.and_then(|change| change.entry()).filter(|entry| !entry.has_expired(now)))
}

/// The entry where the write-ahead log has it, or knows that it is gone.
pub(crate) fn get_recent(shared: &Shared, key: &StateKey) -> Option<Option<StateEntry>> {
    let entry = shared.view().overlay.get(key).map(|change| change.entry())?;
    let now = shared.options.clock.now();
    Some(entry.filter(|entry| !entry.has_expired(now)))
}

/// See [`crate::Engine::scan`].
pub(crate) fn scan(
    shared: &Shared,
    prefix: &[u8],
    after: Option<&StateKey>,
    limit: usize,
) -> Result<Vec<StateEntry>, ReadError> {
    let now = shared.options.clock.now();
    let mut entries = Vec::new();
    let mut after = after.cloned();
    while entries.len() < limit {
        // Some more than asked for, so that deleted ones do not mean a round each.
        let round = (limit - entries.len()).saturating_mul(2).clamp(64, 10_000);
        let mut range = KeyedRange::default();
        let in_log = |range: &mut KeyedRange| {
            let view = shared.view();
            range.add(round, view.overlay.range(prefix, after.as_ref()).map(|c| Ok(c.clone())))
        };
        in_log(&mut range).map_err(|detail| damaged(shared, detail))?;
        shared
            .keyed()
            .range_into(&mut range, prefix, after.as_ref(), round)
            .map_err(|detail| damaged(shared, detail))?;
        let (changes, more_behind) = range.finish();
        entries.extend(
            changes
                .iter()
                .filter_map(|change| change.entry())
                .filter(|entry| !entry.has_expired(now)),
        );
        match more_behind {
            Some(key) => after = Some(key),
            None => break,
        }
    }
    entries.truncate(limit);
    Ok(entries)
}

fn damaged(shared: &Shared, detail: String) -> ReadError {
    shared.report(Incident::DamagedState { detail: detail.clone() });
    Damaged::State(detail).into()
}
