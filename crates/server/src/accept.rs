//! Accepts the connections of both ports, and serves each in its own task: HTTP, until a request
//! upgrades the connection to a WebSocket. The ports differ in the handler of their requests.

mod lingering_stream;
mod places;
mod stall_timeout;

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, ServerConnection};

use crate::auth::{ClientCertificate, Credential};
use crate::gateway::{self, Gateway};
use crate::phase::Phase;
use crate::swap::Swap;
use crate::threads::{ThreadSlot, Threads};

use lingering_stream::{Flushed, LingeringStream};
use stall_timeout::StallTimeout;

pub(crate) use places::{Admission, MAX_SURPLUS, Place, PlaceLimits, Places};

/// How long a TLS handshake may take, and how long the headers of a request.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// What a connection may buffer of a request that is not complete, and of a response before the next part of its
/// body is asked for.
const MAX_HTTP_BUFFER_BYTES: usize = 64 << 10;
/// How long to wait after a failed accept, which usually means that there are too many open files.
const ACCEPT_RETRY_TIME: Duration = Duration::from_millis(100);
/// How long running requests may take when the server shuts down.
const FINISHING_TIME: Duration = Duration::from_secs(5);

/// How long the response may take that is running when the time to present a token is over.
const LAST_RESPONSE_TIME: Duration = Duration::from_secs(1);
/// Unsent bytes that the kernel buffers for a connection. It reports free space when half of them are sent:
/// with a larger buffer, a slow reader would look as if it had stalled.
const UNSENT_BYTES: u32 = 128 << 10;

/// State shared by both ports.
#[derive(Clone)]
pub(crate) struct Acceptor {
    /// Replaced by a reload, for the next handshakes.
    pub(crate) tls: Option<Arc<Swap<ServerConfig>>>,
    pub(crate) places: Arc<Places>,
    /// Serves connections that are upgraded to WebSockets.
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) phases: watch::Receiver<Phase>,
}

/// The requests of one port.
pub(crate) trait Port: Send + Sync + 'static {
    /// Returns the handler of the requests of a new connection, which come one at a time.
    fn handler(self: Arc<Self>, connection: NewConnection) -> RequestHandler;

    /// Returns how long a connection may go without a token, and without becoming a WebSocket. `None` means
    /// forever.
    fn anonymous_time(&self) -> Option<Duration>;
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
    pub(crate) upgrades: Sender<Upgrade>,
    /// For responses that fail after their start.
    pub(crate) flushed: Arc<Flushed>,
    pub(crate) identified: Arc<Identified>,
}

/// The upgrade of a request to a WebSocket.
pub(crate) struct Upgrade {
    pub(crate) stream: OnUpgrade,
    /// What was presented for the ticket in its URL.
    pub(crate) presented: Option<Credential>,
}

/// Whether a request of a connection had a valid token or certificate.
#[derive(Debug, Default)]
pub(crate) struct Identified(AtomicBool);

impl Identified {
    /// Returns `true` the first time.
    pub(crate) fn set(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Where a connection comes from, who opened it, and since when it exists.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// The address of the client, or of the last proxy before it.
    pub(crate) address: IpAddr,
    /// The verified certificate of the client, if it showed one.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
    /// What was presented for the ticket in the URL of a WebSocket.
    pub(crate) presented: Option<Credential>,
    pub(crate) at: Instant,
}

/// A connection while it serves requests.
struct Requests {
    arrival: Arrival,
    admission: Admission,
    /// How long the peer may accept nothing.
    stall_timeout: Duration,
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
                    let address = peer.ip().to_canonical();
                    // Closes the connection if even its refusal would take too many descriptors.
                    let Some(place) = self.places.take(address) else { continue };
                    let slot = threads.least_loaded();
                    let runtime = slot.runtime.clone();
                    let port = Arc::clone(&port);
                    let connection = shared.clone().connection(stream, address, place, slot, port);
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

    async fn connection<P: Port>(
        self,
        stream: TcpStream,
        address: IpAddr,
        mut place: Place,
        slot: ThreadSlot,
        port: Arc<P>,
    ) {
        let requests = Requests {
            arrival: Arrival { address, certificate: None, presented: None, at: Instant::now() },
            admission: place.admission(),
            stall_timeout: self.gateway.settings.slow_consumer_timeout,
        };
        let result = tokio::select! {
            result = self.handshake(stream, requests, port) => result,
            () = place.revoked() => Ok(()),
        };
        if let Err(error) = result {
            tracing::debug!("connection failed: {error}");
        }
        drop((place, slot));
    }

    async fn handshake<P: Port>(
        self,
        stream: TcpStream,
        mut requests: Requests,
        port: Arc<P>,
    ) -> io::Result<()> {
        let stream = register(stream)?;
        // Boxed, so that the task is not as large as the largest of these futures.
        match self.tls.as_ref().map(|tls| TlsAcceptor::from(tls.load())) {
            None => Box::pin(self.stream(stream, requests, port)).await,
            Some(tls) => match Box::pin(timeout(HANDSHAKE_TIME, tls.accept(stream))).await {
                Ok(stream) => {
                    let stream = stream?;
                    requests.arrival.certificate = client_certificate(stream.get_ref().1);
                    Box::pin(self.stream(stream, requests, port)).await
                }
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            },
        }
    }

    /// Serves requests, and the WebSocket if one of them asks for it.
    async fn stream<S: AsyncRead + AsyncWrite + Unpin + Send + 'static, P: Port>(
        mut self,
        stream: S,
        requests: Requests,
        port: Arc<P>,
    ) -> io::Result<()> {
        let mut arrival = requests.arrival.clone();
        let requests = Box::pin(requests.serve(stream, &mut self.phases, port));
        let Some((stream, read_ahead, presented)) = requests.await? else { return Ok(()) };
        arrival.presented = presented;
        gateway::serve(stream, arrival, read_ahead, self.gateway, self.phases).await;
        Ok(())
    }
}

impl Requests {
    /// Serves requests until the connection ends. If it was upgraded to a WebSocket, returns the stream, the
    /// bytes that were read past the request, and what was presented for its ticket.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static, P: Port>(
        self,
        stream: S,
        phases: &mut watch::Receiver<Phase>,
        port: Arc<P>,
    ) -> io::Result<Option<(S, Bytes, Option<Credential>)>> {
        let Self { arrival, admission, stall_timeout } = self;
        let (upgrades, mut upgraded) = tokio::sync::mpsc::channel(1);
        let flushed = Arc::<Flushed>::default();
        let identified = Arc::<Identified>::default();
        let stream = StallTimeout::new(stream, stall_timeout);
        let stream = LingeringStream::new(stream, Arc::clone(&flushed));
        let anonymous_until = port.anonymous_time().map(|time| arrival.at + time);
        let handler = port.handler(NewConnection {
            address: arrival.address,
            certificate: arrival.certificate,
            admission,
            upgrades,
            flushed,
            identified: Arc::clone(&identified),
        });
        let service = service_fn(move |request| {
            let response = handler(request);
            async move {
                // Lets other connections of this thread run between pipelined requests.
                tokio::task::yield_now().await;
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
            .max_buf_size(MAX_HTTP_BUFFER_BYTES)
            .keep_alive(admission == Admission::Everything)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut served = pin!(served);
        let finishing_time = tokio::select! {
            result = &mut served => {
                result.map_err(io::Error::other)?;
                return taken_over(&mut upgraded).await;
            }
            () = stopped(phases) => FINISHING_TIME,
            () = stays_anonymous(&identified, anonymous_until) => LAST_RESPONSE_TIME,
        };
        // Ends idle connections immediately.
        served.as_mut().graceful_shutdown();
        match timeout(finishing_time, served).await {
            Ok(result) => result.map_err(io::Error::other)?,
            Err(_) => return Ok(None),
        }
        taken_over(&mut upgraded).await
    }
}

/// Returns the stream if a request has upgraded the connection.
async fn taken_over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    upgraded: &mut Receiver<Upgrade>,
) -> io::Result<Option<(S, Bytes, Option<Credential>)>> {
    let Ok(Upgrade { stream, presented }) = upgraded.try_recv() else { return Ok(None) };
    let parts = stream
        .await
        .map_err(io::Error::other)?
        .downcast::<TokioIo<LingeringStream<StallTimeout<S>>>>()
        .map_err(|_| io::Error::other("the upgraded stream has an unexpected type"))?;
    Ok(Some((parts.io.into_inner().into_inner().into_inner(), parts.read_buf, presented)))
}

/// Waits until it is too late to present a token or certificate, and none was presented.
async fn stays_anonymous(identified: &Identified, until: Option<Instant>) {
    if let Some(until) = until {
        sleep_until(until).await;
        if !identified.get() {
            return;
        }
    }
    pending::<()>().await;
}

/// Registers a stream that another thread accepted with the runtime of this thread.
fn register(stream: TcpStream) -> io::Result<TcpStream> {
    // We batch answers ourselves.
    stream.set_nodelay(true)?;
    if let Err(error) = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES) {
        tracing::debug!("cannot limit the unsent bytes of a connection: {error}");
    }
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
