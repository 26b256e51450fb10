//! Requests that web pages make. A browser says where its page came from, and asks whether that
//! may read the answer (CORS).

use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use prombus_proto::ErrorCode;

use super::Http;
use super::error::HttpError;

/// What a page may see of an answer beside its body.
const EXPOSED: HeaderValue = HeaderValue::from_static("RateLimit, RateLimit-Policy, Retry-After");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT");
/// How long a browser need not ask again, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The origin of a page that may ask.
pub(super) struct Page(HeaderValue);

impl Page {
    /// Nothing for whoever is no browser. Those of other origins are refused.
    pub(super) fn of(headers: &HeaderMap, http: &Http) -> Result<Option<Self>, HttpError> {
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let origins = &http.gateway.origins;
        origins
            .check(text(&header::ORIGIN), text(&header::HOST))
            .map_err(|refused| HttpError::new(ErrorCode::Forbidden, refused.to_string()))?;
        // A page that asks its own host says no origin. Who can make a name point to this machine
        // has such a page.
        if http.is_local && !origins.knows_host(text(&header::HOST)) {
            let message = "this server asks for no token and so answers only to an address or \
                           localhost in `Host`, or to a host of auth.allowed_origins";
            return Err(HttpError::new(ErrorCode::Forbidden, message));
        }
        Ok(headers.get(header::ORIGIN).cloned().map(Self))
    }

    /// Lets the page read the answer.
    pub(super) fn allow(self, response: &mut Response) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.0);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
}

/// Whether a browser asks what it may ask.
pub(super) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Says that it may use every method and header: what it may do is decided when it does.
pub(super) fn preflight(asked: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    // Names of event headers are anybody's, and `*` would leave out Authorization.
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    headers.insert(
        header::VARY,
        HeaderValue::from_static("Access-Control-Request-Method, Access-Control-Request-Headers"),
    );
    response
}
