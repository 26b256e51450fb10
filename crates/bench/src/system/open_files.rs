//! Every connection is an open file.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::BenchError;

/// Files that are no connections.
const OTHERS: u64 = 100;

/// Raises the limit of open files as far as it has to be, and may be.
pub(crate) fn allow_connections(count: usize) -> Result<(), BenchError> {
    let wanted = count as u64 + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if let Some(most) = limit.maximum.filter(|most| *most < wanted) {
        return Err(BenchError::Load(format!(
            "{count} connections need {wanted} open files, but {most} are allowed: raise the hard \
             limit (ulimit -Hn) or open fewer"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit })
        .map_err(|error| BenchError::System { what: "open files".to_owned(), source: error.into() })
}
