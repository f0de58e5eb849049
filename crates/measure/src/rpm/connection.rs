//! A connection of HTTP/2 over TLS 1.3 to the server, with the times of its handshakes.
//!
//! Nothing is resumed, and nothing of an earlier connection is used again, so that each foreign probe takes all round trips.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{ACCEPT_ENCODING, CONTENT_TYPE, LOCATION, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::figure::Kind;
use crate::client::printable;
use crate::socket::{TLS_UNSENT_BYTES, keep_unsent_short};
use crate::tls::HTTP2;

/// Until a connection is open, or a small answer is there. Longer than the queue of any link.
const WAIT: Duration = Duration::from_secs(10);
/// Window of a stream and of a connection for downloads: 1 Gbit/s over 130 ms.
const WINDOW: u32 = 16 << 20;
/// A configuration is shorter.
const MAX_SMALL: usize = 64 << 10;

/// Why a connection or a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Of the socket or TLS.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// Of HTTP.
    #[error("HTTP/2: {0}")]
    Http(#[from] hyper::Error),
    /// The server speaks another version only.
    #[error("it speaks no HTTP/2")]
    NoHttp2,
    /// It takes no more clients now.
    #[error("it is busy{0}")]
    Busy(String),
    /// It names another place, which is another path.
    #[error("it answers {0}{1}")]
    Status(StatusCode, String),
    /// A load that is over at once is none.
    #[error("it answers an upload before its end")]
    Early,
    /// More than a small answer may have.
    #[error("its answer is too long")]
    TooLong,
    /// Nothing came.
    #[error("no answer in {} s", WAIT.as_secs())]
    Silent,
}

impl Trouble {
    /// Whether packets were kept or lost for too long, and nothing was refused.
    pub fn is_lost(&self) -> bool {
        match self {
            Trouble::Silent | Trouble::Http(_) => true,
            Trouble::Socket(e) => matches!(
                e.kind(),
                ErrorKind::TimedOut
                    | ErrorKind::UnexpectedEof
                    | ErrorKind::ConnectionReset
                    | ErrorKind::BrokenPipe
            ),
            _ => false,
        }
    }
}

/// The body of a request.
pub enum Content {
    /// Of a GET.
    Nothing,
    /// Pieces of a block, until so many bytes are sent.
    Block {
        /// What is sent again and again.
        block: Bytes,
        /// The next piece.
        at: usize,
        /// What is left of the length.
        left: Arc<AtomicU64>,
        /// Length of a piece.
        piece: Arc<AtomicUsize>,
    },
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Content::Block { block, at, left, piece } = &mut *self else {
            return Poll::Ready(None);
        };
        let whole = left.load(Relaxed);
        if whole == 0 {
            return Poll::Ready(None);
        }
        let until_end = (block.len() - *at).min(usize::try_from(whole).unwrap_or(usize::MAX));
        let length = piece.load(Relaxed).clamp(1, until_end);
        let bytes = block.slice(*at..*at + length);
        *at = (*at + length) % block.len();
        left.store(whole - length as u64, Relaxed);
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Content::Nothing => 0,
            Content::Block { left, .. } => left.load(Relaxed),
        })
    }
}

/// Where a server is, and how it is known.
#[derive(Clone)]
pub struct Server {
    address: SocketAddr,
    name: ServerName<'static>,
    tls: TlsConnector,
}

/// An open connection.
pub struct Connection {
    /// Takes requests.
    pub requests: SendRequest<Content>,
    /// The same socket, for what the kernel knows of it.
    pub kernel: TcpStream,
}

/// What is noted when a round trip begins or ends.
pub trait Note {
    /// A round trip of this kind begins.
    fn begin(&self, kind: Kind);
    /// The one that has begun ends.
    fn end(&self);
}

/// Nothing is noted.
impl Note for () {
    fn begin(&self, _: Kind) {}
    fn end(&self) {}
}

impl Server {
    /// A server at an address, whose certificate has to be of this name as far as `tls` asks for it.
    pub fn new(address: SocketAddr, name: ServerName<'static>, tls: ClientConfig) -> Server {
        Server { address, name, tls: Arc::new(tls).into() }
    }

    /// Opens a connection. The note is of TCP's handshake, then of TLS's.
    pub async fn open(&self, note: &(impl Note + Sync)) -> Result<Connection, Trouble> {
        timeout(WAIT, self.opened(note)).await.map_err(|_| Trouble::Silent)?
    }

    async fn opened(&self, note: &(impl Note + Sync)) -> Result<Connection, Trouble> {
        note.begin(Kind::Tcp);
        let socket = tokio::net::TcpStream::connect(self.address).await?;
        note.end();
        let socket = socket.into_std()?;
        let kernel = socket.try_clone()?;
        kernel.set_nodelay(true)?;
        keep_unsent_short(&kernel)?;
        let socket = tokio::net::TcpStream::from_std(socket)?;
        note.begin(Kind::Tls);
        let mut sealed = self.tls.connect(self.name.clone(), socket).await?;
        note.end();
        let session = sealed.get_mut().1;
        if session.alpn_protocol() != Some(HTTP2) {
            return Err(Trouble::NoHttp2);
        }
        session.set_buffer_limit(Some(TLS_UNSENT_BYTES));
        let (requests, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(sealed))
            .await?;
        // Its end is that of its requests.
        tokio::spawn(connection);
        Ok(Connection { requests, kernel })
    }
}

/// A request, and its answer as soon as it begins.
pub async fn ask(
    requests: &mut SendRequest<Content>,
    url: &Uri,
    content: Content,
) -> Result<Response<Incoming>, Trouble> {
    let method = match content {
        Content::Nothing => Method::GET,
        Content::Block { .. } => Method::POST,
    };
    let mut request = Request::new(content);
    *request.uri_mut() = url.clone();
    let fields = request.headers_mut();
    let mut set = |name, value: &'static str| {
        fields.insert(name, hyper::header::HeaderValue::from_static(value));
    };
    set(USER_AGENT, concat!("unbloat-measure/", env!("CARGO_PKG_VERSION")));
    match method {
        Method::GET => set(ACCEPT_ENCODING, "identity"),
        _ => set(CONTENT_TYPE, "application/octet-stream"),
    }
    *request.method_mut() = method;
    requests.ready().await?;
    let answer = requests.send_request(request).await?;
    let field = |name| {
        let value = answer.headers().get(name)?.to_str().ok()?;
        Some(printable(value))
    };
    match answer.status() {
        StatusCode::OK => Ok(answer),
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            let again = field(RETRY_AFTER).map(|s| format!("; it may be asked again in {s} s"));
            Err(Trouble::Busy(again.unwrap_or_default()))
        }
        status => {
            let place = field(LOCATION).map(|to| format!(", to {to}"));
            Err(Trouble::Status(status, place.unwrap_or_default()))
        }
    }
}

/// The next bytes of an answer; `None`: its end.
pub async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Trouble> {
    loop {
        match std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
            None => return Ok(None),
            Some(frame) => {
                if let Ok(data) = frame?.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// A small answer, whole.
pub async fn small(requests: &mut SendRequest<Content>, url: &Uri) -> Result<Vec<u8>, Trouble> {
    let whole = async {
        let mut body = ask(requests, url, Content::Nothing).await?.into_body();
        let mut all = Vec::new();
        while let Some(bytes) = next(&mut body).await? {
            all.extend_from_slice(&bytes);
            if all.len() > MAX_SMALL {
                return Err(Trouble::TooLong);
            }
        }
        Ok(all)
    };
    timeout(WAIT, whole).await.map_err(|_| Trouble::Silent)?
}
