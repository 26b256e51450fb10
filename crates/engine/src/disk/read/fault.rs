//! Why a file could not be read.

use std::io;
use std::path::Path;
use std::sync::Arc;

use prombus_proto::Topic;

use crate::disk::segment::Segment;
use crate::disk::shared::Shared;
use crate::{Damaged, ReadError, Unavailable};

pub(super) enum ReadFault {
    Damaged(Damaged),
    Io(io::Error),
}

impl ReadFault {
    pub(super) fn into_read_error(self, path: &Path) -> ReadError {
        match self {
            ReadFault::Damaged(damaged) => damaged.into(),
            ReadFault::Io(error) => Unavailable::Io {
                context: format!("reading {}", path.display()),
                source: Arc::new(error),
            }
            .into(),
        }
    }
}

impl From<io::Error> for ReadFault {
    fn from(error: io::Error) -> Self {
        ReadFault::Io(error)
    }
}

/// Returns `true` if the file of `segment` is missing because the segment was trimmed, or moved to
/// another file, after the caller looked at the view, so that looking again helps.
pub(super) fn was_removed(
    shared: &Shared,
    topic: &Topic,
    segment: &Segment,
    error: &io::Error,
) -> bool {
    let is_listed = || {
        let view = shared.view();
        let segments = view.topics.get(topic).map_or(&[][..], |view| &view.segments);
        segments.contains(segment)
    };
    error.kind() == io::ErrorKind::NotFound && !is_listed()
}
