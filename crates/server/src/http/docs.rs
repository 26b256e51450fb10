//! `GET /docs`: what there is, for people. One page that loads nothing, made from `openapi.json`.
//!
//! | idea | file |
//! |---|---|
//! | the description, in the order it is written in | `document` |
//! | what a schema is, in words | `kind` |
//! | the page | `page` |
//! | text within HTML | `markup` |

mod document;
mod kind;
mod markup;
mod page;

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

use self::document::Document;
use super::error::HttpError;
use super::openapi::DESCRIPTION;
use super::query::Query;

const STYLE: &str = include_str!("docs/style.css");

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let document: Document =
        serde_json::from_str(DESCRIPTION).expect("the description is read by a test, too");
    page::written(&document, STYLE)
});

/// Nothing but our own style, which is known by its hash.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, STYLE.as_bytes());
    let hash = STANDARD.encode(hash);
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).expect("base64 is ASCII")
});

pub(super) async fn get(uri: Uri) -> Result<Response, HttpError> {
    Query::read(&uri, &[])?;
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

/// `GET /`: to the page.
pub(super) async fn redirect(uri: Uri) -> Result<Response, HttpError> {
    Query::read(&uri, &[])?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/docs"));
    Ok(response)
}
