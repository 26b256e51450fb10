//! A proxy between a command and its server that simulates network failures.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::cli::server::{Ran, Server, prombus, run};

/// What happens to a connection.
#[derive(Clone, Copy)]
pub(crate) enum Fate {
    /// Closed once the server sends more than this many bytes.
    CutAfter(usize),
    /// Forwards nothing more after this many bytes from the server.
    StuckAfter(usize),
    /// Answers 503 with `Retry-After: 1` instead of forwarding.
    Busy,
}

/// Each connection has its fate, in order; further connections are forwarded normally.
pub(crate) struct Proxy {
    pub(crate) url: String,
    connections: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) fn start(server: &Server, fates: &[Fate]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
        let upstream = server.http.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let connections = Arc::new(AtomicUsize::new(0));
        let (fates, counted) = (fates.to_vec(), Arc::clone(&connections));
        thread::spawn(move || {
            for client in listener.incoming() {
                let fate = fates.get(counted.fetch_add(1, Ordering::SeqCst)).copied();
                let upstream = upstream.clone();
                // Either side may close first; errors are expected.
                thread::spawn(move || {
                    drop(forward(client.expect("a connection"), &upstream, fate));
                });
            }
        });
        Self { url, connections }
    }

    /// Runs a command through the proxy.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Ran {
        let mut command = prombus(arguments);
        command.args(["--url", &self.url]);
        run(command, input)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn forward(mut client: TcpStream, upstream: &str, fate: Option<Fate>) -> std::io::Result<()> {
    if let Some(Fate::Busy) = fate {
        let mut request = Vec::new();
        let mut block = [0; 1 << 16];
        while !request.ends_with(b"}\n") {
            let count = client.read(&mut block)?;
            request.extend_from_slice(&block[..count]);
        }
        let answer = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\
                      Content-Length: 4\r\nConnection: close\r\n\r\nbusy";
        return client.write_all(answer.as_bytes());
    }
    let mut server = TcpStream::connect(upstream)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let mut left = match fate {
        Some(Fate::CutAfter(bytes) | Fate::StuckAfter(bytes)) => bytes,
        _ => usize::MAX,
    };
    let mut block = [0; 1 << 14];
    loop {
        let count = server.read(&mut block)?;
        let passed = count.min(left);
        client.write_all(&block[..passed])?;
        left -= passed;
        if count == 0 || passed < count {
            if let Some(Fate::StuckAfter(_)) = fate {
                // Wait until the client gives up.
                let _ = client.read(&mut block);
                loop {
                    thread::park();
                }
            }
            let _ = server.shutdown(Shutdown::Both);
            return client.shutdown(Shutdown::Both);
        }
    }
}
