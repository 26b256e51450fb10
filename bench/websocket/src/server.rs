//! The servers that are compared, each on a thread of its own.

use std::net::SocketAddr;

use axum::{Router, extract::Request, serve::ListenerExt};
use tokio::{
    io::BufStream,
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::{
    accept, gateway, with_axum, with_fastwebsockets, with_tokio_websockets, with_tungstenite,
};

const SMALL: usize = 16 * 1024;
const LARGE: usize = 128 * 1024;
/// Below tokio-websockets, whose own reads are of 8 KiB and whose writes are of 32 frames.
const BUFFER: usize = 64 * 1024;

/// A library, with the stream below it and the read buffer where that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Candidate {
    Axum { room: usize },
    Tungstenite { room: usize },
    TungsteniteOverHyper,
    TokioWebsockets,
    TokioWebsocketsBuffered,
    Fastwebsockets,
    Gateway,
}

impl Candidate {
    pub const ALL: [(&str, Self); 9] = [
        ("axum", Self::Axum { room: LARGE }),
        ("axum-16k", Self::Axum { room: SMALL }),
        ("tungstenite", Self::Tungstenite { room: LARGE }),
        ("tungstenite-16k", Self::Tungstenite { room: SMALL }),
        ("tungstenite-16k-hyper", Self::TungsteniteOverHyper),
        ("tokio-websockets", Self::TokioWebsockets),
        ("tokio-websockets-buffered", Self::TokioWebsocketsBuffered),
        ("fastwebsockets", Self::Fastwebsockets),
        ("gateway-16k", Self::Gateway),
    ];

    /// One connection. The client hangs up when it has what it wants; every library has its own error for
    /// that, and none is looked at. Futures are boxed so that none has the size of the largest.
    async fn connection(self, io: TcpStream) {
        let room = match self {
            Self::Tungstenite { room } => room,
            Self::Gateway => SMALL,
            // Only the handshake is tungstenite's.
            _ => 0,
        };
        let accepting = Box::pin(accept::on_stream(io, accept::config(room)));
        let Ok(socket) = accepting.await else { return };
        match self {
            Self::Tungstenite { .. } => {
                let _ = Box::pin(with_tungstenite::session(socket)).await;
            }
            Self::TokioWebsockets => {
                let socket = with_tokio_websockets::serve(socket.into_inner());
                let _ = Box::pin(with_tokio_websockets::session(socket)).await;
            }
            Self::TokioWebsocketsBuffered => {
                let io = BufStream::with_capacity(BUFFER, BUFFER, socket.into_inner());
                let socket = with_tokio_websockets::serve(io);
                let _ = Box::pin(with_tokio_websockets::session(socket)).await;
            }
            Self::Fastwebsockets => {
                let _ = Box::pin(with_fastwebsockets::session(socket.into_inner())).await;
            }
            Self::Gateway => {
                let (_outbox, deliveries) = mpsc::channel(1);
                Box::pin(gateway::run(socket, deliveries, gateway::Patience::default())).await;
            }
            Self::Axum { .. } | Self::TungsteniteOverHyper => {
                unreachable!("hyper accepts for them")
            }
        }
    }

    async fn serve(self, listener: TcpListener) {
        let over_hyper = match self {
            Self::Axum { room } => Some(with_axum::router(room)),
            Self::TungsteniteOverHyper => Some(Router::new().fallback(async |request: Request| {
                accept::on_request(request, accept::config(SMALL), async |socket| {
                    let _ = with_tungstenite::session(socket).await;
                })
            })),
            _ => None,
        };
        if let Some(router) = over_hyper {
            let listener = listener.tap_io(|io| io.set_nodelay(true).expect("TCP"));
            axum::serve(listener, router).await.expect("serves");
            return;
        }
        loop {
            let (io, _) = listener.accept().await.expect("accepts");
            io.set_nodelay(true).expect("TCP");
            tokio::spawn(self.connection(io));
        }
    }
}

/// A running server.
pub struct Server {
    pub address: SocketAddr,
    thread: rustix::thread::Pid,
}

impl Server {
    /// Starts a thread that serves until the process ends.
    pub fn start(candidate: Candidate) -> Self {
        let (started, start) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                let address = listener.local_addr().expect("bound");
                started
                    .send(Self { address, thread: rustix::thread::gettid() })
                    .expect("waited for");
                candidate.serve(listener).await;
            });
        });
        start.recv().expect("server starts")
    }

    /// Nanoseconds that the server's thread has been running on a core.
    pub fn cpu_ns(&self) -> u64 {
        let path = format!("/proc/self/task/{}/schedstat", self.thread.as_raw_nonzero());
        let stat = std::fs::read_to_string(path).expect("the thread runs");
        stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
    }
}
