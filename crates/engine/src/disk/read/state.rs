//! Reads the keyed state: the memtable first, then the sorted runs.

use super::fault::ReadFault;
use crate::disk::shared::Shared;
use crate::disk::sorted_runs::RunFault;
use crate::disk::state::StateRange;
use crate::{Damaged, Incident, ReadError, StateEntry, StateKey};

/// Implements [`crate::Engine::get`].
pub(crate) fn get(shared: &Shared, key: &StateKey) -> Result<Option<StateEntry>, ReadError> {
    if let Some(entry) = get_recent(shared, key) {
        return Ok(entry);
    }
    // A checkpoint publishes its run before it removes the changes from the memtable, so a key that
    // was not in the memtable is in a run.
    let change = shared.state_runs().get(key).map_err(|fault| read_error(shared, fault))?;
    let now = shared.options.clock.now();
    Ok(change.and_then(|change| change.entry()).filter(|entry| !entry.has_expired(now)))
}

/// Looks up `key` in the memtable only. Returns `None` if the runs have to be searched.
pub(crate) fn get_recent(shared: &Shared, key: &StateKey) -> Option<Option<StateEntry>> {
    let entry = shared.view().memtable.get(key).map(|change| change.entry())?;
    let now = shared.options.clock.now();
    Some(entry.filter(|entry| !entry.has_expired(now)))
}

/// Implements [`crate::Engine::scan`].
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
        // More than asked for, so that a few deleted entries do not cost another round.
        let round = (limit - entries.len()).saturating_mul(2).clamp(64, 10_000);
        let mut range = StateRange::default();
        let from_memtable = |range: &mut StateRange| {
            let view = shared.view();
            range.add(round, view.memtable.range(prefix, after.as_ref()).map(|c| Ok(c.clone())))
        };
        from_memtable(&mut range).map_err(|fault| read_error(shared, fault))?;
        shared
            .state_runs()
            .range_into(&mut range, prefix, after.as_ref(), round)
            .map_err(|fault| read_error(shared, fault))?;
        let (changes, continue_after) = range.finish();
        entries.extend(
            changes
                .iter()
                .filter_map(|change| change.entry())
                .filter(|entry| !entry.has_expired(now)),
        );
        match continue_after {
            Some(key) => after = Some(key),
            None => break,
        }
    }
    entries.truncate(limit);
    Ok(entries)
}

fn read_error(shared: &Shared, fault: RunFault) -> ReadError {
    match fault {
        RunFault::Damaged(detail) => {
            shared.report(Incident::DamagedState { detail: detail.clone() });
            Damaged::State(detail).into()
        }
        RunFault::Io(error) => ReadFault::Io(error).into_read_error(&shared.layout.state()),
    }
}
