//! One load-generating connection: a download or uploads without end, and the probes that go beside them on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use hyper::Uri;
use hyper::body::Bytes;
use hyper::client::conn::http2::SendRequest;

use super::connection::{Connection, Content, Trouble, ask, next};
use crate::socket::{info, keep_unsent_short};
use crate::wire::data::Direction;

/// Of one upload; then another one begins on the same connection. Some servers refuse more than 500 MB in one request.
const UPLOAD_BYTES: u64 = 100_000_000;

/// A connection that carries a load.
pub struct Loaded {
    direction: Direction,
    connection: Connection,
    received: Arc<AtomicU64>,
    piece: Arc<AtomicUsize>,
}

impl Loaded {
    /// Of an open connection; also what carries the load, until it fails.
    pub fn begin(
        connection: Connection,
        direction: Direction,
        url: Uri,
        block: Bytes,
    ) -> (Loaded, impl Future<Output = Result<(), Trouble>> + Send + 'static) {
        let (received, piece) =
            (Arc::<AtomicU64>::default(), Arc::new(AtomicUsize::new(block.len())));
        let requests = connection.requests.clone();
        let loaded =
            Loaded { direction, connection, received: received.clone(), piece: piece.clone() };
        loaded.look();
        let run = async move {
            match direction {
                Direction::Down => download(requests, &url, &received).await,
                Direction::Up => upload(requests, &url, block, piece).await,
            }
        };
        (loaded, run)
    }

    /// Which way.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Takes probes.
    pub fn requests(&self) -> SendRequest<Content> {
        self.connection.requests.clone()
    }

    /// Bytes that have arrived at the other end, as far as this one knows. Of an upload TCP's acknowledgements say it: with
    /// TLS and HTTP/2, which are less than 1 %.
    pub fn bytes(&self) -> u64 {
        match self.direction {
            Direction::Down => self.received.load(Relaxed),
            Direction::Up => info(&self.connection.kernel).acked,
        }
    }

    /// Keeps what waits unsent at 5 ms of the connection's rate.
    pub fn look(&self) {
        // A connection that has just ended says so elsewhere.
        if let Ok(unsent) = keep_unsent_short(&self.connection.kernel) {
            self.piece.store(unsent, Relaxed);
        }
    }
}

async fn download(
    mut requests: SendRequest<Content>,
    url: &Uri,
    received: &AtomicU64,
) -> Result<(), Trouble> {
    loop {
        let mut body = ask(&mut requests, url, Content::Nothing).await?.into_body();
        while let Some(bytes) = next(&mut body).await? {
            received.fetch_add(bytes.len() as u64, Relaxed);
        }
    }
}

async fn upload(
    mut requests: SendRequest<Content>,
    url: &Uri,
    block: Bytes,
    piece: Arc<AtomicUsize>,
) -> Result<(), Trouble> {
    loop {
        let (block, piece) = (block.clone(), piece.clone());
        let left = Arc::new(AtomicU64::new(UPLOAD_BYTES));
        let content = Content::Block { block, at: 0, left: left.clone(), piece };
        let mut body = ask(&mut requests, url, content).await?.into_body();
        while next(&mut body).await?.is_some() {}
        if left.load(Relaxed) > 0 {
            return Err(Trouble::Early);
        }
    }
}
