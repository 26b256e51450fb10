//! What holds for every request on the HTTP port: there is room, its page may ask, and its path
//! is text.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use prombus_bus::{Traffic, Transport};
use prombus_proto::ErrorCode;
use tower_service::Service;

use super::counted_body::CountedBody;
use super::cross_origin::{self, Page};
use super::error::HttpError;
use super::router::router;
use super::{Http, Peer};
use crate::listening::{Admission, Answering, Arrival, Port};

/// The port that takes HTTP requests.
pub(crate) struct HttpPort {
    http: Arc<Http>,
    router: Router,
    traffic: Traffic,
}

impl HttpPort {
    pub(crate) fn new(http: Http) -> Self {
        let http = Arc::new(http);
        let traffic = http.bus().metrics().traffic(Transport::Http);
        Self { router: router(Arc::clone(&http)), http, traffic }
    }

    /// Answers `request`, and counts the bytes of both bodies.
    async fn answer<B>(self: Arc<Self>, peer: Arc<Peer>, request: Request<B>) -> Response
    where
        B: hyper::body::Body<Data = bytes::Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let traffic = self.traffic.clone();
        let request = request
            .map(|body| Body::new(CountedBody::new(body, move |bytes| traffic.received(bytes))));
        let traffic = self.traffic.clone();
        self.respond(peer, request)
            .await
            .map(|body| Body::new(CountedBody::new(body, move |bytes| traffic.sent(bytes))))
    }

    async fn respond(self: Arc<Self>, peer: Arc<Peer>, mut request: Request<Body>) -> Response {
        let page = match Page::of(request.headers(), &self.http) {
            Ok(page) => page,
            Err(error) => return error.into_response(),
        };
        let mut response = if peer.arrival.admission == Admission::Full {
            no_room()
        } else if page.is_some() && cross_origin::is_preflight(&request) {
            cross_origin::preflight(request.headers())
        } else if percent_decode_str(request.uri().path()).decode_utf8().is_err() {
            HttpError::new(ErrorCode::BadFrame, "the path is not UTF-8").into_response()
        } else {
            request.extensions_mut().insert(peer);
            let Ok(response) = self.router.clone().call(request).await;
            response
        };
        if let Some(page) = page {
            page.allow(&mut response);
        }
        response
    }
}

impl Port for HttpPort {
    fn connected(self: Arc<Self>, arrival: Arrival) -> Answering {
        let bus = self.http.bus();
        let open = bus.metrics().connection(Transport::Http);
        let peer = Arc::new(Peer { connection: bus.connect(), arrival, _open: open });
        Box::new(move |request| Box::pin(Arc::clone(&self).answer(Arc::clone(&peer), request)))
    }
}

fn no_room() -> Response {
    let mut response = HttpError::new(ErrorCode::RateLimited, "too many connections")
        .with_status(StatusCode::SERVICE_UNAVAILABLE)
        .into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
