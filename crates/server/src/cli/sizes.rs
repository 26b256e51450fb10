//! Numbers of bytes, as people write them.

use bytesize::ByteSize;

/// Parses a number of bytes, for a flag: 10MiB, 1.5 GB, or bytes without a unit.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let size: Result<ByteSize, _> = text.trim().parse();
    let fits = |size: &ByteSize| size.0 < u64::MAX;
    size.ok().filter(fits).map(|size| size.0).ok_or_else(|| {
        "expected a size such as 10MiB, 1GB or 1048576 (KiB, MiB and GiB count by 1024; kB, MB and GB \
         by 1000)"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_decimal_or_binary() {
        for (text, expected) in [
            ("1048576", 1 << 20),
            ("10MiB", 10 << 20),
            ("1GB", 1_000_000_000),
            ("1.5 KiB", 1536),
            ("2k", 2000),
            ("0", 0),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "-1", "1x", "1 000", "GB", "99999999999999999999", "99999999EB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
