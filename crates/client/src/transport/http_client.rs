//! An HTTP client that sends one request at a time over one connection, and reconnects when the
//! connection is lost.
//!
//! - `failure`: errors, and whether retrying helps
//! - `query`: query parameters

mod failure;
mod query;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::plain_stream::is_from_tls_server;
use super::{CONNECT_TIMEOUT, ServerAddress};
pub use failure::HttpFailure;
pub use query::Query;

/// The largest body that is read into memory. A page of a replay has 8 MiB plus its last event.
const MAX_BODY_BYTES: usize = 64 << 20;
/// How long to wait until the last connection is ready for the next request.
const READY_TIMEOUT: Duration = Duration::from_secs(1);
const USER_AGENT_NAME: &str = concat!("prombus/", env!("CARGO_PKG_VERSION"));

/// An HTTP client for one server. Dropping an [`HttpResponse`] before its end only costs the
/// connection.
pub struct HttpClient {
    address: ServerAddress,
    /// The path of the URL, which goes before request paths.
    prefix: String,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    /// The connection of the last request.
    idle: Option<SendRequest<Full<Bytes>>>,
}

impl HttpClient {
    /// Creates a client that connects on the first request. Every request carries the token.
    ///
    /// # Errors
    ///
    /// [`HttpFailure::NotSendable`] if the URL or the token cannot be put into a header.
    pub fn new(address: ServerAddress, token: Option<&str>) -> Result<Self, HttpFailure> {
        let uri: Uri = address.url().parse().map_err(|_| HttpFailure::NotSendable("the URL"))?;
        let host = uri.authority().map_or("", |authority| authority.as_str());
        let authorization = token.map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| HttpFailure::NotSendable("the token"))?;
            value.set_sensitive(true);
            Ok::<_, HttpFailure>(value)
        });
        Ok(Self {
            prefix: uri.path().trim_end_matches('/').to_owned(),
            host: HeaderValue::try_from(host).map_err(|_| HttpFailure::NotSendable("the URL"))?,
            authorization: authorization.transpose()?,
            address,
            idle: None,
        })
    }

    /// Returns the server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        self.address.url()
    }

    /// Sends a GET request.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, or answers with a status other than success.
    pub async fn get(&mut self, path: &str) -> Result<HttpResponse, HttpFailure> {
        self.request(Method::GET, path, None, Bytes::new()).await
    }

    /// Sends a GET request and parses the response as JSON.
    ///
    /// # Errors
    ///
    /// Fails as [`get`](Self::get) does, or if the response is not of type `T`.
    pub async fn get_json<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, HttpFailure> {
        self.get(path).await?.json().await
    }

    /// Sends a request with a body.
    ///
    /// # Errors
    ///
    /// Fails as [`get`](Self::get) does.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<HttpResponse, HttpFailure> {
        self.request(method, path, Some(content_type), body).await
    }

    async fn request(
        &mut self,
        method: Method,
        path: &str,
        content_type: Option<&'static str>,
        body: Bytes,
    ) -> Result<HttpResponse, HttpFailure> {
        let uri = format!("{}{path}", self.prefix);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.parse().map_err(|_| HttpFailure::NotSendable("the request"))?;
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(USER_AGENT_NAME));
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let response = HttpResponse { response: self.exchange(request).await? };
        if response.response.status().is_success() {
            return Ok(response);
        }
        Err(response.into_failure(self.address.url()).await)
    }

    /// Sends the request over the last connection, or over a new one.
    async fn exchange(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, HttpFailure> {
        if let Some(mut sender) = self.reusable().await {
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.idle = Some(sender);
                    return Ok(response);
                }
                // The server has closed the idle connection before the request was sent.
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(HttpFailure::lost(&failed.into_error())),
                },
            }
        }
        let mut sender = self.connect().await?;
        let response =
            sender.send_request(request).await.map_err(|error| {
                match is_from_tls_server(&error) {
                    true => self.address.wrong_scheme(true).into(),
                    false => HttpFailure::lost(&error),
                }
            })?;
        self.idle = Some(sender);
        Ok(response)
    }

    /// Returns the last connection if it can be used again.
    async fn reusable(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        let mut sender = self.idle.take()?;
        // It never gets ready if the last response was not read to its end.
        match timeout(READY_TIMEOUT, sender.ready()).await {
            Ok(Ok(())) => Some(sender),
            _ => None,
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, HttpFailure> {
        let connecting = self.address.connect();
        let stream = timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| self.address.timeout_error())??;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| HttpFailure::lost(&error))?;
        // Its errors also fail the request, which reports them.
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// A successful response whose body may still be on its way.
pub struct HttpResponse {
    response: Response<Incoming>,
}

impl HttpResponse {
    /// Returns a header of the response, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Returns the next part of the body, or `None` at its end.
    ///
    /// # Errors
    ///
    /// [`HttpFailure::Lost`] if the body is cut off.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HttpFailure> {
        while let Some(frame) = self.response.body_mut().frame().await {
            let frame = frame.map_err(|error| HttpFailure::lost(&error))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// Returns the rest of the body.
    ///
    /// # Errors
    ///
    /// Fails if the body is cut off or too large.
    pub async fn bytes(mut self) -> Result<Bytes, HttpFailure> {
        let mut body = BytesMut::new();
        while let Some(bytes) = self.next().await? {
            body.extend_from_slice(&bytes);
            if body.len() > MAX_BODY_BYTES {
                return Err(HttpFailure::NotUnderstood("the response is too large".to_owned()));
            }
        }
        Ok(body.freeze())
    }

    /// Parses the rest of the body as JSON.
    ///
    /// # Errors
    ///
    /// Fails if the body is cut off, too large, or not of type `T`.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, HttpFailure> {
        let body = self.bytes().await?;
        serde_json::from_slice(&body).map_err(|error| HttpFailure::not_understood(&error))
    }

    async fn into_failure(self, url: &str) -> HttpFailure {
        let status = self.response.status();
        let seconds = self.response.headers().get(RETRY_AFTER);
        let seconds = seconds.and_then(|seconds| seconds.to_str().ok()?.trim().parse().ok());
        match self.bytes().await {
            Ok(body) => HttpFailure::refused(url, status, seconds, &body),
            Err(failure) => failure,
        }
    }
}
