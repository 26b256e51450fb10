//! Whether bytes hold one of a kind.

/// Whether `wanted` holds for any of `bytes`. Meant for short texts that mostly hold none: it
/// looks at sixteen at once without an early exit, of which the compiler makes vector code.
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
    fn finds_a_byte_wherever_it_is() {
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
