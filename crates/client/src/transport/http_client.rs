//! A server's HTTP port: one request after the other over one
//! connection, which is opened anew when it is gone.
//!
//! | idea | file |
//! |---|---|
//! | what can go wrong, and whether trying again can help | `failure` |
//! | parameters of a query | `query` |

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

use super::{CONNECT_TIMEOUT, ServerAddress};
pub use failure::HttpFailure;
pub use query::Query;

/// An answer that is taken as a whole has at most this many bytes: a page of replay is 8 MiB and
/// its last event.
const MAX_WHOLE_BYTES: usize = 64 << 20;
/// How long a connection may need to be ready for the next request.
const READY_TIME: Duration = Duration::from_secs(1);
const OURSELVES: &str = concat!("prombus/", env!("CARGO_PKG_VERSION"));

/// A client. Dropping an [`HttpResponse`] before its end costs the connection, nothing else.
pub struct HttpClient {
    address: ServerAddress,
    /// What the URL has in front of our paths.
    prefix: String,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    kept: Option<SendRequest<Full<Bytes>>>,
}

impl HttpClient {
    /// Connects with the first request. Each carries the token, if there is one.
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
            kept: None,
        })
    }

    /// Asks for what is at `path`.
    pub async fn get(&mut self, path: &str) -> Result<HttpResponse, HttpFailure> {
        self.ask(Method::GET, path, None, Bytes::new()).await
    }

    /// The JSON at `path`.
    pub async fn get_json<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, HttpFailure> {
        self.get(path).await?.json().await
    }

    /// Sends `body` to `path`. A body is held whole, so that it can be sent again.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<HttpResponse, HttpFailure> {
        self.ask(method, path, Some(content_type), body).await
    }

    async fn ask(
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
        headers.insert(USER_AGENT, HeaderValue::from_static(OURSELVES));
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let answer = HttpResponse { response: self.exchange(request).await? };
        if answer.response.status().is_success() {
            return Ok(answer);
        }
        Err(answer.into_failure(self.address.url()).await)
    }

    /// Over the connection that is kept, or over a new one.
    async fn exchange(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, HttpFailure> {
        if let Some(mut sender) = self.kept().await {
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.kept = Some(sender);
                    return Ok(response);
                }
                // The server closed it before anything was sent: that is no loss.
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(HttpFailure::lost(&failed.into_error())),
                },
            }
        }
        let mut sender = self.connect().await?;
        let response =
            sender.send_request(request).await.map_err(|error| HttpFailure::lost(&error))?;
        self.kept = Some(sender);
        Ok(response)
    }

    /// The connection of the last request, if another one can go over it.
    async fn kept(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        let mut sender = self.kept.take()?;
        // One whose last answer nobody reads to its end is never ready again.
        match timeout(READY_TIME, sender.ready()).await {
            Ok(Ok(())) => Some(sender),
            _ => None,
        }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, HttpFailure> {
        let connecting = self.address.connect();
        let stream =
            timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| self.address.timed_out())??;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| HttpFailure::lost(&error))?;
        // What goes wrong there goes wrong for the request, too, which says so.
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// What a request is answered with. It succeeded as far as the server knew at its beginning.
pub struct HttpResponse {
    response: Response<Incoming>,
}

impl HttpResponse {
    /// The next bytes; nothing at the end, which is the end that the server meant.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HttpFailure> {
        while let Some(frame) = self.response.body_mut().frame().await {
            let frame = frame.map_err(|error| HttpFailure::lost(&error))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// All of it.
    pub async fn bytes(mut self) -> Result<Bytes, HttpFailure> {
        let mut whole = BytesMut::new();
        while let Some(bytes) = self.next().await? {
            whole.extend_from_slice(&bytes);
            if whole.len() > MAX_WHOLE_BYTES {
                return Err(HttpFailure::NotUnderstood("it is too large".to_owned()));
            }
        }
        Ok(whole.freeze())
    }

    /// All of it, as JSON.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, HttpFailure> {
        let whole = self.bytes().await?;
        serde_json::from_slice(&whole).map_err(|error| HttpFailure::not_understood(&error))
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
