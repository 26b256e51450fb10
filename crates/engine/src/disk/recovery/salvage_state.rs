//! Starts with what is left of damaged state, if the operator asked for it.
//!
//! A damaged page of a state run would otherwise fail every look-up that needs it, and with it the
//! start. Here a damaged run is replaced by a run of its readable entries. The damaged file goes to
//! quarantine, and the keys in its damaged pages are lost, or fall back to an older value.

use std::io;

use crate::disk::checkpoint::catalog::Catalog;
use crate::disk::checkpoint::catalog::files::StoredCatalog;
use crate::disk::state::run::{StateRun, StateRunInfo, write_run};
use crate::disk::storage::file_header::HeaderFault;
use crate::disk::storage::layout::Layout;
use crate::disk::storage::quarantine::link_into_quarantine;
use crate::{Incident, OpenError};

use super::failed;

/// Replaces the damaged state runs of `catalog`, and stores it if there are any.
pub(super) fn salvage_state(
    layout: &Layout,
    stored: &mut StoredCatalog,
) -> Result<Vec<Incident>, OpenError> {
    let StoredCatalog { catalog, files } = stored;
    let mut incidents = Vec::new();
    let mut runs = Vec::new();
    for info in std::mem::take(&mut catalog.state_runs) {
        let path = layout.state_run(info.number);
        let salvaged = salvage_run(layout, info, catalog).map_err(failed(&path))?;
        if let Salvaged::Replaced { lost, .. } = &salvaged {
            let detail = format!("{}: {lost}; its readable entries were kept", path.display());
            incidents.push(Incident::DamagedState { detail });
        }
        runs.extend(salvaged.info());
    }
    catalog.state_runs = runs;
    if !incidents.is_empty() {
        catalog.checkpoint += 1;
        files.store(layout, catalog).map_err(failed(&layout.catalog()))?;
    }
    Ok(incidents)
}

enum Salvaged {
    Intact(StateRunInfo),
    /// `None` if nothing was readable.
    Replaced {
        by: Option<StateRunInfo>,
        lost: String,
    },
}

impl Salvaged {
    fn info(&self) -> Option<StateRunInfo> {
        match self {
            Self::Intact(info) => Some(*info),
            Self::Replaced { by, .. } => *by,
        }
    }
}

fn salvage_run(layout: &Layout, info: StateRunInfo, catalog: &mut Catalog) -> io::Result<Salvaged> {
    let path = layout.state_run(info.number);
    let run = match StateRun::open(layout.fs(), path.clone(), info) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Salvaged::Replaced { by: None, lost: "the file is missing".to_owned() });
        }
        run => run?,
    };
    let is_right_file = match run.header_number() {
        Ok(number) => number == info.number,
        // The caller refuses a newer format.
        Err(HeaderFault::Newer { .. }) => return Ok(Salvaged::Intact(info)),
        Err(HeaderFault::Damaged(_)) => true,
    };
    if is_right_file && run.is_readable()? && run.is_filter_readable() {
        return Ok(Salvaged::Intact(info));
    }
    link_into_quarantine(layout, &path)?;
    if !is_right_file {
        let lost = "it is the file of another run".to_owned();
        return Ok(Salvaged::Replaced { by: None, lost });
    }
    let number = catalog.take_run_number();
    let (changes, pages_lost) = run.readable_changes()?;
    let count = changes.len() as u64;
    let path = layout.state_run(number);
    let changes = changes.into_iter().map(Ok);
    let written = write_run(layout.fs(), &path, number, info.level, count, changes)?;
    layout.fs().sync_folder(&layout.state())?;
    let lost = format!("{pages_lost} damaged ranges");
    Ok(Salvaged::Replaced { by: written.map(|run| run.info), lost })
}
