//! The event that all of them get: 236 bytes of JSON with a number in it.

use memchr::memmem;

/// How long the text is.
pub(crate) const BYTES: usize = 236;

const HEAD: &str = r#"{"n":""#;
const DIGITS: usize = 10;
const MIDDLE: &str = r#"","t":""#;
const TAIL: &str = r#""}"#;

/// What fills the event up.
pub(crate) const FILLER: &str = {
    const X: &[u8] = &[b'x'; BYTES - HEAD.len() - DIGITS - MIDDLE.len() - TAIL.len()];
    match std::str::from_utf8(X) {
        Ok(text) => text,
        Err(_) => "",
    }
};

/// The digits of a number, as they stand in its event.
pub(crate) fn digits(number: u64) -> String {
    format!("{number:0DIGITS$}")
}

/// Adds the event of that number to a text.
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

/// The event of that number.
pub(crate) fn text(number: u64) -> String {
    let mut text = String::with_capacity(BYTES);
    write(number, &mut text);
    text
}

/// The number of the first event in these bytes.
pub(crate) fn number_in(bytes: &[u8]) -> Option<u64> {
    let at = memmem::find(bytes, HEAD.as_bytes())? + HEAD.len();
    std::str::from_utf8(bytes.get(at..at + DIGITS)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_json_of_236_bytes_and_gives_its_number_back() {
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
