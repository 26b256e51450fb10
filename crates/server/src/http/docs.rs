//! `GET /docs`: the API reference for people, rendered from `openapi.json` as one page that loads
//! nothing else.

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::{Environment, Value, context};

use super::HttpState;
use super::error::HttpError;
use super::openapi::DESCRIPTION;
use super::query::QueryParams;

const TEMPLATE: &str = include_str!("docs/page.html");
const STYLE: &str = include_str!("docs/style.css");

/// The address in the examples of the description.
const EXAMPLE_ADDRESS: &str = "http://127.0.0.1:8083";
/// Takes its place while the page is rendered, which would escape the slashes.
const PLACEHOLDER: &str = "ADDRESS_OF_THIS_SERVER";

/// The page, divided where the server's address belongs.
static PAGE: LazyLock<Vec<String>> = LazyLock::new(|| {
    let description = DESCRIPTION.replace(EXAMPLE_ADDRESS, PLACEHOLDER);
    let page = Environment::new()
        .render_named_str("page.html", TEMPLATE, variables(&description))
        .expect("a test renders the page");
    page.split(PLACEHOLDER).map(str::to_owned).collect()
});

/// Returns the address at which a client asked for the page. A `Host` that is more than a name or an address
/// with a port is not repeated: it would be part of the page, and of the commands that people copy from it.
fn address(headers: &HeaderMap, uses_tls: bool) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let is_plain = |host: &&str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
        (1..=261).contains(&host.len()) && host.chars().all(is_allowed) && !host.starts_with('-')
    };
    match host.filter(is_plain) {
        Some(host) if uses_tls => format!("https://{host}"),
        Some(host) => format!("http://{host}"),
        None => EXAMPLE_ADDRESS.to_owned(),
    }
}

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

pub(super) async fn get(
    State(http): State<Arc<HttpState>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, HttpError> {
    QueryParams::parse(&uri, &[])?;
    let mut response = Response::new(Body::from(PAGE.join(&address(&headers, http.uses_tls))));
    let fixed: [(HeaderName, &str); 4] = [
        // It differs with the address.
        (CACHE_CONTROL, "no-store"),
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
    fn shows_the_address_it_was_asked_for_at() {
        let shown = |host: &str, uses_tls| {
            let host = HeaderValue::from_str(host).unwrap();
            address(&HeaderMap::from_iter([(HOST, host)]), uses_tls)
        };
        assert_eq!(shown("bus.example:9", false), "http://bus.example:9");
        assert_eq!(shown("[::1]:9", true), "https://[::1]:9");
        for odd in ["", "a b", "<b>", "a\"b", "$(id)", "a;b", "a@b", "a/b", "-o", &"a".repeat(262)]
        {
            assert_eq!(shown(odd, true), EXAMPLE_ADDRESS, "{odd}");
        }
        assert_eq!(address(&HeaderMap::new(), true), EXAMPLE_ADDRESS);
        assert!(PAGE.len() > 15, "every example shows it");
        assert!(PAGE.iter().all(|part| !part.contains("127.0.0.1")));
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
