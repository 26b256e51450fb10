//! Accepts the connections of both ports, and serves each in its own task: HTTP, until a request
//! upgrades the connection to a WebSocket. The ports differ in the handler of their requests.

mod lingering_stream;

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, ServerConnection};

use crate::auth::ClientCertificate;
use crate::gateway::{self, Gateway};
use crate::phase::Phase;
use crate::swap::Swap;
use crate::threads::{ThreadSlot, Threads};

use lingering_stream::{Flushed, LingeringStream};

/// How long a TLS handshake may take, and how long the headers of a request.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long to wait after a failed accept, which usually means that there are too many open files.
const ACCEPT_RETRY_TIME: Duration = Duration::from_millis(100);
/// How long running requests may take when the server shuts down.
const FINISHING_TIME: Duration = Duration::from_secs(5);

/// State shared by both ports.
#[derive(Clone)]
pub(crate) struct Acceptor {
    /// Replaced by a reload, for the next handshakes.
    pub(crate) tls: Option<Arc<Swap<ServerConfig>>>,
    /// Limits the connections of both ports together.
    pub(crate) room: Arc<Semaphore>,
    /// Limits the connections above that limit, which are only answered with an error.
    pub(crate) refusals: Arc<Semaphore>,
    /// Serves connections that are upgraded to WebSockets.
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) phases: watch::Receiver<Phase>,
}

/// The requests of one port.
pub(crate) trait Port: Send + Sync + 'static {
    /// Returns the handler of the requests of a new connection, which come one at a time.
    fn handler(self: Arc<Self>, connection: NewConnection) -> RequestHandler;
}

/// Answers the requests of one connection.
pub(crate) type RequestHandler =
    Box<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// A connection that was just accepted.
pub(crate) struct NewConnection {
    /// The address of the client, or of the last proxy before it.
    pub(crate) address: IpAddr,
    /// The verified certificate of the client, if it showed one.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
    pub(crate) admission: Admission,
    /// Receives the upgrade of a request to a WebSocket.
    pub(crate) upgrades: Sender<OnUpgrade>,
    /// For responses that fail after their start.
    pub(crate) flushed: Arc<Flushed>,
}

/// The address of a client, and its certificate.
pub(crate) type ClientIdentity = (IpAddr, Option<Arc<ClientCertificate>>);

/// Whether a connection is within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Open,
    Full,
}

impl Acceptor {
    /// Accepts connections until the server shuts down, and returns when all of them have ended.
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
                () = stopped(&mut self.phases) => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Closes the connection if even its refusal would take too many descriptors.
                    let Some(admitted) = self.admit() else { continue };
                    let slot = threads.least_loaded();
                    let runtime = slot.runtime.clone();
                    let port = Arc::clone(&port);
                    let address = peer.ip().to_canonical();
                    let connection =
                        shared.clone().connection(stream, address, admitted, slot, port);
                    connections.spawn_on(connection, &runtime);
                }
                Err(error) => {
                    tracing::warn!(
                        "cannot accept a connection: {error}; retrying in {ACCEPT_RETRY_TIME:?}"
                    );
                    tokio::time::sleep(ACCEPT_RETRY_TIME).await;
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    fn admit(&self) -> Option<(Admission, OwnedSemaphorePermit)> {
        let acquire = |from: &Arc<Semaphore>| Arc::clone(from).try_acquire_owned().ok();
        let open = acquire(&self.room).map(|room| (Admission::Open, room));
        open.or_else(|| acquire(&self.refusals).map(|room| (Admission::Full, room)))
    }

    async fn connection<P: Port>(
        self,
        stream: TcpStream,
        address: IpAddr,
        (admission, room): (Admission, OwnedSemaphorePermit),
        slot: ThreadSlot,
        port: Arc<P>,
    ) {
        // Boxed, so that the task is not as large as the largest of these futures.
        let tls = self.tls.as_ref().map(|tls| TlsAcceptor::from(tls.load()));
        let result = match (register(stream), tls) {
            (Err(error), _) => Err(error),
            (Ok(stream), None) => {
                Box::pin(self.stream(stream, (address, None), admission, port)).await
            }
            (Ok(stream), Some(tls)) => {
                match Box::pin(timeout(HANDSHAKE_TIME, tls.accept(stream))).await {
                    Ok(Ok(stream)) => {
                        let client = (address, client_certificate(stream.get_ref().1));
                        Box::pin(self.stream(stream, client, admission, port)).await
                    }
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(io::ErrorKind::TimedOut.into()),
                }
            }
        };
        if let Err(error) = result {
            tracing::debug!("connection failed: {error}");
        }
        drop((room, slot));
    }

    /// Serves requests, and the WebSocket if one of them asks for it.
    async fn stream<S: AsyncRead + AsyncWrite + Unpin + Send + 'static, P: Port>(
        mut self,
        stream: S,
        client: ClientIdentity,
        admission: Admission,
        port: Arc<P>,
    ) -> io::Result<()> {
        let connection = (client.clone(), admission);
        let requests = Box::pin(serve_requests(stream, &mut self.phases, connection, port));
        let Some((stream, read_ahead)) = requests.await? else { return Ok(()) };
        gateway::serve(stream, client, read_ahead, self.gateway, self.phases).await;
        Ok(())
    }
}

/// Serves requests until the connection ends. If it was upgraded to a WebSocket, returns the stream and
/// the bytes that were read past the request.
async fn serve_requests<S: AsyncRead + AsyncWrite + Unpin + Send + 'static, P: Port>(
    stream: S,
    phases: &mut watch::Receiver<Phase>,
    ((address, certificate), admission): (ClientIdentity, Admission),
    port: Arc<P>,
) -> io::Result<Option<(S, Bytes)>> {
    let (upgrades, mut upgraded) = tokio::sync::mpsc::channel(1);
    let flushed = Arc::<Flushed>::default();
    let stream = LingeringStream::new(stream, Arc::clone(&flushed));
    let handler =
        port.handler(NewConnection { address, certificate, admission, upgrades, flushed });
    let service = service_fn(move |request| {
        let response = handler(request);
        async move {
            let mut response = response.await;
            // What a client published must not become a script because a browser guesses its type.
            response
                .headers_mut()
                .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIME)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut served = pin!(served);
    let result = tokio::select! {
        result = &mut served => result,
        () = stopped(phases) => {
            // Ends idle connections immediately.
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
        .downcast::<TokioIo<LingeringStream<S>>>()
        .map_err(|_| io::Error::other("the upgraded stream has an unexpected type"))?;
    Ok(Some((parts.io.into_inner().into_inner(), parts.read_buf)))
}

/// Registers a stream that another thread accepted with the runtime of this thread.
fn register(stream: TcpStream) -> io::Result<TcpStream> {
    // We batch answers ourselves.
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream.into_std()?)
}

/// Waits until the server shuts down.
async fn stopped(phases: &mut watch::Receiver<Phase>) {
    // An error means that the server is gone, which is the same.
    let _ = phases.wait_for(|phase| phase.is_stopping()).await;
}

fn client_certificate(connection: &ServerConnection) -> Option<Arc<ClientCertificate>> {
    let certificate = connection.peer_certificates()?.first()?;
    let parsed = ClientCertificate::from_der(certificate);
    if parsed.is_none() {
        tracing::debug!("cannot parse a client certificate; its holder has no rights by it");
    }
    parsed.map(Arc::new)
}

/// Returns why the `Host` of a request is unacceptable, if it is. Proxies disagree on which of two
/// counts, so that one of them may be checked and the other served.
pub(crate) fn refuse_host<B>(request: &Request<B>) -> Option<&'static str> {
    match request.headers().get_all(HOST).iter().count() {
        1 => None,
        0 if request.version() < Version::HTTP_11 => None,
        0 => Some("the request has no Host header"),
        _ => Some("the request has more than one Host header"),
    }
}
