//! The HTTP port: checks that every request passes before it is routed.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use percent_encoding::percent_decode_str;
use prombus_bus::{Traffic, Transport};
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
        let origin = match CorsOrigin::check(request.headers(), &self.http) {
            Ok(origin) => origin,
            Err(error) => return error.into_response(),
        };
        let mut response = if peer.accepted.admission == Admission::Full {
            too_many_connections()
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
        let peer = Arc::new(Peer { connection: bus.connect(), accepted, _open: open });
        Box::new(move |request| Box::pin(Arc::clone(&self).serve(Arc::clone(&peer), request)))
    }
}

/// 0 for trailers.
fn data_len(frame: &Frame<Bytes>) -> usize {
    frame.data_ref().map_or(0, Bytes::len)
}

fn too_many_connections() -> Response {
    let mut response = HttpError::new(ErrorCode::RateLimited, "too many connections")
        .with_status(StatusCode::SERVICE_UNAVAILABLE)
        .into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
