//! JSON for people.

/// Indents JSON. Unlike parsing and writing it again, it keeps numbers, escapes and the order of members as they are.
pub(super) fn pretty_json(json: &str) -> String {
    let mut pretty = String::with_capacity(json.len() * 2);
    let mut depth = 0;
    let (mut is_text, mut is_escaped) = (false, false);
    let mut compact = json.chars().peekable();
    while let Some(c) = compact.next() {
        if is_text {
            pretty.push(c);
            is_text = is_escaped || c != '"';
            is_escaped = c == '\\' && !is_escaped;
            continue;
        }
        match c {
            '{' | '[' => {
                pretty.push(c);
                while compact.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                match compact.next_if(|c| matches!(c, '}' | ']')) {
                    Some(end) => pretty.push(end),
                    None => {
                        depth += 1;
                        start_line(&mut pretty, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = usize::saturating_sub(depth, 1);
                start_line(&mut pretty, depth);
                pretty.push(c);
            }
            ',' => {
                pretty.push(c);
                start_line(&mut pretty, depth);
            }
            ':' => pretty.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => {
                is_text = c == '"';
                pretty.push(c);
            }
        }
    }
    pretty
}

fn start_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn indents_and_changes_nothing_else() {
        let compact = r#"{"b":[1.50,{ },[ ]],"a":{"c\"{,":"\\","d":null}}"#;
        let expected = r#"{
  "b": [
    1.50,
    {},
    []
  ],
  "a": {
    "c\"{,": "\\",
    "d": null
  }
}"#;
        assert_eq!(pretty_json(compact), expected);
        assert_eq!(pretty_json(expected), expected);
        let parsed: Value = serde_json::from_str(&pretty_json(compact)).unwrap();
        assert_eq!(parsed, serde_json::from_str::<Value>(compact).unwrap());
        assert_eq!(pretty_json("17"), "17");
    }
}
