//! `GET /docs`: the API reference for people, rendered from `openapi.json` as one page that loads
//! nothing else.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::{Environment, Value, context};

use super::error::HttpError;
use super::openapi::DESCRIPTION;
use super::query::QueryParams;

const TEMPLATE: &str = include_str!("docs/page.html");
const STYLE: &str = include_str!("docs/style.css");

static PAGE: LazyLock<String> = LazyLock::new(|| {
    Environment::new()
        .render_named_str("page.html", TEMPLATE, variables(DESCRIPTION))
        .expect("a test renders the page")
});

/// Allows nothing but our own stylesheet, identified by its hash.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, STYLE.as_bytes());
    let hash = STANDARD.encode(hash);
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).expect("base64 is ASCII")
});

/// The template's variables for an OpenAPI document.
fn variables(description: &str) -> Value {
    let openapi: Value = serde_json::from_str(description).expect("a test parses the description");
    context! { openapi, style => STYLE }
}

pub(super) async fn get(uri: Uri) -> Result<Response, HttpError> {
    QueryParams::parse(&uri, &[])?;
    let mut response = Response::new(Body::from(PAGE.as_str()));
    let fixed: [(HeaderName, &str); 3] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    let headers = response.headers_mut();
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    Ok(response)
}

/// `GET /`: redirects to the reference.
pub(super) async fn redirect(uri: Uri) -> Result<Response, HttpError> {
    QueryParams::parse(&uri, &[])?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/docs"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::http::router::ROUTES;

    fn page(description: &str) -> String {
        let page = Environment::new()
            .render_named_str("page.html", TEMPLATE, variables(description))
            .unwrap();
        // The engine also escapes slashes.
        page.replace("&#x2f;", "/")
    }

    /// Calls one macro of the template.
    fn call(name: &str, argument: Value) -> String {
        let environment = Environment::new();
        let template = environment.template_from_named_str("page.html", TEMPLATE).unwrap();
        let mut rendered = template.render_captured(variables(DESCRIPTION)).unwrap();
        rendered.with_state_mut(|state| state.call_macro(name, &[argument])).unwrap()
    }

    #[test]
    fn has_every_operation_and_no_external_link() {
        let page = page(DESCRIPTION);
        for (method, path) in ROUTES {
            let heading = format!(
                "<h3><span class=\"method {method}\">{}</span> <code>{path}</code></h3>",
                method.to_uppercase()
            );
            assert_eq!(page.matches(&heading).count(), 1, "{heading}");
        }
        for link in page.split("href=\"").skip(1) {
            let link = link.split('"').next().unwrap();
            match link.strip_prefix('#') {
                Some(id) => assert!(page.contains(&format!(" id=\"{id}\"")), "{link}"),
                None => assert_eq!(link, "/openapi.json"),
            }
        }
        assert!(!page.contains("src="));
    }

    /// A name misspelled in the template would silently render as nothing.
    #[test]
    fn shows_every_operation_parameter_response_and_field() {
        fn values(object: &Json) -> impl Iterator<Item = &Json> {
            object.as_object().into_iter().flat_map(|members| members.values())
        }
        let document: Json = serde_json::from_str(DESCRIPTION).unwrap();
        let (paths, components) = (&document["paths"], &document["components"]);
        let operations = || values(paths).flat_map(values);
        let parameters = operations().flat_map(|operation| operation["parameters"].as_array());
        let fields =
            values(&components["schemas"]).flat_map(|schema| values(&schema["properties"]));
        let parts = operations().chain(parameters.flatten()).chain(fields);
        let parts = parts.chain(values(&components["responses"]));
        let texts = parts.flat_map(|part| [&part["summary"], &part["description"]]);
        let texts: Vec<_> = texts.filter_map(Json::as_str).collect();
        assert!(texts.len() > 90);
        let page = page(DESCRIPTION);
        for paragraph in texts.into_iter().flat_map(|text| text.split("\n\n")) {
            let html = call("inline", paragraph.into()).replace("&#x2f;", "/");
            assert!(page.contains(&html), "{paragraph}");
        }
    }

    #[test]
    fn escapes_every_text() {
        let evil =
            DESCRIPTION.replace(": \"A", ": \"<script>A").replace(": \"The", ": \"<script>The");
        assert!(evil.matches("<script>").count() > 30);
        assert!(!page(&evil).contains("<script"));
    }

    #[test]
    fn renders_text_as_html() {
        for (name, text, html) in [
            ("inline", r#"<a href="x">'&'"#, "&lt;a href=&quot;x&quot;&gt;&#x27;&amp;&#x27;"),
            ("inline", "a `<b>` c", "a <code>&lt;b&gt;</code> c"),
            ("paragraphs", "a\n\n`b`", "<p>a</p>\n<p><code>b</code></p>\n"),
            ("paragraphs", "", ""),
        ] {
            assert_eq!(call(name, text.into()), html);
        }
    }

    #[test]
    fn describes_schemas_in_words() {
        for (schema, words) in [
            ("{}", "any JSON"),
            (
                r#"{"type":"integer","minimum":1,"maximum":10,"default":7}"#,
                "integer, 1 to 10, default <code>7</code>",
            ),
            (r#"{"type":["integer","null"],"minimum":0}"#, "integer or null, at least 0"),
            (r#"{"type":"array","items":{"type":"string"}}"#, "array of string"),
            (r##"{"$ref":"#/components/schemas/A"}"##, "<a href=\"#schema-A\">A</a>"),
            (r#"{"oneOf":[{"const":"<"},{"type":"null"}]}"#, "<code>&lt;</code> or null"),
            (r#"{"enum":["a",null]}"#, "<code>a</code> or <code>null</code>"),
        ] {
            assert_eq!(call("type", serde_json::from_str(schema).unwrap()), words);
        }
    }
}
