//! What to do about a failed command, in the words of the command line.

use prombus_proto::ErrorCode;

/// Adds advice to the message of a server that asks for a token. Messages start with their stable code.
pub(super) fn with_advice(error: String) -> String {
    let (code, _) = error.split_once(": ").unwrap_or_default();
    match ErrorCode::parse(code) {
        Some(ErrorCode::Unauthorized) => format!(
            "{error}; pass --token, set PROMBUS_TOKEN, or use a context that has a token (`prombus context`)"
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_flag_if_a_token_is_missing() {
        let advised = with_advice("unauthorized: authenticate first".to_owned());
        assert!(advised.contains("pass --token, set PROMBUS_TOKEN"), "{advised}");
        for other in ["bad_token: unknown", "cannot connect", "unauthorized"] {
            assert_eq!(with_advice(other.to_owned()), other);
        }
    }
}
