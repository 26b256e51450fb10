//! The event that every system gets: 236 bytes of JSON that contain a number.

use memchr::memmem;

/// The length of an event.
pub(crate) const BYTES: usize = 236;

const HEAD: &str = r#"{"n":""#;
const DIGITS: usize = 10;
const MIDDLE: &str = r#"","t":""#;
const TAIL: &str = r#""}"#;

/// Fills an event up to its length.
pub(crate) const FILLER: &str = {
    const X: &[u8] = &[b'x'; BYTES - HEAD.len() - DIGITS - MIDDLE.len() - TAIL.len()];
    match std::str::from_utf8(X) {
        Ok(text) => text,
        Err(_) => "",
    }
};

/// Returns the digits of a number as they appear in its event.
pub(crate) fn digits(number: u64) -> String {
    format!("{number:0DIGITS$}")
}

/// Appends the event with this number to `text`.
pub(crate) fn write(number: u64, text: &mut String) {
    let mut digits = [b'0'; DIGITS];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    text.push_str(HEAD);
    text.push_str(std::str::from_utf8(&digits).unwrap_or_default());
    text.push_str(MIDDLE);
    text.push_str(FILLER);
    text.push_str(TAIL);
}

/// Returns the event with this number.
pub(crate) fn text(number: u64) -> String {
    let mut text = String::with_capacity(BYTES);
    write(number, &mut text);
    text
}

/// Returns the number of the first event in `bytes`.
pub(crate) fn number_in(bytes: &[u8]) -> Option<u64> {
    let at = memmem::find(bytes, HEAD.as_bytes())? + HEAD.len();
    std::str::from_utf8(bytes.get(at..at + DIGITS)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_236_bytes_of_json_that_contain_its_number() {
        for number in [0, 7, 1_234_567, 9_999_999_999] {
            let text = text(number);
            assert_eq!(text.len(), BYTES);
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json["n"], digits(number));
            assert_eq!(number_in(format!(r#"{{"payload":{text}}}"#).as_bytes()), Some(number));
        }
        assert_eq!(number_in(br#"{"op":"OK"}"#), None);
    }
}
