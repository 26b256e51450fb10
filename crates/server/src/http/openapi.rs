//! `GET /openapi.json`: the machine-readable description of the API.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::error::HttpError;
use super::query::QueryParams;
use super::{HttpState, response};

/// The description of a server that requires tokens.
pub(super) const DESCRIPTION: &str = include_str!("openapi.json");

const TOKEN_REQUIRED: &str = r#""security": [{ "bearer": [] }],"#;
const TOKEN_OPTIONAL: &str = r#""security": [{}, { "bearer": [] }],"#;

/// The description of this server. An open server accepts requests with and without a token.
fn description(is_open: bool) -> Cow<'static, str> {
    if is_open {
        return DESCRIPTION.replacen(TOKEN_REQUIRED, TOKEN_OPTIONAL, 1).into();
    }
    DESCRIPTION.into()
}

pub(super) async fn get(
    State(http): State<Arc<HttpState>>,
    uri: Uri,
) -> Result<Response, HttpError> {
    QueryParams::parse(&uri, &[])?;
    let description = description(http.gateway.access().authenticator.is_open());
    Ok(response::raw_json(description.into_owned().into_bytes()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prombus_proto::{ErrorCode, limits};
    use serde_json::{Value, json};

    use super::*;
    use crate::http::router::ROUTES;

    fn document(is_open: bool) -> Value {
        serde_json::from_str(&description(is_open)).unwrap()
    }

    #[test]
    fn describes_exactly_the_routes() {
        let document = document(false);
        let paths = document["paths"].as_object().unwrap();
        let described: BTreeSet<_> = paths
            .iter()
            .flat_map(|(path, operations)| {
                let methods = operations.as_object().unwrap().keys();
                let methods = methods.filter(|name| *name != "parameters");
                methods.map(|method| (method.as_str(), path.as_str()))
            })
            .collect();
        let routes = ROUTES.iter().copied().collect();
        assert_eq!(described, routes);
    }

    #[test]
    fn says_whether_tokens_are_required() {
        assert_eq!(document(false)["security"], json!([{"bearer": []}]));
        assert_eq!(document(true)["security"], json!([{}, {"bearer": []}]));
        assert_eq!(document(false)["paths"], document(true)["paths"]);
    }

    #[test]
    fn resolves_every_reference() {
        let document = document(false);
        let mut parts = vec![&document];
        let mut references = 0;
        while let Some(part) = parts.pop() {
            match part {
                Value::Object(members) => parts.extend(members.values()),
                Value::Array(items) => parts.extend(items),
                _ => {}
            }
            if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference}");
                references += 1;
            }
        }
        assert!(references > 100);
    }

    #[test]
    fn has_our_error_codes_and_limits() {
        let document = document(false);
        let components = &document["components"];
        let schemas = &components["schemas"];
        let codes: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(schemas["Error"]["properties"]["code"]["enum"], json!(codes));
        let lines = &document["paths"]["/publish/{topic}"]["post"]["requestBody"]["content"]["application/x-ndjson"];
        let line = &schemas["NewEvent"]["properties"];
        for (described, ours) in [
            (&schemas["Name"]["maxLength"], limits::MAX_NAME_BYTES),
            (&schemas["EventId"]["maxLength"], limits::MAX_ID_BYTES),
            (&schemas["Key"]["maxLength"], limits::MAX_KEY_BYTES),
            (&schemas["Event"]["properties"]["headers"]["maxProperties"], limits::MAX_HEADERS),
            (&line["id"]["maxLength"], limits::MAX_ID_BYTES),
            (&line["key"]["maxLength"], limits::MAX_KEY_BYTES),
            (&line["headers"]["maxProperties"], limits::MAX_HEADERS),
            (&lines["schema"]["maxItems"], limits::MAX_BATCH_EVENTS),
            (
                &schemas["GroupSettings"]["properties"]["max_attempts"]["maximum"],
                limits::MAX_ATTEMPTS as usize,
            ),
            (
                &components["parameters"]["lettersOf"]["schema"]["maxLength"],
                limits::MAX_NAME_BYTES - "dlq.".len(),
            ),
        ] {
            assert_eq!(described.as_u64(), Some(ours as u64));
        }
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    }
}
