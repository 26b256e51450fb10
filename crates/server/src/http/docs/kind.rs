//! What a schema is, in words.

use serde_json::Value;

use super::document::{Schema, last_segment};
use super::markup::escaped;

/// As HTML: `integer, 1 to 10000`, or the name of another schema.
pub(super) fn kind(schema: &Schema) -> String {
    if let Some(reference) = &schema.reference {
        let name = escaped(last_segment(reference));
        return format!("<a href=\"#schema-{name}\">{name}</a>{}", usual(schema));
    }
    if let Some(only) = &schema.only {
        return code(only);
    }
    if !schema.words.is_empty() {
        let words: Vec<_> = schema.words.iter().map(code).collect();
        return format!("{}{}", words.join(" or "), usual(schema));
    }
    if !schema.one_of.is_empty() {
        let kinds: Vec<_> = schema.one_of.iter().map(kind).collect();
        return kinds.join(" or ");
    }
    let types = match &schema.types {
        Some(Value::String(word)) => vec![word.as_str()],
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
        _ => return "any JSON".to_owned(),
    };
    let types: Vec<_> = types
        .into_iter()
        .map(|word| match (word, &schema.items) {
            ("array", Some(items)) => format!("list of {}", kind(items)),
            _ => escaped(word),
        })
        .collect();
    format!("{}{}{}", types.join(" or "), range(schema), usual(schema))
}

fn range(schema: &Schema) -> String {
    match (schema.minimum, schema.maximum) {
        (Some(least), Some(most)) if most <= 1_000_000_000 => format!(", {least} to {most}"),
        (Some(least), _) => format!(", {least} or more"),
        (None, Some(most)) => format!(", at most {most}"),
        (None, None) => String::new(),
    }
}

fn usual(schema: &Schema) -> String {
    schema.usual.as_ref().map(|usual| format!("; {} if absent", code(usual))).unwrap_or_default()
}

fn code(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format!("<code>{}</code>", escaped(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_in_words() {
        for (schema, words) in [
            ("{}", "any JSON"),
            (
                r#"{"type":"integer","minimum":1,"maximum":10,"default":7}"#,
                "integer, 1 to 10; <code>7</code> if absent",
            ),
            (r#"{"type":["integer","null"],"minimum":0}"#, "integer or null, 0 or more"),
            (r#"{"type":"array","items":{"type":"string"}}"#, "list of string"),
            (r##"{"$ref":"#/components/schemas/A"}"##, "<a href=\"#schema-A\">A</a>"),
            (r#"{"oneOf":[{"const":"<"},{"type":"null"}]}"#, "<code>&lt;</code> or null"),
            (r#"{"enum":["a",null]}"#, "<code>a</code> or <code>null</code>"),
        ] {
            let schema: Schema = serde_json::from_str(schema).unwrap();
            assert_eq!(kind(&schema), words);
        }
    }
}
