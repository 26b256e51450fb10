//! Requests from web pages: checks their origin and answers preflight requests (CORS).

use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use prombus_bus::Transport;
use prombus_proto::ErrorCode;

use super::error::HttpError;
use super::{HttpState, Peer};

/// The response headers that a page may read.
const EXPOSED: HeaderValue = HeaderValue::from_static("RateLimit, RateLimit-Policy, Retry-After");
const METHODS: HeaderValue = HeaderValue::from_static("DELETE, GET, HEAD, POST, PUT");
/// Seconds for which a browser may cache a preflight response.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The `Origin` of a request, once it has passed the check.
pub(super) struct CorsOrigin(HeaderValue);

impl CorsOrigin {
    /// Checks `Origin` and `Host`. Returns `None` for a request without `Origin`, which no page
    /// of another origin can send.
    pub(super) fn check(
        headers: &HeaderMap,
        http: &HttpState,
        peer: &Peer,
    ) -> Result<Option<Self>, HttpError> {
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
        let access = http.gateway.access();
        let origins = &access.origins;
        let (origin, host) = (text(&header::ORIGIN), text(&header::HOST));
        let refuse = |message: String| {
            let address = peer.accepted.address;
            http.gateway.origin_refused(address, Transport::Http, (origin, host));
            HttpError::new(ErrorCode::Forbidden, message)
        };
        origins.check(origin, host).map_err(|refused| refuse(refused.to_string()))?;
        // A page sends no `Origin` to its own host, and with DNS rebinding that host may be us.
        if http.is_local && !origins.accepts_host(host) {
            let message = "this server requires no token, so `Host` must be an IP address, \
                           localhost, or a host listed in auth.allowed_origins";
            return Err(refuse(message.to_owned()));
        }
        Ok(headers.get(header::ORIGIN).cloned().map(Self))
    }

    /// Adds the headers that let the page read the response.
    pub(super) fn allow(self, response: &mut Response) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.0);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
}

pub(super) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Allows every method and header; the actual request is checked when it arrives.
pub(super) fn preflight(requested: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    // `X-Event-*` names are arbitrary, and `*` would not cover Authorization: echo the request.
    if let Some(names) = requested.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    headers.insert(
        header::VARY,
        HeaderValue::from_static("Access-Control-Request-Method, Access-Control-Request-Headers"),
    );
    response
}
