//! Non-blocking OpenMetrics endpoint with bounded clients.
//!
//! A client has a few seconds, there are few of them, a new one replaces the oldest, and the page is
//! made at most twice a second. An address beyond loopback is refused in the configuration, and
//! once more when the socket is bound.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockType, UnixAddr, bind, listen, shutdown, socket,
};
use nix::sys::stat::{Mode, fchmod};

use super::request::{MAX_REQUEST, Request, answer, parse, phrase};

/// Most clients at a time; a new one replaces the oldest. A scraper needs one.
const MAX_CLIENTS: usize = 8;
/// From connecting to the last byte read: a scraper's own timeout is usually 10 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Oldest page that is sent again; scrapers come every few seconds.
const CACHE_TTL: Duration = Duration::from_millis(500);
/// Bytes after the request that are read and discarded, so that the kernel does not reset the
/// connection.
const MAX_DISCARD: usize = 1 << 16;
/// Pause after `accept` failed, as without free descriptors: the socket stays readable meanwhile.
const ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Address of the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket that only the agent's user may open.
    Unix(PathBuf),
    /// A port on a loopback address: for every user of this host.
    Loopback(SocketAddr),
}

/// Why a text is not the address of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// It is neither form of an address.
    #[error("\"{0}\": {expected}", expected = EXPECTED)]
    Malformed(String),
    /// The path is relative or too long.
    #[error("\"{0}\": {expected}; the path begins with / and has at most 107 bytes", expected = EXPECTED)]
    Path(String),
    /// Other hosts could reach it.
    #[error("{0} is no loopback address: {expected}", expected = EXPECTED)]
    Outside(IpAddr),
}

const EXPECTED: &str =
    "expected \"unix:/path\" or a loopback address with a port, as \"127.0.0.1:9469\"";

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Listen, ListenError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            // A daemon's working directory is not the user's.
            return match path.is_absolute() && UnixAddr::new(&path).is_ok() {
                true => Ok(Listen::Unix(path)),
                false => Err(ListenError::Path(text.to_owned())),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Listen::Loopback(address)),
            Ok(address) => Err(ListenError::Outside(address.ip())),
            Err(_) => Err(ListenError::Malformed(text.to_owned())),
        }
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
            Listen::Loopback(address) => address.fmt(f),
        }
    }
}

/// Settings of the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the endpoint listens.
    pub listen: Listen,
    /// So many of the busiest flows have samples of their own.
    pub flows: usize,
}

trait Stream: Read + Write + AsFd {}
impl<T: Read + Write + AsFd> Stream for T {}

enum Listener {
    Unix(UnixListener, PathBuf),
    Loopback(TcpListener),
}

/// Progress of a client.
enum Stage {
    /// Its request so far.
    Reading(Vec<u8>),
    /// The rest of its answer.
    Writing(Vec<u8>),
    /// It has its answer; further bytes are discarded, so that the kernel does not reset the
    /// connection before the answer is read (RFC 9112 section 9.6).
    Ending(usize),
}

struct Client {
    stream: Box<dyn Stream>,
    stage: Stage,
    until: Instant,
}

/// The listening socket and its clients.
pub struct Exporter {
    settings: Settings,
    listener: Listener,
    clients: Vec<Client>,
    page: Option<(Instant, String)>,
    backoff_until: Option<Instant>,
}

impl Exporter {
    /// Opens the endpoint: binds its socket.
    pub fn listen(settings: &Settings) -> io::Result<Exporter> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", settings.listen));
        let listener = Listener::open(&settings.listen).map_err(named)?;
        Ok(Exporter {
            settings: settings.clone(),
            listener,
            clients: Vec::new(),
            page: None,
            backoff_until: None,
        })
    }

    /// Applies settings to an endpoint that may exist already.
    pub fn set(now: &mut Option<Exporter>, wanted: Option<&Settings>) -> io::Result<()> {
        match (now.as_mut(), wanted) {
            (Some(exporter), Some(wanted)) if exporter.settings.listen == wanted.listen => {
                exporter.settings = wanted.clone();
                exporter.page = None;
            }
            (_, Some(wanted)) => {
                // The new one first: where it cannot listen, the old one goes on.
                *now = Some(Exporter::listen(wanted)?);
            }
            (_, None) => *now = None,
        }
        Ok(())
    }

    /// Descriptors and events for poll.
    pub fn sources(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let listener = match &self.listener {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Loopback(listener) => listener.as_fd(),
        };
        let accepts = self.backoff_until.is_none().then_some((listener, PollFlags::POLLIN));
        let clients = self.clients.iter().map(|client| {
            let flags = match client.stage {
                Stage::Writing(_) => PollFlags::POLLOUT,
                _ => PollFlags::POLLIN,
            };
            (client.stream.as_fd(), flags)
        });
        accepts.into_iter().chain(clients).collect()
    }

    /// Serves the clients that are ready. `make` makes the page, when one is requested and the last
    /// one is old.
    pub fn serve(&mut self, make: impl FnOnce(usize) -> String) {
        self.accept();
        let now = Instant::now();
        let mut make = Some(make);
        let by_address = matches!(self.listener, Listener::Loopback(_));
        let (page, flows) = (&mut self.page, self.settings.flows);
        self.clients.retain_mut(|client| {
            let mut page = || {
                if page
                    .as_ref()
                    .is_none_or(|(made, _)| now.saturating_duration_since(*made) >= CACHE_TTL)
                    && let Some(make) = make.take()
                {
                    *page = Some((now, make(flows)));
                }
                page.as_ref().map_or_else(String::new, |(_, text)| text.clone())
            };
            now < client.until && client.keep(by_address, &mut page)
        });
    }

    fn accept(&mut self) {
        if self.backoff_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.backoff_until = None;
        // Of a flood of clients, no more at a time than are kept.
        for _ in 0..MAX_CLIENTS {
            match self.listener.next() {
                Ok(stream) => {
                    if self.clients.len() >= MAX_CLIENTS {
                        self.clients.remove(0);
                    }
                    let stage = Stage::Reading(Vec::new());
                    self.clients.push(Client {
                        stream,
                        stage,
                        until: Instant::now() + REQUEST_TIMEOUT,
                    });
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // Gone before it was accepted.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) => {}
                Err(_) => {
                    self.backoff_until = Some(Instant::now() + ACCEPT_BACKOFF);
                    return;
                }
            }
        }
    }
}

impl Listener {
    fn open(place: &Listen) -> io::Result<Listener> {
        match place {
            Listen::Unix(path) => Ok(Listener::Unix(of_root(path)?, path.clone())),
            Listen::Loopback(address) => {
                let listener = TcpListener::bind(address)?;
                if !listener.local_addr()?.ip().is_loopback() {
                    return Err(io::Error::other("not a loopback address"));
                }
                listener.set_nonblocking(true)?;
                Ok(Listener::Loopback(listener))
            }
        }
    }

    fn next(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream))
            }
            Listener::Loopback(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

impl Client {
    /// Reads and writes what it can; whether the client is kept.
    fn keep(&mut self, by_address: bool, page: &mut impl FnMut() -> String) -> bool {
        loop {
            let next = match &mut self.stage {
                Stage::Reading(text) => {
                    let ended = match read(&mut *self.stream, text) {
                        Ok(ended) => ended,
                        Err(_) => return false,
                    };
                    let said = match parse(text, by_address) {
                        Request::More if ended => return false,
                        Request::More => return true,
                        Request::Page => answer(200, &page(), false),
                        Request::Head => answer(200, &page(), true),
                        Request::Refused(status) => {
                            answer(status, &format!("{}\n", phrase(status)), false)
                        }
                    };
                    Stage::Writing(said)
                }
                Stage::Writing(left) => match self.stream.write(left) {
                    Ok(n) if n < left.len() => {
                        left.drain(..n);
                        continue;
                    }
                    Ok(_) => {
                        let _ = shutdown(self.stream.as_fd().as_raw_fd(), Shutdown::Write);
                        Stage::Ending(0)
                    }
                    Err(e) => return e.kind() == ErrorKind::WouldBlock,
                },
                Stage::Ending(said) => {
                    let mut thrown = [0; 4_096];
                    return match self.stream.read(&mut thrown) {
                        Ok(0) => false,
                        Ok(n) => {
                            *said += n;
                            *said < MAX_DISCARD
                        }
                        Err(e) => e.kind() == ErrorKind::WouldBlock,
                    };
                }
            };
            self.stage = next;
        }
    }
}

/// Reads what has arrived, up to the longest request; whether the client has closed its side.
fn read(stream: &mut dyn Stream, text: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 4_096];
    while text.len() <= MAX_REQUEST {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(n) => text.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

/// A socket that only its owner may open, from the first moment. A socket that a dead agent left is
/// replaced; any other file is not.
fn of_root(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "there is something that is no socket",
            ));
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    // The file takes over the mode of the socket (unix_bind of net/unix/af_unix.c).
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&socket, Backlog::new(MAX_CLIENTS as i32)?)?;
    Ok(UnixListener::from(socket))
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = &self.listener {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
#[path = "exporter_tests.rs"]
mod tests;
