//! The one connection of a test: WebSocket over TCP or TLS, in a thread of its own, in which tokio runs.

use std::io;
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use futures_util::{SinkExt, StreamExt};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError, UrlError};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::{SEC_WEBSOCKET_PROTOCOL, USER_AGENT};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::message::{FIRST_SIZE, MAX_SIZE, Measurement, next_size, own};
use super::url::Url;
use crate::channel::locked;
use crate::client::{Failure, connect};
use crate::load::LOOK;
use crate::socket::{TLS_UNSENT_BYTES, info, prepare};
use crate::tls::{self, Trust};
use crate::wire::data::Direction;

const SUBPROTOCOL: &str = "net.measurementlab.ndt.v7";
/// For TLS and WebSocket: the specification's 5 to 10 s, which the queue of another load does not reach.
const HANDSHAKES: Duration = Duration::from_secs(5);
/// Between two measurements of this end: as ndt-server has it on average, and less than the ten a second that may be sent.
const SAY: Duration = Duration::from_millis(250);

/// What a connection did so far.
#[derive(Default)]
pub struct Seen {
    /// Bytes of WebSocket that were received: without TLS, with headers, which are less than 0.2 %.
    pub received: AtomicU64,
    /// Measurements of the server, each with its arrival.
    pub said: Mutex<Vec<(Instant, Measurement)>>,
    /// How it ended; `None`: it goes on.
    pub ended: Mutex<Option<End>>,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The server closed it in order.
    Closed,
    /// It broke, or the server left the protocol.
    Broken(String),
}

/// A connection whose test has begun.
pub struct Opened {
    /// The socket, for what the kernel says of it.
    pub kernel: TcpStream,
    /// What it did so far.
    pub seen: Arc<Seen>,
    /// When the handshake was over: zero of the server's times.
    pub begun: Instant,
}

/// A stream above TLS whose bytes are counted.
struct Counted {
    inner: Box<dyn Both>,
    seen: Arc<Seen>,
}

trait Both: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Both for S {}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let found = Pin::new(&mut *self.inner).poll_read(context, buffer);
        self.seen.received.fetch_add((buffer.filled().len() - before) as u64, Relaxed);
        found
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.inner).poll_shutdown(context)
    }
}

type Socket = WebSocketStream<Counted>;

/// Begins a test. It goes on until the server ends it or the socket is shut down.
pub fn open(
    url: &Url,
    trust: Trust,
    direction: Direction,
    block: &Arc<[u8]>,
) -> Result<Opened, Failure> {
    let at = format!("{}:{}", url.host, url.port);
    let broken = |e: io::Error| Failure::NoServer(format!("{at}: {e}"));
    let socket = connect(&at, url.port)?;
    prepare(&socket, None, LOOK).map_err(broken)?;
    socket.set_nodelay(true).map_err(broken)?;
    socket.set_nonblocking(true).map_err(broken)?;
    let (kernel, own_kernel) =
        (socket.try_clone().map_err(broken)?, socket.try_clone().map_err(broken)?);
    let seen = Arc::new(Seen::default());
    let (report, reported) = mpsc::channel();
    let (url, block, of_thread) = (url.clone(), Arc::clone(block), Arc::clone(&seen));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)?;
    thread::spawn(move || {
        runtime.block_on(async {
            let shaking = handshakes(&url, trust, direction, socket, Arc::clone(&of_thread));
            let silent =
                || Failure::NoServer(format!("{at}: no answer in {} s", HANDSHAKES.as_secs()));
            let opened = timeout(HANDSHAKES, shaking).await.unwrap_or_else(|_| Err(silent()));
            let ws = match opened {
                Ok(ws) => ws,
                Err(failure) => return report.send(Err(failure)).unwrap_or_default(),
            };
            let begun = Instant::now();
            if report.send(Ok(begun)).is_err() {
                return;
            }
            let end = match direction {
                Direction::Down => receive(ws, &of_thread, &own_kernel, begun).await,
                Direction::Up => send(ws, &of_thread, &own_kernel, begun, &block).await,
            };
            *locked(&of_thread.ended) = Some(end);
        });
    });
    let gone = || Failure::NoServer("the connection's thread is gone".to_owned());
    let begun = reported.recv().map_err(|_| gone())??;
    Ok(Opened { kernel, seen, begun })
}

async fn handshakes(
    url: &Url,
    trust: Trust,
    direction: Direction,
    socket: TcpStream,
    seen: Arc<Seen>,
) -> Result<Socket, Failure> {
    let at = format!("{}:{}", url.host, url.port);
    let broken = |e: io::Error| Failure::NoServer(format!("{at}: {e}"));
    let socket = tokio::net::TcpStream::from_std(socket).map_err(broken)?;
    let inner: Box<dyn Both> = if url.secure {
        let name = ServerName::try_from(url.host.trim_matches(['[', ']']).to_owned())
            .map_err(|_| Failure::NoServer(format!("{}: no name of a host", url.host)))?;
        let config =
            tls::http1_client(trust).map_err(|e| Failure::Untrusted(format!("{at}: {e}")))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut sealed = connector.connect(name, socket).await.map_err(|e| {
            // rustls gives its errors to the socket's.
            let untrusted = e.get_ref().is_some_and(|inner| {
                matches!(
                    inner.downcast_ref::<rustls::Error>(),
                    Some(rustls::Error::InvalidCertificate(_))
                )
            });
            let text = format!("{at}: {e}");
            if untrusted { Failure::Untrusted(text) } else { Failure::NoServer(text) }
        })?;
        sealed.get_mut().1.set_buffer_limit(Some(TLS_UNSENT_BYTES));
        Box::new(sealed)
    } else {
        Box::new(socket)
    };
    let mut request = url.of(direction).into_client_request().map_err(|e| failure(&at, &e))?;
    let fields = request.headers_mut();
    fields.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    let agent = concat!("unbloat-measure/", env!("CARGO_PKG_VERSION"));
    fields.insert(USER_AGENT, HeaderValue::from_static(agent));
    let config =
        WebSocketConfig::default().max_message_size(Some(MAX_SIZE)).max_frame_size(Some(MAX_SIZE));
    let counted = Counted { inner, seen };
    let (ws, _) = client_async_with_config(request, counted, Some(config))
        .await
        .map_err(|e| failure(&at, &e))?;
    Ok(ws)
}

fn failure(at: &str, why: &Error) -> Failure {
    match why {
        Error::Http(answer) => Failure::Refused(format!("it answers {}", answer.status())),
        Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(_))
        | Error::Url(UrlError::UnsupportedUrlScheme) => {
            Failure::NoServer(format!("{at} is no server of ndt7"))
        }
        _ => Failure::NoServer(format!("{at} is no server of ndt7, or is gone ({why})")),
    }
}

fn noted(message: &Message, seen: &Seen) {
    if let Message::Text(text) = message
        && let Some(said) = Measurement::read(text.as_bytes())
    {
        locked(&seen.said).push((Instant::now(), said));
    }
}

fn broken(why: Option<&Error>) -> End {
    End::Broken(match why {
        None | Some(Error::ConnectionClosed) => "the server closed the connection".to_owned(),
        Some(Error::Io(e)) => format!("the server is gone ({})", e.kind()),
        Some(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => {
            "the server closed the connection".to_owned()
        }
        Some(why) => format!("the server broke the protocol ({why})"),
    })
}

/// Receives to the end, and says what this end sees.
async fn receive(mut ws: Socket, seen: &Seen, kernel: &TcpStream, begun: Instant) -> End {
    let (mut closed, mut said) = (false, begun);
    loop {
        match ws.next().await {
            Some(Ok(Message::Close(_))) => closed = true,
            Some(Ok(message)) => noted(&message, seen),
            _ if closed => return End::Closed,
            Some(Err(e)) => return broken(Some(&e)),
            None => return broken(None),
        }
        if !closed && said.elapsed() >= SAY {
            said = Instant::now();
            let text = words(Direction::Down, begun, seen.received.load(Relaxed), kernel);
            if let Err(e) = ws.send(text).await {
                return broken(Some(&e));
            }
        }
    }
}

/// Sends until the server ends it, and receives what it says.
async fn send(
    ws: Socket,
    seen: &Seen,
    kernel: &TcpStream,
    begun: Instant,
    block: &Arc<[u8]>,
) -> End {
    let (mut sink, mut stream) = ws.split();
    let write = async {
        let (mut size, mut total, mut said) = (FIRST_SIZE, 0, begun);
        let mut message = filled(block, size);
        loop {
            if let Err(e) = sink.send(Message::Binary(message.clone())).await {
                return broken(Some(&e));
            }
            total += size as u64;
            let next = next_size(size, total);
            if next != size {
                size = next;
                message = filled(block, size);
            }
            if said.elapsed() >= SAY {
                said = Instant::now();
                if let Err(e) = sink.send(words(Direction::Up, begun, total, kernel)).await {
                    return broken(Some(&e));
                }
            }
        }
    };
    let read = async {
        loop {
            match stream.next().await {
                Some(Ok(Message::Close(_))) => return End::Closed,
                Some(Ok(message)) => noted(&message, seen),
                Some(Err(e)) => return broken(Some(&e)),
                None => return broken(None),
            }
        }
    };
    match select(Box::pin(read), Box::pin(write)).await {
        Either::Left((end, _)) | Either::Right((end, _)) => end,
    }
}

/// A message of random bytes, of whatever length.
fn filled(block: &[u8], size: usize) -> Bytes {
    block.iter().copied().cycle().take(size).collect::<Vec<u8>>().into()
}

fn words(direction: Direction, begun: Instant, bytes: u64, kernel: &TcpStream) -> Message {
    let elapsed_us = begun.elapsed().as_micros() as u64;
    Message::text(own(direction, elapsed_us, bytes, &info(kernel)).to_string())
}
