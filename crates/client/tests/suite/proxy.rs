//! A proxy between client and server that cuts connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A proxy for one server. It ends with the test's runtime.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    /// After this many reads from the server, the next one is dropped and the connection cut.
    answers_before_cut: AtomicUsize,
    /// After this many bytes from the server, the connection is cut.
    bytes_before_cut: AtomicUsize,
    is_closed: AtomicBool,
    connections: AtomicUsize,
    cuts: AtomicUsize,
    /// Changes when all connections are to be cut.
    all_cut: watch::Sender<usize>,
    /// Whether data from the server is withheld.
    is_held: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) async fn to(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            upstream,
            answers_before_cut: AtomicUsize::new(usize::MAX),
            bytes_before_cut: AtomicUsize::new(usize::MAX),
            is_closed: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            cuts: AtomicUsize::new(0),
            all_cut: watch::Sender::new(0),
            is_held: watch::Sender::new(false),
        });
        let accepting = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if accepting.is_closed.load(Ordering::SeqCst) {
                    continue;
                }
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(Arc::clone(&accepting).forward(client));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn ws(&self) -> String {
        format!("ws://{}/", self.address)
    }

    pub(crate) fn http(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts every connection instead of passing on more than `answers` answers, not counting the
    /// handshake.
    pub(crate) fn cut_after_answers(&self, answers: usize) {
        self.shared.answers_before_cut.store(answers, Ordering::SeqCst);
    }

    /// Cuts every connection after `bytes` bytes of answers.
    pub(crate) fn cut_after_bytes(&self, bytes: usize) {
        self.shared.bytes_before_cut.store(bytes, Ordering::SeqCst);
    }

    /// Cuts all open connections.
    pub(crate) fn cut(&self) {
        self.shared.all_cut.send_modify(|count| *count += 1);
    }

    /// Rejects new connections, or accepts them again.
    pub(crate) fn close(&self, is_closed: bool) {
        self.shared.is_closed.store(is_closed, Ordering::SeqCst);
    }

    /// Withholds answers, or passes them on again.
    pub(crate) fn hold(&self, is_held: bool) {
        self.shared.is_held.send_replace(is_held);
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Returns how many connections were cut because of their answers.
    pub(crate) fn cuts(&self) -> usize {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

impl Shared {
    async fn forward(self: Arc<Self>, client: TcpStream) {
        let mut all_cut = self.all_cut.subscribe();
        let server = TcpStream::connect(self.upstream).await.unwrap();
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            () = requests(from_client, to_server) => {}
            () = self.answers(from_server, to_client) => {}
            _ = all_cut.changed() => {}
        }
    }

    async fn answers(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut is_held = self.is_held.subscribe();
        let mut block = vec![0; 1 << 16];
        let (mut passed_answers, mut passed_bytes) = (0, 0);
        let mut is_open = false;
        while let Ok(count @ 1..) = from.read(&mut block).await {
            if is_held.wait_for(|is_held| !is_held).await.is_err() {
                return;
            }
            let mut passing = &block[..count];
            if is_open {
                if passed_answers >= self.answers_before_cut.load(Ordering::SeqCst) {
                    self.cuts.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                passed_answers += 1;
                let left =
                    self.bytes_before_cut.load(Ordering::SeqCst).saturating_sub(passed_bytes);
                passing = &passing[..passing.len().min(left)];
                passed_bytes += passing.len();
            }
            is_open = true;
            if to.write_all(passing).await.is_err() {
                return;
            }
            if is_open && passing.len() < count {
                self.cuts.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    // Either side may close first.
    let _ = tokio::io::copy(&mut from, &mut to).await;
}
