//! Byte counts for people.

/// Formats a number of bytes with a binary unit, such as `1.5 KiB`.
pub(super) fn human_bytes(bytes: f64) -> String {
    let mut scaled = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if scaled < 1000.0 {
            let decimals = usize::from(unit != "B" && scaled < 100.0);
            return format!("{scaled:.decimals$} {unit}");
        }
        scaled /= 1024.0;
    }
    format!("{scaled:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_unit_and_precision() {
        for (bytes, text) in [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (1000.0, "1.0 KiB"),
            (1536.0, "1.5 KiB"),
            (200.0 * 1024.0, "200 KiB"),
            (5.5e9, "5.1 GiB"),
            (2e15, "1819.0 TiB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
    }
}
