//! The resident memory of a process.

use std::fs;
use std::io;

use crate::BenchError;

/// Returns the resident memory (`VmRSS`) of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64, BenchError> {
    let path = format!("/proc/{pid}/status");
    let failed = |source| BenchError::System { what: format!("memory of process {pid}"), source };
    let status = fs::read_to_string(path).map_err(failed)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| failed(io::Error::new(io::ErrorKind::InvalidData, "no VmRSS")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_memory_of_this_process_and_fails_without_one() {
        assert!(resident_bytes(std::process::id()).unwrap() > 100 * 1024);
        let error = resident_bytes(u32::MAX).unwrap_err().to_string();
        assert!(error.contains(&u32::MAX.to_string()), "{error}");
    }
}
