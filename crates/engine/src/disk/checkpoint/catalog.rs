//! What the store was at its last checkpoint: topics and their segments, files of ids and state.
//!
//! Written whole at each checkpoint, beside the old one and then in its place, and kept twice.
//! All else hangs on it: a segment counts up to the length that the catalog says, so that what an
//! unfinished checkpoint left behind is simply written over.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use bytes::{Buf, BufMut};
use prombus_proto::{Seq, Timestamp, Topic};

use crate::disk::checksum::checksum;
use crate::disk::file_header::{self, CATALOG, HEADER_BYTES, HeaderFault};
use crate::disk::ids::Ordinal;
use crate::disk::ids::recent::IdKinds;
use crate::disk::ids::run::IdRunInfo;
use crate::disk::layout::{Layout, sync_folder};
use crate::disk::read::topic_view::{Content, Segment};
use crate::disk::state::run::StateRunInfo;
use crate::disk::wal::file::keep_copy;
use crate::{Incident, OpenError};

/// What the store was at its last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// Counts the checkpoints.
    pub(crate) checkpoint: u64,
    /// Log files up to this one have been moved.
    pub(crate) moved_wal: u64,
    pub(crate) next_frame: u64,
    pub(crate) last_version: u64,
    /// Makes hashes of ids unforeseeable.
    pub(crate) store_seed: u64,
    /// The number of the next file of ids or state.
    pub(crate) next_run: u64,
    pub(crate) id_runs: Vec<IdRunInfo>,
    /// Oldest first.
    pub(crate) state_runs: Vec<StateRunInfo>,
    pub(crate) topics: BTreeMap<Topic, CatalogTopic>,
}

/// A topic at the last checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogTopic {
    pub(crate) ordinal: Ordinal,
    pub(crate) first: Seq,
    pub(crate) next: Seq,
    pub(crate) newest_time_ordered: u128,
    /// The revision of the newest retention rule that was applied.
    pub(crate) rule: u64,
    pub(crate) segments: Vec<Segment>,
}

impl Catalog {
    /// Of a new, empty store.
    pub(crate) fn new(store_seed: u64) -> Self {
        Self {
            checkpoint: 0,
            moved_wal: 0,
            next_frame: 1,
            last_version: 0,
            store_seed,
            next_run: 1,
            id_runs: Vec::new(),
            state_runs: Vec::new(),
            topics: BTreeMap::new(),
        }
    }

    /// Makes this the catalog of the store, durably.
    pub(crate) fn store(&self, layout: &Layout) -> io::Result<()> {
        let bytes = self.encode();
        for path in [layout.catalog(), layout.catalog_mirror()] {
            let beside = path.with_extension("new");
            let mut file = File::create(&beside)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
        }
        sync_folder(layout.root())
    }

    /// The newest undamaged catalog of the store; nothing where the folder never had one. A
    /// damaged copy is reported, unless both are: then nothing can be told. Copies that differ are
    /// made the same again: the next thing that happens may be that the good one is damaged.
    pub(crate) fn load(layout: &Layout) -> Result<Option<(Self, Vec<Incident>)>, OpenError> {
        let mut newest: Option<Self> = None;
        let mut differ = false;
        let mut incidents = Vec::new();
        let mut damaged = Vec::new();
        let mut missing = 0;
        for path in [layout.catalog(), layout.catalog_mirror()] {
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing += 1;
                    incidents.push(Incident::Rebuilt { file: path, detail: "missing".to_owned() });
                    continue;
                }
                Err(source) => return Err(OpenError::Io { path, source }),
            };
            match Self::decode(&bytes) {
                Ok(catalog) => {
                    differ |= newest.as_ref().is_some_and(|newest| *newest != catalog);
                    if newest.as_ref().is_none_or(|n| n.checkpoint < catalog.checkpoint) {
                        newest = Some(catalog);
                    }
                }
                Err(fault @ HeaderFault::Newer { .. }) => return Err(fault.into_open_error(&path)),
                Err(HeaderFault::Damaged(detail)) => {
                    damaged.push((path.clone(), bytes));
                    incidents.push(Incident::Rebuilt { file: path, detail: detail.to_owned() });
                }
            }
        }
        match newest {
            Some(catalog) => {
                let io = |source| OpenError::Io { path: layout.catalog(), source };
                for (path, bytes) in &damaged {
                    keep_copy(layout, path, 0, bytes).map_err(io)?;
                }
                if differ || !incidents.is_empty() {
                    catalog.store(layout).map_err(io)?;
                }
                Ok(Some((catalog, incidents)))
            }
            None if missing == 2 && !has_data(layout)? => Ok(None),
            None => Err(OpenError::Damaged {
                path: layout.catalog(),
                detail: "neither it nor its mirror can be read; nothing was changed".to_owned(),
            }),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_slice(&file_header::encode(CATALOG, self.checkpoint));
        for number in [
            self.checkpoint,
            self.moved_wal,
            self.next_frame,
            self.last_version,
            self.store_seed,
            self.next_run,
        ] {
            out.put_u64_le(number);
        }
        out.put_u32_le(count(self.id_runs.len()));
        for run in &self.id_runs {
            out.put_u64_le(run.number);
            out.put_u32_le(run.level);
            out.put_u64_le(run.home_pages);
            out.put_u8(u8::from(run.kinds.others));
            out.put_u8(u8::from(run.kinds.times.is_some()));
            let (from, to) = run.kinds.times.unwrap_or_default();
            out.put_u64_le(from);
            out.put_u64_le(to);
        }
        out.put_u32_le(count(self.state_runs.len()));
        for run in &self.state_runs {
            out.put_u64_le(run.number);
            out.put_u32_le(run.level);
            out.put_u64_le(run.entries);
            out.put_u64_le(run.root);
            out.put_u64_le(run.filter);
            out.put_u64_le(run.filter_blocks);
            out.put_u64_le(run.all_expire_by.map_or(u64::MAX, |at| at.0));
            out.put_u64_le(run.half_expire_by.map_or(u64::MAX, |at| at.0));
        }
        out.put_u32_le(count(self.topics.len()));
        for (name, topic) in &self.topics {
            out.put_u8(u8::try_from(name.as_str().len()).expect("names have at most 200 bytes"));
            out.put_slice(name.as_str().as_bytes());
            out.put_u32_le(topic.ordinal.0);
            out.put_u64_le(topic.first.0);
            out.put_u64_le(topic.next.0);
            out.put_u128_le(topic.newest_time_ordered);
            out.put_u64_le(topic.rule);
            out.put_u32_le(count(topic.segments.len()));
            for segment in &topic.segments {
                out.put_u64_le(segment.first.0);
                out.put_u64_le(segment.last.0);
                out.put_u64_le(segment.end);
                out.put_u64_le(segment.latest_ts.0);
                out.put_u128_le(segment.newest_id);
                out.put_u32_le(segment.index_entries);
                out.put_u64_le(segment.begun.0);
                let (first_record, record_bytes) = match segment.content {
                    Content::Records => (0, 0),
                    Content::Frames { first_record, record_bytes } => (first_record, record_bytes),
                };
                out.put_u64_le(first_record);
                out.put_u64_le(record_bytes);
            }
        }
        let sum = checksum(&out[HEADER_BYTES..]);
        out.put_u32_le(sum);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        file_header::decode(CATALOG, bytes)?;
        let body = &bytes[HEADER_BYTES..];
        let Some((covered, mut sum)) = body.split_at_checked(body.len().wrapping_sub(4)) else {
            return Err(HeaderFault::Damaged("cut off"));
        };
        if checksum(covered) != sum.get_u32_le() {
            return Err(HeaderFault::Damaged("the checksum does not fit"));
        }
        let version = file_header::version(bytes);
        Self::decode_body(covered, version).ok_or(HeaderFault::Damaged("the fields do not fit"))
    }

    fn decode_body(mut body: &[u8], version: u16) -> Option<Self> {
        let fields = &mut body;
        let mut catalog = Self {
            checkpoint: fields.try_get_u64_le().ok()?,
            moved_wal: fields.try_get_u64_le().ok()?,
            next_frame: fields.try_get_u64_le().ok()?,
            last_version: fields.try_get_u64_le().ok()?,
            store_seed: fields.try_get_u64_le().ok()?,
            next_run: fields.try_get_u64_le().ok()?,
            id_runs: Vec::new(),
            state_runs: Vec::new(),
            topics: BTreeMap::new(),
        };
        for _ in 0..fields.try_get_u32_le().ok()? {
            catalog.id_runs.push(id_run(fields)?);
        }
        for _ in 0..fields.try_get_u32_le().ok()? {
            catalog.state_runs.push(state_run(fields, version)?);
        }
        for _ in 0..fields.try_get_u32_le().ok()? {
            let (name, topic) = catalog_topic(fields, version)?;
            catalog.topics.insert(name, topic);
        }
        fields.is_empty().then_some(catalog)
    }
}

fn count(items: usize) -> u32 {
    u32::try_from(items).expect("a catalog lists less than 2^32 of anything")
}

fn id_run(fields: &mut &[u8]) -> Option<IdRunInfo> {
    let (number, level) = (fields.try_get_u64_le().ok()?, fields.try_get_u32_le().ok()?);
    let home_pages = fields.try_get_u64_le().ok()?;
    let others = fields.try_get_u8().ok()? != 0;
    let has_times = fields.try_get_u8().ok()? != 0;
    let times = (fields.try_get_u64_le().ok()?, fields.try_get_u64_le().ok()?);
    let kinds = IdKinds { times: has_times.then_some(times), others };
    Some(IdRunInfo { number, level, home_pages, kinds })
}

fn state_run(fields: &mut &[u8], version: u16) -> Option<StateRunInfo> {
    Some(StateRunInfo {
        number: fields.try_get_u64_le().ok()?,
        level: fields.try_get_u32_le().ok()?,
        entries: fields.try_get_u64_le().ok()?,
        root: fields.try_get_u64_le().ok()?,
        filter: fields.try_get_u64_le().ok()?,
        filter_blocks: fields.try_get_u64_le().ok()?,
        all_expire_by: expiry(fields)?,
        // The first version did not know; it is known again when the file is merged.
        half_expire_by: if version >= 2 { expiry(fields)? } else { None },
    })
}

/// When something expires, if it does.
fn expiry(fields: &mut &[u8]) -> Option<Option<Timestamp>> {
    let at = fields.try_get_u64_le().ok()?;
    Some((at != u64::MAX).then_some(Timestamp(at)))
}

fn catalog_topic(fields: &mut &[u8], version: u16) -> Option<(Topic, CatalogTopic)> {
    let length = usize::from(fields.try_get_u8().ok()?);
    let (name, rest) = fields.split_at_checked(length)?;
    let name = Topic::new(std::str::from_utf8(name).ok()?).ok()?;
    *fields = rest;
    let mut topic = CatalogTopic {
        ordinal: Ordinal(fields.try_get_u32_le().ok()?),
        first: Seq(fields.try_get_u64_le().ok()?),
        next: Seq(fields.try_get_u64_le().ok()?),
        newest_time_ordered: fields.try_get_u128_le().ok()?,
        rule: fields.try_get_u64_le().ok()?,
        segments: Vec::new(),
    };
    for _ in 0..fields.try_get_u32_le().ok()? {
        topic.segments.push(Segment {
            first: Seq(fields.try_get_u64_le().ok()?),
            last: Seq(fields.try_get_u64_le().ok()?),
            end: fields.try_get_u64_le().ok()?,
            latest_ts: Timestamp(fields.try_get_u64_le().ok()?),
            newest_id: fields.try_get_u128_le().ok()?,
            index_entries: fields.try_get_u32_le().ok()?,
            begun: Timestamp(fields.try_get_u64_le().ok()?),
            // Before, no log file was kept as it is.
            content: if version >= 3 { content(fields)? } else { Content::Records },
        });
    }
    Some((name, topic))
}

fn content(fields: &mut &[u8]) -> Option<Content> {
    let (first_record, record_bytes) =
        (fields.try_get_u64_le().ok()?, fields.try_get_u64_le().ok()?);
    Some(match first_record {
        0 => Content::Records,
        _ => Content::Frames { first_record, record_bytes },
    })
}

/// Whether the folder holds anything that a catalog would have to tell about.
fn has_data(layout: &Layout) -> Result<bool, OpenError> {
    let has_files = |folder: &Path| match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(OpenError::Io { path: folder.to_owned(), source }),
    };
    Ok(has_files(&layout.wal())? || has_files(&layout.topics())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Catalog {
        let kinds = IdKinds { times: Some((3, 4)), others: true };
        let segment = Segment {
            first: Seq(2),
            last: Seq(9),
            end: 4000,
            latest_ts: Timestamp(77),
            newest_id: 5,
            index_entries: 1,
            begun: Timestamp(70),
            content: Content::Records,
        };
        let content = Content::Frames { first_record: 120, record_bytes: 3000 };
        let kept = Segment { first: Seq(10), last: Seq(19), content, ..segment };
        let topic = CatalogTopic {
            ordinal: Ordinal(5),
            first: Seq(3),
            next: Seq(20),
            newest_time_ordered: u128::MAX - 1,
            rule: 6,
            segments: vec![segment, kept],
        };
        Catalog {
            checkpoint: 8,
            id_runs: vec![IdRunInfo { number: 1, level: 2, home_pages: 3, kinds }],
            state_runs: vec![StateRunInfo {
                number: 4,
                level: 0,
                entries: 5,
                root: 6,
                filter: 7,
                filter_blocks: 8,
                all_expire_by: Some(Timestamp(9)),
                half_expire_by: Some(Timestamp(8)),
            }],
            topics: [(Topic::new("a.b").unwrap(), topic)].into(),
            ..Catalog::new(42)
        }
    }

    #[test]
    fn what_went_in_comes_out_and_every_flipped_bit_is_noticed() {
        let bytes = catalog().encode();
        assert_eq!(Catalog::decode(&bytes), Ok(catalog()));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Catalog::decode(&flipped).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Catalog::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn one_damaged_copy_is_reported_and_both_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path().to_owned());
        assert!(Catalog::load(&layout).unwrap().is_none());
        layout.create_folders().unwrap();
        catalog().store(&layout).unwrap();
        assert_eq!(Catalog::load(&layout).unwrap(), Some((catalog(), vec![])));
        fs::write(layout.catalog(), b"x").unwrap();
        let (loaded, incidents) = Catalog::load(&layout).unwrap().unwrap();
        assert_eq!((loaded, incidents.len()), (catalog(), 1));
        assert!(layout.quarantine().join("catalog.from-0").exists());
        // Both are sound again, also where only one was left behind by a crash.
        assert_eq!(Catalog::load(&layout).unwrap(), Some((catalog(), vec![])));
        let older = fs::read(layout.catalog_mirror()).unwrap();
        let newer = Catalog { checkpoint: 9, ..catalog() };
        newer.store(&layout).unwrap();
        fs::write(layout.catalog_mirror(), older).unwrap();
        assert_eq!(Catalog::load(&layout).unwrap(), Some((newer.clone(), vec![])));
        fs::remove_file(layout.catalog()).unwrap();
        assert_eq!(Catalog::load(&layout).unwrap().unwrap().0, newer);
        fs::write(layout.catalog(), b"x").unwrap();
        fs::write(layout.catalog_mirror(), b"x").unwrap();
        assert!(matches!(Catalog::load(&layout), Err(OpenError::Damaged { .. })));
    }

    #[test]
    fn data_without_a_catalog_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path().to_owned());
        layout.create_folders().unwrap();
        fs::write(layout.wal_file(1), b"x").unwrap();
        assert!(matches!(Catalog::load(&layout), Err(OpenError::Damaged { .. })));
    }
}
