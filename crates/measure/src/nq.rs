//! What clients of RPM (draft-ietf-ippm-responsiveness-09) need of a server: `/.well-known/nq` and its three resources.
//!
//! signal: HTTPS connections · model: the address that comes first measures, within `admission`; every other one gets 503 with
//! `Retry-After`, and so does every one while a session of our own protocol runs · action: `answer`, until a limit.
//!
//! These clients know no token. tokio runs in one thread of this module and nowhere else. Nothing of the disk is served.

mod admission;
mod answer;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::load::{LOOK, random_block};
use crate::socket::{TLS_UNSENT_BYTES, keep_unsent_short, plain};
use crate::tls::HTTP2;
use crate::wire::keys::random;
use crate::wire::message::Limits;

use admission::{Admission, Place};
pub use answer::CONFIGURATION;
use answer::answer;

/// Streams of a connection: its load, and probes of a second at the draft's 100 a second (MPS).
const MAX_STREAMS: u32 = 128;
/// Window of a stream and of a connection for uploads, as nginx has it. A client writes as much of an upload as the window permits, and
/// its next small request waits behind that, in its own socket. With 4 MB, 145 of 1331 requests of goresponsiveness on loaded connections
/// returned over 8 Mbit/s, and it had no figure for the upload. Sixteen connections carry 280 Mbit/s over 30 ms.
const WINDOW: u32 = 64 << 10;
/// Until TLS is done, and until a request of HTTP/1.1 is there: with two lost packets a handshake behind a full queue takes more than
/// 3 s. As long as the client waits.
const OPENING: Duration = Duration::from_secs(10);
/// Of a request's header: more than a browser sends.
const MAX_HEADER: u32 = 16 << 10;

/// A server for clients of RPM.
pub struct Nq {
    listener: TcpListener,
    tls: TlsAcceptor,
    admission: Arc<Admission>,
    block: Bytes,
}

impl Nq {
    /// Listens. `is_taken` says whether another client measures by another protocol.
    pub fn bind(
        address: SocketAddr,
        tls: Arc<ServerConfig>,
        limits: Limits,
        is_taken: Arc<dyn Fn() -> bool + Send + Sync>,
    ) -> io::Result<Nq> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let seed = u64::from_le_bytes(random()?);
        Ok(Nq {
            listener,
            tls: tls.into(),
            admission: Arc::new(Admission::new(limits, is_taken)),
            block: Bytes::from_owner(random_block(seed)),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves for ever, in a thread of its own.
    pub fn start(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("nq".to_owned()).spawn(move || runtime.block_on(self.run()))?;
        Ok(())
    }

    async fn run(self) {
        // Cannot fail: the runtime has its reactor, and the listener is a listener.
        let Ok(listener) = tokio::net::TcpListener::from_std(self.listener) else { return };
        loop {
            let Ok((socket, peer)) = listener.accept().await else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            let Some(place) = Admission::enter(&self.admission, plain(peer).ip(), Instant::now())
            else {
                continue;
            };
            let (tls, block) = (self.tls.clone(), self.block.clone());
            tokio::spawn(async move {
                // How it ends is of no interest here.
                let _ = serve(socket, tls, place, block).await;
            });
        }
    }
}

/// Leads a connection to its end.
async fn serve(
    socket: tokio::net::TcpStream,
    tls: TlsAcceptor,
    place: Place,
    block: Bytes,
) -> io::Result<()> {
    // The same socket, for what HTTP does not know of it.
    let socket = socket.into_std()?;
    let kernel = socket.try_clone()?;
    kernel.set_nodelay(true)?;
    place.keep_unsent(keep_unsent_short(&kernel)?);
    let socket = tokio::net::TcpStream::from_std(socket)?;
    let mut sealed = timeout(OPENING, tls.accept(socket)).await??;
    let session = sealed.get_mut().1;
    session.set_buffer_limit(Some(TLS_UNSENT_BYTES));
    let speaks_http2 = session.alpn_protocol() == Some(HTTP2);
    let place = Arc::new(place);
    let service = {
        let place = Arc::clone(&place);
        service_fn(move |request| {
            let (place, block) = (Arc::clone(&place), block.clone());
            async move { Ok::<_, Infallible>(answer(request, &place, block).await) }
        })
    };
    let io = TokioIo::new(sealed);
    if speaks_http2 {
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(MAX_HEADER)
            .serve_connection(io, service);
        watched(connection, http2::Connection::graceful_shutdown, &kernel, &place).await;
    } else {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(OPENING)
            .max_buf_size(MAX_HEADER as usize)
            .serve_connection(io, service);
        watched(connection, http1::Connection::graceful_shutdown, &kernel, &place).await;
    }
    Ok(())
}

/// Lets a connection run until it ends, has done what it was for, or may not go on.
async fn watched<C: Future>(
    connection: C,
    end: fn(Pin<&mut C>),
    kernel: &TcpStream,
    place: &Place,
) {
    let (mut connection, mut is_ending) = (pin!(connection), false);
    while timeout(LOOK, connection.as_mut()).await.is_err() && !place.is_over(Instant::now()) {
        if !is_ending && place.is_done(Instant::now()) {
            end(connection.as_mut());
            is_ending = true;
        }
        // A connection that has just ended has nothing unsent.
        if let Ok(unsent) = keep_unsent_short(kernel) {
            place.keep_unsent(unsent);
        }
    }
}
