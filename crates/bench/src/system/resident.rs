//! How much memory a process has.

use std::fs;
use std::io;

use crate::BenchError;

/// The resident memory (`VmRSS`) of this process, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64, BenchError> {
    let path = format!("/proc/{pid}/status");
    let wrong =
        |source| BenchError::System { what: format!("the memory of process {pid}"), source };
    let status = fs::read_to_string(path).map_err(wrong)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| wrong(io::Error::new(io::ErrorKind::InvalidData, "it has no VmRSS")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_have_some_ourselves_and_nobody_has_none() {
        assert!(resident_bytes(std::process::id()).unwrap() > 100 * 1024);
        let error = resident_bytes(u32::MAX).unwrap_err().to_string();
        assert!(error.contains(&u32::MAX.to_string()), "{error}");
    }
}
