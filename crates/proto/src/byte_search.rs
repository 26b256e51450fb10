//! A vectorised search for a kind of byte.

/// Returns `true` if `wanted` holds for any of `bytes`. Tuned for short texts without a match: it
/// checks blocks of sixteen bytes without an early exit, which the compiler vectorises.
#[inline]
pub(crate) fn any_byte(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> bool {
    let (blocks, rest) = bytes.as_chunks::<16>();
    let in_block = |block: &[u8; 16]| block.iter().fold(0, |found, &b| found | u8::from(wanted(b)));
    blocks.iter().any(|block| in_block(block) != 0) || rest.iter().any(|&byte| wanted(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_byte_at_any_index() {
        for length in 0..70 {
            let mut bytes = vec![b'.'; length];
            assert!(!any_byte(&bytes, |byte| byte == b'x'));
            for at in 0..length {
                bytes[at] = b'x';
                assert!(any_byte(&bytes, |byte| byte == b'x'), "{at} of {length}");
                bytes[at] = b'.';
            }
        }
    }
}
