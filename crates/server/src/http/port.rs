//! The HTTP port: checks that every request passes before it is routed.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use prombus_bus::{PlaceLimit, Traffic, Transport};
use prombus_proto::ErrorCode;
use tower_service::Service;

use super::cors::{self, CorsOrigin};
use super::error::HttpError;
use super::router::router;
use super::{HttpState, Peer};
use crate::accept::{Admission, NewConnection, Port, RequestHandler, refuse_host};

pub(crate) struct HttpPort {
    http: Arc<HttpState>,
    router: Router,
    traffic: Traffic,
}

impl HttpPort {
    pub(crate) fn new(http: HttpState) -> Self {
        let http = Arc::new(http);
        let traffic = http.bus().metrics().traffic(Transport::Http);
        Self { router: router(Arc::clone(&http)), http, traffic }
    }

    /// Responds to `request` and counts the bytes of both bodies.
    async fn serve<B>(self: Arc<Self>, peer: Arc<Peer>, request: Request<B>) -> Response
    where
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (received, sent) = (self.traffic.clone(), self.traffic.clone());
        let request = request.map(|body| {
            Body::new(body.inspect_frame(move |frame| received.received(data_len(frame))))
        });
        self.respond(peer, request)
            .await
            .map(|body| Body::new(body.inspect_frame(move |frame| sent.sent(data_len(frame)))))
    }

    async fn respond(self: Arc<Self>, peer: Arc<Peer>, mut request: Request<Body>) -> Response {
        if let Some(reason) = refuse_host(&request) {
            return HttpError::new(ErrorCode::BadFrame, reason).into_response();
        }
        let origin = match CorsOrigin::check(request.headers(), &self.http, &peer) {
            Ok(origin) => origin,
            Err(error) => return error.into_response(),
        };
        let mut response = if let Some(limit) = peer.refused(&request) {
            too_many_connections(limit)
        } else if origin.is_some() && cors::is_preflight(&request) {
            cors::preflight(request.headers())
        } else if percent_decode_str(request.uri().path()).decode_utf8().is_err() {
            HttpError::new(ErrorCode::BadFrame, "the path is not UTF-8").into_response()
        } else {
            request.extensions_mut().insert(peer);
            let Ok(response) = self.router.clone().call(request).await;
            response
        };
        if let Some(origin) = origin {
            origin.allow(&mut response);
        }
        response
    }
}

impl Port for HttpPort {
    fn handler(self: Arc<Self>, accepted: NewConnection) -> RequestHandler {
        let bus = self.http.bus();
        let open = bus.metrics().connection(Transport::Http);
        let connection = bus.connect();
        let peer = Peer { connection, accepted, logged_in: Mutex::default(), _open: open };
        let peer = Arc::new(peer);
        Box::new(move |request| Box::pin(Arc::clone(&self).serve(Arc::clone(&peer), request)))
    }

    fn anonymous_time(&self) -> Option<Duration> {
        let gateway = &self.http.gateway;
        (!gateway.access().authenticator.is_open()).then_some(gateway.settings.auth_timeout)
    }
}

impl Peer {
    /// Returns the limit that the connection exceeds, unless `request` is a health check. The machine that runs
    /// the server may also read the metrics.
    fn refused(&self, request: &Request<Body>) -> Option<PlaceLimit> {
        let Admission::HealthCheck(limit) = self.accepted.admission else { return None };
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_served = is_read
            && match request.uri().path() {
                "/healthz" | "/readyz" => true,
                "/metrics" => self.accepted.address.is_loopback(),
                _ => false,
            };
        (!is_served).then_some(limit)
    }
}

/// 0 for trailers.
fn data_len(frame: &Frame<Bytes>) -> usize {
    frame.data_ref().map_or(0, Bytes::len)
}

fn too_many_connections(limit: PlaceLimit) -> Response {
    HttpError::new(ErrorCode::RateLimited, Admission::refusal(limit))
        .with_status(StatusCode::SERVICE_UNAVAILABLE)
        .into_response()
}
