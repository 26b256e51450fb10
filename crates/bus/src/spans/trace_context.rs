//! The trace that an event belongs to, as its publisher names it in the header `traceparent` (W3C Trace Context).

use std::fmt;

/// The header of an event that names the span that published it.
pub(super) const HEADER: &str = "traceparent";

/// A span of somebody else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: u128,
    pub span_id: u64,
    /// Whether the publisher records the trace.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Parses `00-<trace id>-<span id>-<flags>`. Later versions may have more behind that.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let [version, trace_id, span_id, flags] = std::array::from_fn(|_| parts.next());
        let version = hex(version?, 2)?;
        let has_more = parts.next().is_some();
        if version == 0xff || version == 0 && has_more {
            return None;
        }
        let context = Self {
            trace_id: hex(trace_id?, 32)?,
            span_id: u64::try_from(hex(span_id?, 16)?).ok()?,
            is_sampled: hex(flags?, 2)? & 1 == 1,
        };
        (context.trace_id != 0 && context.span_id != 0).then_some(context)
    }
}

/// Parses exactly `digits` lower-case digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (text.len() == digits && text.bytes().all(is_digit))
        .then(|| u128::from_str_radix(text, 16).ok())?
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, is_sampled } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(*is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn parses_what_the_standard_allows() {
        let parsed = TraceContext::parse(VALID).unwrap();
        assert_eq!(parsed.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(parsed.span_id, 0x00f0_67aa_0ba9_02b7);
        assert!(parsed.is_sampled);
        assert_eq!(format!("{parsed:?}"), VALID);
        let unsampled = TraceContext::parse(&VALID.replace("-01", "-02")).unwrap();
        assert!(!unsampled.is_sampled);
        let later = format!("{}-more", VALID.replacen("00", "01", 1));
        assert_eq!(TraceContext::parse(&later), Some(parsed));
    }

    #[test]
    fn anything_else_is_no_trace() {
        let zeros = |from: usize, to: usize| {
            VALID.char_indices().map(move |(i, c)| if (from..to).contains(&i) { '0' } else { c })
        };
        for bad in [
            String::new(),
            "00".into(),
            VALID.to_uppercase(),
            VALID.replacen("00", "ff", 1),
            format!("{VALID}-more"),
            VALID[..54].into(),
            VALID.replace("4bf9", "4bg9"),
            VALID.replace("4bf9", "+bf9"),
            VALID.replace('-', "_"),
            zeros(3, 35).collect(),
            zeros(36, 52).collect(),
            "é".repeat(55),
        ] {
            assert_eq!(TraceContext::parse(&bad), None, "{bad}");
        }
    }
}
