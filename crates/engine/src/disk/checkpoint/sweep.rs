//! Removes files that no catalog names: a process that ended between writing a catalog and removing
//! files, or in the middle of a checkpoint, left them behind.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use prombus_proto::{Seq, Topic};

use super::Checkpointer;
use crate::disk::storage::layout::Layout;

/// How many topic folders are swept before other tasks get their turn.
const FOLDERS_AT_A_TIME: usize = 500;

/// What is left to sweep.
pub(super) enum Sweep {
    Everything,
    Topics(Vec<String>),
    Nothing,
}

impl Checkpointer {
    /// Continues to sweep. Only this thread creates the files in question, and no merge starts before
    /// the runs are swept, so all that the catalog does not name is left over. What cannot be listed
    /// or removed only takes space.
    pub(super) fn sweep(&mut self) {
        let layout = &self.shared.layout;
        match &mut self.sweep {
            Sweep::Nothing => {}
            Sweep::Everything => {
                self.sweep_numbered();
                self.sweep = Sweep::Topics(layout.fs().list(&layout.topics()).unwrap_or_default());
            }
            Sweep::Topics(names) if names.is_empty() => self.sweep = Sweep::Nothing,
            Sweep::Topics(names) => {
                let later = names.len().saturating_sub(FOLDERS_AT_A_TIME);
                let now = names.split_off(later);
                now.iter().for_each(|name| self.sweep_topic(name));
            }
        }
    }

    fn sweep_numbered(&self) {
        let (layout, catalog) = (&self.shared.layout, &self.catalog);
        let ids = catalog.id_runs.iter().map(|run| layout.id_run(run.number));
        let state = catalog.state_runs.iter().map(|run| layout.state_run(run.number));
        let packs = self.packs.numbers().map(|number| layout.pack(number));
        self.sweep_folder(&layout.ids(), "ids", &ids.collect());
        self.sweep_folder(&layout.state(), "kv", &state.collect());
        self.sweep_folder(&layout.packs(), "pack", &packs.collect());
        if self.catalog_files.lacks_copy {
            // The older full copy needs the edits after it.
            return;
        }
        let edits = self.catalog_files.edits(catalog.checkpoint);
        let edits: HashSet<_> = edits.flat_map(|number| layout.edit_copies(number)).collect();
        self.sweep_folder(&layout.edits(), "edit", &edits);
        self.sweep_folder(&layout.edits(), "mirror", &edits);
    }

    fn sweep_topic(&self, name: &str) {
        let Ok(topic) = Topic::new(name) else { return };
        let layout = &self.shared.layout;
        let in_files = || self.catalog.segments(&topic).iter().filter(|s| s.pack().is_none());
        let named = |path: fn(&Layout, &Topic, Seq) -> PathBuf| {
            in_files().map(|segment| path(layout, &topic, segment.first)).collect()
        };
        let folder = layout.topic(&topic);
        self.sweep_folder(&folder, "seg", &named(Layout::segment));
        self.sweep_folder(&folder, "idx", &named(Layout::sparse_index));
        if !self.catalog.topics.contains_key(&topic) {
            self.remove_folder(&topic);
        }
    }

    /// Removes the files `N.extension` in `folder` that are not in `named`.
    fn sweep_folder(&self, folder: &Path, extension: &str, named: &HashSet<PathBuf>) {
        let numbers = self.shared.layout.numbered(folder, extension).unwrap_or_default();
        let path = |number: u64| folder.join(format!("{number:020}.{extension}"));
        let left: Vec<_> = numbers.into_iter().map(path).filter(|p| !named.contains(p)).collect();
        self.remove_files(&left);
    }
}
