//! The limit on open files, of which every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::BenchError;

/// Open files other than connections.
const OTHER_FILES: u64 = 100;

/// Raises the soft limit on open files for `count` connections.
pub(crate) fn allow_connections(count: usize) -> Result<(), BenchError> {
    let wanted = count as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if let Some(max) = limit.maximum.filter(|max| *max < wanted) {
        return Err(BenchError::Load(format!(
            "{count} connections need {wanted} open files, but the limit is {max}: raise the hard \
             limit (ulimit -Hn) or open fewer"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit })
        .map_err(|error| BenchError::System { what: "open files".to_owned(), source: error.into() })
}
