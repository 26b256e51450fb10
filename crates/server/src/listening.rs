//! Takes the connections of a port, and serves each in a task of its own: HTTP, until a request
//! makes it a WebSocket. Both ports are served so; they differ in what answers their requests.

mod lingering;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::gateway::{self, Gateway};
use crate::threads::{Place, Threads};

use lingering::Lingering;

/// How long a handshake of TLS may take, and how long the head of a request.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long to wait when the system has no more files to give.
const OUT_OF_FILES_TIME: Duration = Duration::from_millis(100);
/// How long requests that were begun may take to be answered when the server stops.
const FINISHING_TIME: Duration = Duration::from_secs(5);

/// What both ports share.
#[derive(Clone)]
pub(crate) struct Listening {
    pub(crate) tls: Option<TlsAcceptor>,
    /// Places for connections, of both ports together.
    pub(crate) room: Arc<Semaphore>,
    /// What serves a connection that became a WebSocket.
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) stopping: watch::Receiver<bool>,
}

/// What answers the requests of a port.
pub(crate) trait Port: Send + Sync + 'static {
    /// Somebody connected: what answers this connection's requests, one after the other.
    fn connected(self: Arc<Self>, arrival: Arrival) -> Answering;
}

/// Answers the requests of one connection.
pub(crate) type Answering =
    Box<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// A connection that has just come.
pub(crate) struct Arrival {
    pub(crate) admission: Admission,
    /// Where a request goes that becomes a WebSocket.
    pub(crate) upgrades: Sender<OnUpgrade>,
}

/// Whether there is room for one more connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Open,
    Full,
}

impl Listening {
    /// Serves `listener` on `threads` until the server stops, and then until every connection has ended.
    pub(crate) async fn serve<P: Port>(
        mut self,
        listener: TcpListener,
        port: Arc<P>,
        threads: Arc<Threads>,
    ) {
        let mut connections = JoinSet::new();
        let shared = self.clone();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = stopped(&mut self.stopping) => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let room = Arc::clone(&self.room).try_acquire_owned().ok();
                    let place = threads.place();
                    let runtime = place.runtime.clone();
                    let port = Arc::clone(&port);
                    let connection = shared.clone().connection(stream, room, place, port);
                    connections.spawn_on(connection, &runtime);
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(OUT_OF_FILES_TIME).await;
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn connection<P: Port>(
        self,
        stream: TcpStream,
        room: Option<OwnedSemaphorePermit>,
        place: Place,
        port: Arc<P>,
    ) {
        let admission = if room.is_some() { Admission::Open } else { Admission::Full };
        // Boxed, so that a connection is as large as what it is, and not as all that it might be.
        let result = match (at_home(stream), self.tls.clone()) {
            (Err(error), _) => Err(error),
            (Ok(stream), None) => Box::pin(self.stream(stream, admission, port)).await,
            (Ok(stream), Some(tls)) => {
                match Box::pin(timeout(HANDSHAKE_TIME, tls.accept(stream))).await {
                    Ok(Ok(stream)) => Box::pin(self.stream(stream, admission, port)).await,
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(io::ErrorKind::TimedOut.into()),
                }
            }
        };
        if let Err(error) = result {
            tracing::debug!("a connection failed: {error}");
        }
        drop((room, place));
    }

    /// Serves requests, and a WebSocket if one asks for it.
    async fn stream<S: AsyncRead + AsyncWrite + Unpin + Send + 'static, P: Port>(
        mut self,
        stream: S,
        admission: Admission,
        port: Arc<P>,
    ) -> io::Result<()> {
        let requests = Box::pin(requests(stream, &mut self.stopping, admission, port));
        let Some((stream, read_ahead)) = requests.await? else { return Ok(()) };
        gateway::serve(stream, read_ahead, self.gateway, self.stopping).await;
        Ok(())
    }
}

/// Answers requests until the client leaves, or asks for a WebSocket: then it is the stream, and
/// what was read of it already.
async fn requests<S: AsyncRead + AsyncWrite + Unpin + Send + 'static, P: Port>(
    stream: S,
    stopping: &mut watch::Receiver<bool>,
    admission: Admission,
    port: Arc<P>,
) -> io::Result<Option<(S, Bytes)>> {
    let (upgrades, mut upgraded) = tokio::sync::mpsc::channel(1);
    let answering = port.connected(Arrival { admission, upgrades });
    let service = service_fn(move |request| {
        let answer = answering(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIME)
        .serve_connection(TokioIo::new(Lingering::new(stream)), service)
        .with_upgrades();
    let mut served = pin!(served);
    let result = tokio::select! {
        result = &mut served => result,
        () = stopped(stopping) => {
            // Who waits for nothing is let go at once.
            served.as_mut().graceful_shutdown();
            let Ok(result) = timeout(FINISHING_TIME, served).await else { return Ok(None) };
            result
        }
    };
    result.map_err(io::Error::other)?;
    let Ok(upgraded) = upgraded.try_recv() else { return Ok(None) };
    let parts = upgraded
        .await
        .map_err(io::Error::other)?
        .downcast::<TokioIo<Lingering<S>>>()
        .map_err(|_| io::Error::other("the upgraded stream is another one"))?;
    Ok(Some((parts.io.into_inner().into_inner(), parts.read_buf)))
}

/// A stream that was accepted on another thread, on this one.
fn at_home(stream: TcpStream) -> io::Result<TcpStream> {
    // Answers are put together by us; they need not wait for more.
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream.into_std()?)
}

/// Waits until the server stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error says that the server is gone, which is the same.
    let _ = stopping.wait_for(|stop| *stop).await;
}
