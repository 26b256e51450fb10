//! Takes connections, and serves each in a task of its own.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::Gateway;
use super::session::Session;
use super::upgrade::{self, Admission};

/// How long a connection may take to become a WebSocket.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long to wait when the system has no more files to give.
const OUT_OF_FILES_TIME: Duration = Duration::from_millis(100);

/// Serves `listener` until `stopping` says so, and then until every connection has ended.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    gateway: Arc<Gateway>,
    mut stopping: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(gateway.settings.max_connections));
    let mut connections = JoinSet::new();
    let stop = stopping.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            // An error says that the server is gone, which is the same.
            _ = stopping.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let place = Arc::clone(&room).try_acquire_owned().ok();
                let (gateway, tls) = (Arc::clone(&gateway), tls.clone());
                connections.spawn(connection(stream, tls, gateway, stop.clone(), place));
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

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    gateway: Arc<Gateway>,
    stopping: watch::Receiver<bool>,
    place: Option<OwnedSemaphorePermit>,
) {
    let admission = if place.is_some() { Admission::Open } else { Admission::Full };
    // Answers are put together by us; they need not wait for more.
    let result = stream.set_nodelay(true);
    // Boxed, so that a connection is as large as what it is, and not as all that it might be.
    let result = match (result, tls) {
        (Err(error), _) => Err(error),
        (Ok(()), None) => Box::pin(websocket(stream, gateway, stopping, admission)).await,
        (Ok(()), Some(tls)) => match Box::pin(timeout(HANDSHAKE_TIME, tls.accept(stream))).await {
            Ok(Ok(stream)) => Box::pin(websocket(stream, gateway, stopping, admission)).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        },
    };
    if let Err(error) = result {
        tracing::debug!("a connection did not become a WebSocket: {error}");
    }
    drop(place);
}

/// Makes a WebSocket of `stream`, and serves it.
async fn websocket<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    gateway: Arc<Gateway>,
    mut stopping: watch::Receiver<bool>,
    admission: Admission,
) -> io::Result<()> {
    let upgraded = Box::pin(upgraded(stream, &gateway, &mut stopping, admission)).await?;
    let Some((stream, read_ahead)) = upgraded else { return Ok(()) };
    let session = Session::over(stream, read_ahead, gateway, stopping).await;
    let end = Box::pin(session.run()).await;
    tracing::debug!(?end, "a connection ended");
    Ok(())
}

/// Answers HTTP until the client asks for a WebSocket. Nothing if it never did.
async fn upgraded<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    gateway: &Arc<Gateway>,
    stopping: &mut watch::Receiver<bool>,
    admission: Admission,
) -> io::Result<Option<(S, Bytes)>> {
    let (upgrades, mut upgraded) = tokio::sync::mpsc::channel(1);
    let asked = Arc::clone(gateway);
    let service = service_fn(move |request| {
        let response = upgrade::answer(request, &asked, admission, &upgrades);
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIME)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::select! {
        served = http => served.map_err(io::Error::other)?,
        _ = stopping.wait_for(|stop| *stop) => return Ok(None),
    }
    // Or it asked for something else, was answered and left.
    let Ok(upgraded) = upgraded.try_recv() else { return Ok(None) };
    let parts = upgraded
        .await
        .map_err(io::Error::other)?
        .downcast::<TokioIo<S>>()
        .map_err(|_| io::Error::other("the upgraded stream is another one"))?;
    Ok(Some((parts.io.into_inner(), parts.read_buf)))
}
