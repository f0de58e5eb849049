//! Who asks for the page, and how he gets it without delaying anybody.
//!
//! signal: clients on one listening socket · model: nothing is ever waited for; a client has a few seconds, there are few of them, the
//! newest counts more than the oldest, and the page is made at most twice a second however many ask · action: one answer each.
//!
//! Beyond loopback nobody is heard: another address is refused in the configuration, and once more when the socket is bound.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
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

use super::request::{Asked, LONGEST, answer, asked, phrase};

/// A newer one pushes the oldest out.
const MOST_CLIENTS: usize = 8;
/// From connecting to the last byte read.
const PATIENCE: Duration = Duration::from_secs(5);
/// A page is not older; scrapers come every few seconds.
const FRESH: Duration = Duration::from_millis(500);
/// What a client says after its request is thrown away, up to this.
const CHATTER: usize = 1 << 16;
/// Without descriptors for another client, nobody is accepted for so long.
const DEAF: Duration = Duration::from_secs(1);

/// Where the page is to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket of whom the agent runs as, nobody else's.
    Unix(PathBuf),
    /// A port on a loopback address: for everybody on this host.
    Loopback(SocketAddr),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let wanted =
            "expected \"unix:/path\" or a loopback address with a port, as \"127.0.0.1:9469\"";
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            // A path relative to the working directory of a daemon is nowhere.
            return match path.is_absolute() && UnixAddr::new(&path).is_ok() {
                true => Ok(Listen::Unix(path)),
                false => Err(format!(
                    "\"{text}\": {wanted}; the path begins with / and has at most 107 bytes"
                )),
            };
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Listen::Loopback(address)),
            Ok(address) => Err(format!("{} is no loopback address: {wanted}", address.ip())),
            Err(_) => Err(format!("\"{text}\": {wanted}")),
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

/// How the page is given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where.
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

/// How far a client is.
enum Stage {
    /// What it has asked so far.
    Asking(Vec<u8>),
    /// What it has still to be told.
    Telling(Vec<u8>),
    /// It has everything; what it says is thrown away, so that the kernel does not take the answer back for it (RFC 9112 section 9.6).
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
    deaf_until: Option<Instant>,
}

impl Exporter {
    /// Listens.
    pub fn listen(settings: &Settings) -> io::Result<Exporter> {
        let where_to = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", settings.listen));
        let listener = Listener::open(&settings.listen).map_err(where_to)?;
        Ok(Exporter {
            settings: settings.clone(),
            listener,
            clients: Vec::new(),
            page: None,
            deaf_until: None,
        })
    }

    /// Other settings for one that may listen already.
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

    /// For poll: who might have something to say, or to hear.
    pub fn sources(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let listener = match &self.listener {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Loopback(listener) => listener.as_fd(),
        };
        let hears = self.deaf_until.is_none().then_some((listener, PollFlags::POLLIN));
        let clients = self.clients.iter().map(|client| {
            let flags = match client.stage {
                Stage::Telling(_) => PollFlags::POLLOUT,
                _ => PollFlags::POLLIN,
            };
            (client.stream.as_fd(), flags)
        });
        hears.into_iter().chain(clients).collect()
    }

    /// Serves whoever is ready. `status` is asked when somebody wants a page and the last one is old.
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
                    .is_none_or(|(made, _)| now.saturating_duration_since(*made) >= FRESH)
                    && let Some(make) = make.take()
                {
                    *page = Some((now, make(flows)));
                }
                page.as_ref().map_or_else(String::new, |(_, text)| text.clone())
            };
            now < client.until && client.goes_on(by_address, &mut page)
        });
    }

    fn accept(&mut self) {
        if self.deaf_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.deaf_until = None;
        // Of a flood, no more at a time than there is room for.
        for _ in 0..MOST_CLIENTS {
            match self.listener.next() {
                Ok(stream) => {
                    if self.clients.len() >= MOST_CLIENTS {
                        self.clients.remove(0);
                    }
                    let stage = Stage::Asking(Vec::new());
                    self.clients.push(Client { stream, stage, until: Instant::now() + PATIENCE });
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // Gone before it was accepted.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) => {}
                Err(_) => {
                    // The socket stays readable: to look again at once would be to do nothing else.
                    self.deaf_until = Some(Instant::now() + DEAF);
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
    /// Whether it is to be heard again.
    fn goes_on(&mut self, by_address: bool, page: &mut impl FnMut() -> String) -> bool {
        loop {
            let next = match &mut self.stage {
                Stage::Asking(text) => {
                    let ended = match take(&mut *self.stream, text) {
                        Ok(ended) => ended,
                        Err(_) => return false,
                    };
                    let said = match asked(text, by_address) {
                        Asked::More if ended => return false,
                        Asked::More => return true,
                        Asked::Page => answer(200, &page(), false),
                        Asked::Head => answer(200, &page(), true),
                        Asked::Refused(status) => {
                            answer(status, &format!("{}\n", phrase(status)), false)
                        }
                    };
                    Stage::Telling(said)
                }
                Stage::Telling(left) => match self.stream.write(left) {
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
                            *said < CHATTER
                        }
                        Err(e) => e.kind() == ErrorKind::WouldBlock,
                    };
                }
            };
            self.stage = next;
        }
    }
}

/// Reads what there is, up to what a request may have; whether the client has ended.
fn take(stream: &mut dyn Stream, text: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 4_096];
    while text.len() <= LONGEST {
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

/// A socket that only its owner may open, from the first moment; one that a dead agent left is replaced, anything else is not.
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
    listen(&socket, Backlog::new(MOST_CLIENTS as i32)?)?;
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
mod tests;
