//! Which connections are opened again.

/// Returns `true` if a connection closed with this code is opened again, as `docs/protocol.md`
/// defines it. Unknown codes are permanent.
#[must_use]
pub const fn may_reconnect(code: u16, has_token: bool) -> bool {
    match code {
        // Shutting down; frame too large; consumer too slow; no pong.
        1001 | 1009 | 4008 | 4009 => true,
        // Not authenticated.
        4401 => has_token,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnects_after_the_close_codes_that_the_protocol_lists() {
        let protocol = include_str!("../../../../docs/protocol.md");
        let (_, table) = protocol.split_once("### Close codes").unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| ")).map_while(|line| {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let (code, _, again) = (cells.next()?, cells.next()?, cells.next()?);
            if code == "code" { Some(None) } else { Some(Some((code.parse().ok()?, again))) }
        });
        let rows: Vec<(u16, &str)> = rows.flatten().collect();
        assert_eq!(rows.len(), 8, "{rows:?}");
        for (code, again) in rows {
            assert_eq!(may_reconnect(code, true), again.starts_with("yes"), "{code}");
        }
        assert!(!may_reconnect(4401, false));
        for unknown in [1000, 1003, 1011, 4000, 4999] {
            assert!(!may_reconnect(unknown, true), "{unknown}");
        }
    }
}
