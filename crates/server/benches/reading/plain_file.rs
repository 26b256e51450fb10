//! The baseline: another process serves a plain file with the same HTTP libraries.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use crate::Failure;

/// The environment variable that tells the other process which file to serve.
pub(crate) const FILE_VARIABLE: &str = "PROMBUS_BENCH_PLAIN_FILE";
const CHUNK_BYTES: usize = 256 << 10;

pub(crate) struct PlainFile {
    child: Child,
    pub(crate) address: String,
}

impl PlainFile {
    pub(crate) fn start(path: &Path) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(FILE_VARIABLE, path)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut address)?;
        Ok(Self { child, address: address.trim().to_owned() })
    }
}

impl Drop for PlainFile {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn serve(path: &Path) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        let path = path.to_owned();
        let router = Router::new().route("/", get(move || send(path.clone())));
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let service = TowerToHyperService::new(router.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    })
}

async fn send(path: PathBuf) -> Body {
    Body::from_stream(stream::try_unfold(None, move |file: Option<File>| {
        let path = path.clone();
        async move {
            let read = tokio::task::spawn_blocking(move || {
                let mut file = match file {
                    Some(file) => file,
                    None => File::open(path)?,
                };
                let mut bytes = Vec::with_capacity(CHUNK_BYTES);
                file.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut bytes)?;
                Ok::<_, std::io::Error>((bytes, file))
            });
            let (bytes, file) = read.await.map_err(std::io::Error::other)??;
            Ok::<_, std::io::Error>((!bytes.is_empty()).then(|| (Bytes::from(bytes), Some(file))))
        }
    }))
}
