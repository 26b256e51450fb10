use proptest::prelude::*;
use serde_json::value::RawValue;

use super::super::json_scan::{past_any_digits, past_plain};
use super::*;

fn read(text: &str) -> Result<&str, Malformed> {
    let mut cursor = Cursor::new(text);
    let value = cursor.value()?;
    cursor.end()?;
    Ok(value.raw())
}

/// The result of `serde_json`, as the reference.
fn reference(text: &str) -> Option<&str> {
    serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get)
}

#[test]
fn agrees_with_serde_json() {
    for text in [
        "",
        " ",
        "0",
        "-0",
        "01",
        "-",
        "1.",
        ".5",
        "1.5",
        "1e",
        "1e5",
        "1E+05",
        "1e-",
        "--1",
        "+1",
        "true",
        "tru",
        "truefalse",
        "nul",
        "null",
        "false ",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\uD800\"",
        "\"\\u00e9\"",
        "\"\n\"",
        "\"\u{7f}\"",
        "\"é𝄞\"",
        "[",
        "[]",
        "[ ]",
        "[,]",
        "[1,]",
        "[1 2]",
        "[1,2]",
        "]",
        "{",
        "{}",
        "{ }",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1,\"b\":[{}]}",
        "{a:1}",
        "{1:1}",
        "{\"a\"1}",
        "[}",
        "{]",
        "[1}",
        "\u{feff}1",
        " \t\r\n[ 1 , 2 ] \n",
        "1 2",
        "NaN",
        "\u{a0}1",
        "{\"a\" : {\"b\" : \"c\\\\\"}}",
        "[[[]]",
        "\"12345678\"",
        "\"1234567\"",
        "\"123456789\\n\"",
    ] {
        assert_eq!(read(text).ok(), reference(text), "{text:?}");
    }
}

#[test]
fn refuses_nesting_over_the_limit() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(read(&nested(128)).is_ok());
    assert_eq!(read(&nested(129)), Err(Malformed::TooDeep { at: 128 }));
    assert!(read(&"{\"a\":".repeat(1_000_000)).is_err());
    assert!(read(&format!("[{}]", vec!["[[]]"; 1000].join(","))).is_ok(), "wide is not deep");
}

#[test]
fn borrows_strings_without_escapes() {
    let text = |raw| Json::from_valid(raw).text();
    assert!(matches!(text("\"é\""), Some(Cow::Borrowed("é"))));
    assert_eq!(text("\"\\u00e9\\n\\ud834\\udd1e\"").as_deref(), Some("é\n𝄞"));
    assert_eq!(text("\"\\ud834\""), None, "an unpaired surrogate is not Unicode");
    assert_eq!(text("5"), None);
}

#[test]
fn whole_numbers_have_no_point_or_exponent() {
    assert_eq!(Json::from_valid("0").whole_number(), Some(0));
    assert_eq!(Json::from_valid("18446744073709551615").whole_number(), Some(u64::MAX));
    for other in ["18446744073709551616", "-1", "1.0", "1e3", "\"1\"", "null"] {
        assert_eq!(Json::from_valid(other).whole_number(), None, "{other}");
    }
}

proptest! {
    #[test]
    fn plain_text_ends_where_a_byte_by_byte_search_says(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let stops = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        prop_assert_eq!(past_plain(&bytes, 0), bytes.iter().position(stops).unwrap_or(bytes.len()));
    }

    #[test]
    fn digits_end_where_a_byte_by_byte_search_says(digits in "[0-9]{0,20}", others in prop::collection::vec(any::<u8>(), 0..20)) {
        let bytes = [digits.as_bytes(), &others].concat();
        let end = bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len());
        prop_assert_eq!(past_any_digits(&bytes, 0), end);
    }

    #[test]
    fn agrees_with_serde_json_on_any_text(text in "[\\[\\]{}\",:0-9eE.+\\\\ \ntrufalsn-]{0,12}|\\PC{0,20}") {
        prop_assert_eq!(read(&text).ok(), reference(&text));
    }
}
