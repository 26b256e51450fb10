//! An HTTP client.

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::Failure;

pub(crate) struct Client {
    sender: SendRequest<Empty<Bytes>>,
    host: String,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Result<Self, Failure> {
        let stream = TokioIo::new(TcpStream::connect(address).await?);
        let (sender, connection) = Builder::new().max_buf_size(1 << 20).handshake(stream).await?;
        tokio::spawn(connection);
        Ok(Self { sender, host: address.to_owned() })
    }

    /// Requests `path` and returns the unread body.
    pub(crate) async fn open(&mut self, path: &str) -> Result<Incoming, Failure> {
        self.sender.ready().await?;
        let request = Request::get(path).header(HOST, &self.host).body(Empty::new())?;
        let response = self.sender.send_request(request).await?;
        if !response.status().is_success() {
            return Err(format!("{path} returned {}", response.status()).into());
        }
        Ok(response.into_body())
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Bytes, Failure> {
        Ok(self.open(path).await?.collect().await?.to_bytes())
    }
}

pub(crate) async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    match body.frame().await {
        Some(frame) => Ok(Some(frame?.into_data().unwrap_or_default())),
        None => Ok(None),
    }
}
