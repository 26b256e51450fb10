//! Compares output with what the page says, in which `<id1>`, `<ts1>` and the like stand for values that vary: the
//! same placeholder is the same value. `…` stands for any text within a line.

use std::collections::HashMap;

/// Returns `true` if `printed` is as `expected`. Records the values of placeholders in `found`.
pub(super) fn matches(expected: &str, printed: &str, found: &mut HashMap<String, String>) -> bool {
    let mut known = found.clone();
    let fits = fits(expected, printed, &mut known);
    if fits {
        *found = known;
    }
    fits
}

fn fits(expected: &str, printed: &str, known: &mut HashMap<String, String>) -> bool {
    if let Some(rest) = expected.strip_prefix('…') {
        let line = printed.find('\n').unwrap_or(printed.len());
        let mut ends = (0..=line).rev().filter(|end| printed.is_char_boundary(*end));
        return ends.any(|end| {
            let mut tried = known.clone();
            let fits = fits(rest, &printed[end..], &mut tried);
            if fits {
                *known = tried;
            }
            fits
        });
    }
    if let Some((name, kind)) = placeholder(expected) {
        let rest = &expected[name.len()..];
        if let Some(value) = known.get(name) {
            let after = printed.strip_prefix(value.as_str()).map(str::to_owned);
            return after.is_some_and(|after| fits(rest, &after, known));
        }
        let end = printed.find(|c: char| !kind.allows(c)).unwrap_or(printed.len());
        let value = &printed[..end];
        known.insert(name.to_owned(), value.to_owned());
        return kind.is(value) && fits(rest, &printed[end..], known);
    }
    match (expected.chars().next(), printed.chars().next()) {
        (None, None) => true,
        (Some(one), Some(other)) if one == other => {
            fits(&expected[one.len_utf8()..], &printed[one.len_utf8()..], known)
        }
        _ => false,
    }
}

#[derive(Clone, Copy)]
enum Kind {
    /// A UUID.
    Id,
    /// Milliseconds since 1970.
    Ts,
    /// Any whole number.
    Number,
}

impl Kind {
    fn allows(self, c: char) -> bool {
        match self {
            Self::Id => c.is_ascii_hexdigit() || c == '-',
            Self::Ts | Self::Number => c.is_ascii_digit(),
        }
    }

    fn is(self, value: &str) -> bool {
        match self {
            Self::Id => value.len() == 36,
            Self::Ts => value.len() == 13,
            Self::Number => !value.is_empty(),
        }
    }
}

/// Returns the placeholder at the start of `expected`.
fn placeholder(expected: &str) -> Option<(&str, Kind)> {
    let name = &expected[..expected.starts_with('<').then(|| expected.find('>'))?? + 1];
    let inner = name[1..name.len() - 1].trim_end_matches(|c: char| c.is_ascii_digit());
    let kind = match inner {
        "id" => Kind::Id,
        "ts" => Kind::Ts,
        "n" | "ms" => Kind::Number,
        _ => return None,
    };
    Some((name, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_one_value_and_dots_are_the_rest_of_a_line() {
        let check = |expected: &str, printed: &str| matches(expected, printed, &mut HashMap::new());
        assert!(check("a <ts1> b <n1>", "a 1234567890123 b 7"));
        assert!(!check("a <ts1> b", "a 123 b"));
        assert!(check("<n1> <n1>", "7 7") && !check("<n1> <n1>", "7 8"));
        assert!(check("a…z\nb", "a and so on z\nb") && !check("a…z", "a\nz"));
        assert!(check("…", "") && check("<b>", "<b>"));
        assert!(!check("a", "ab") && !check("ab", "a"));
        let mut found = HashMap::from([("<n1>".to_owned(), "7".to_owned())]);
        assert!(!matches("<n1>", "8", &mut found) && matches("<n1> <n2>", "7 9", &mut found));
        assert_eq!(found["<n2>"], "9");
    }
}
