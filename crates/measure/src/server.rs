//! The server: one session at a time, on one port of TCP and UDP.
//!
//! signal: connections · model: the first byte says what a connection is, TLS or a load; a session needs the token, a data
//! connection and a probe the session's key · action: `session` while a client measures; everything else is closed.
//!
//! Without a session no UDP socket is open. No file is written, nothing that a client sends is printed.

mod answer;
mod session;

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use rustls::{ServerConfig, ServerConnection};

use crate::channel::{Channel, ChannelError, locked};
use crate::clock::Clock;
use crate::load;
use crate::socket::{host, plain};
use crate::wire::data;
use crate::wire::keys::{Key, proves, random};
use crate::wire::message::{Frames, Limits, ToClient, ToServer, frame};
use crate::wire::{DATA, HANDSHAKE};

use session::Session;

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Until a connection has said what it is, and proved it.
const INTRODUCTION: Duration = Duration::from_secs(3);
/// Connections at a time that have not yet proved what they are.
const MAX_STRANGERS: usize = 64;
/// Of one address: a client opens at most 16 streams at once. So one host alone keeps no other one out.
const MAX_STRANGERS_OF_ONE: usize = 32;
/// The user of the kernel's overflow, on every Linux.
const OVERFLOW_USER: u32 = 65_534;
/// A client that has to wait asks again after this time.
const RETRY_S: u32 = 2;

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What clients have to know; empty: nothing.
    pub token: String,
    /// What a session may take.
    pub limits: Limits,
    /// The clock of the probes.
    pub clock: Clock,
    /// The server's certificate.
    pub tls: Arc<ServerConfig>,
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    session: Mutex<Option<Arc<Session>>>,
    strangers: Mutex<Vec<IpAddr>>,
    block: Bytes,
}

impl Server {
    /// Listens on an address.
    pub fn bind(address: SocketAddr, settings: Settings) -> io::Result<Server> {
        let seed = u64::from_le_bytes(random()?);
        let shared = Shared {
            settings,
            session: Mutex::new(None),
            strangers: Mutex::default(),
            block: Bytes::from_owner(load::random_block(seed)),
        };
        Ok(Server { listener: TcpListener::bind(address)?, shared: Arc::new(shared) })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Says whether a client measures.
    pub fn is_measuring(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || locked(&shared.session).is_some()
    }

    /// Serves for ever.
    pub fn run(&self) -> io::Result<()> {
        loop {
            let (socket, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                // A client that left while it waited, or no more descriptors for now.
                Err(_) => {
                    thread::sleep(load::LOOK);
                    continue;
                }
            };
            let Some(stranger) = Stranger::new(&self.shared, plain(peer).ip()) else {
                continue;
            };
            let shared = Arc::clone(&self.shared);
            // Without a thread the connection is closed, as one too many.
            let _ = thread::Builder::new().spawn(move || {
                // How a connection of a stranger ends is of no interest.
                let _ = shared.introduced(socket, stranger);
            });
        }
    }
}

/// One of the connections that have proved nothing, until it is dropped.
struct Stranger {
    shared: Arc<Shared>,
    peer: IpAddr,
}

impl Stranger {
    /// `None`: there are too many.
    fn new(shared: &Arc<Shared>, peer: IpAddr) -> Option<Stranger> {
        let mut all = locked(&shared.strangers);
        let of_one = all.iter().filter(|one| host(**one) == host(peer)).count();
        if all.len() >= MAX_STRANGERS || of_one >= MAX_STRANGERS_OF_ONE {
            return None;
        }
        all.push(peer);
        Some(Stranger { shared: Arc::clone(shared), peer })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut all = locked(&self.shared.strangers);
        if let Some(at) = all.iter().position(|one| *one == self.peer) {
            all.swap_remove(at);
        }
    }
}

/// The place of a session, free again when it is dropped, even by a panic.
struct Placed<'a>(&'a Shared);

impl Drop for Placed<'_> {
    fn drop(&mut self) {
        *locked(&self.0.session) = None;
    }
}

impl Shared {
    /// Finds out what a connection is.
    fn introduced(&self, socket: TcpStream, stranger: Stranger) -> Result<(), ChannelError> {
        let until = Instant::now() + INTRODUCTION;
        let mut first = [0];
        socket.set_read_timeout(Some(INTRODUCTION))?;
        match (socket.peek(&mut first)?, first[0]) {
            (1, HANDSHAKE) => self.control(socket, stranger, until),
            (1, byte) if byte == DATA[0] => Ok(self.data(socket, stranger, until)?),
            _ => Ok(()),
        }
    }

    fn control(
        &self,
        socket: TcpStream,
        stranger: Stranger,
        until: Instant,
    ) -> Result<(), ChannelError> {
        let tls = ServerConnection::new(Arc::clone(&self.settings.tls))?;
        let channel = Arc::new(Channel::open(socket, tls.into(), until, INTRODUCTION)?);
        let mut frames = Frames::default();
        let Some(hello) = read_message(&channel, &mut frames, until)? else { return Ok(()) };
        let refuse = |why: &str| channel.send(&frame(&ToClient::Refused { why: why.to_owned() }));
        let ToServer::Hello { v, proof } = hello else {
            return Ok(refuse("the first message has to be hello")?);
        };
        if !v.contains(&VERSION) {
            return Ok(refuse("this server speaks version 1 of the protocol")?);
        }
        let (token, binding) = (&self.settings.token, channel.binding()?);
        if !proves(&proof, token, &binding) {
            return Ok(refuse("wrong token")?);
        }
        let peer = stranger.peer;
        drop(stranger);
        let key = Key::derived(token, &binding);
        let session = {
            let mut place = locked(&self.session);
            if place.is_some() {
                return Ok(channel.send(&frame(&ToClient::Busy { retry_s: RETRY_S }))?);
            }
            match Session::new(Arc::clone(&channel), peer, key, &self.settings, self.block.clone())
            {
                Ok(session) => {
                    let session = Arc::new(session);
                    *place = Some(Arc::clone(&session));
                    session
                }
                Err(e) => return Ok(refuse(&format!("no UDP socket: {}", e.kind()))?),
            }
        };
        let placed = Placed(self);
        let begun = Instant::now();
        session.run(frames);
        drop(placed);
        let (up, down) = session.bytes();
        eprintln!(
            "{peer}: measured for {:.0} s, {} MB up, {} MB down{}",
            begun.elapsed().as_secs_f64(),
            up / 1_000_000,
            down / 1_000_000,
            match session.refused() {
                0 => String::new(),
                refused => format!(", {refused} connections by QUIC refused"),
            }
        );
        Ok(())
    }

    fn data(&self, mut socket: TcpStream, stranger: Stranger, until: Instant) -> io::Result<()> {
        let mut opening = [0; data::LENGTH];
        read_until(&mut socket, &mut opening, until)?;
        let session = locked(&self.session).clone();
        let Some(session) = session.filter(|session| session.peer == stranger.peer) else {
            return Ok(());
        };
        let Some(opening) = session.wanted(&opening) else { return Ok(()) };
        drop(stranger);
        session.stream(socket, opening, &self.block)
    }
}

/// Gives up root's rights, which a server needs for nothing: user and group 65534.
pub fn unprivileged() -> io::Result<()> {
    if nix::unistd::geteuid().is_root() {
        nix::unistd::setgroups(&[])?;
        nix::unistd::setgid(OVERFLOW_USER.into())?;
        nix::unistd::setuid(OVERFLOW_USER.into())?;
    }
    Ok(())
}

/// Reads exactly this much, or fails at `until`.
fn read_until(socket: &mut TcpStream, mut into: &mut [u8], until: Instant) -> io::Result<()> {
    while !into.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let read = socket.read(into)?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        into = &mut into[read..];
    }
    Ok(())
}

/// The next message, or `None` where the peer says something else.
fn read_message(
    channel: &Channel,
    frames: &mut Frames,
    until: Instant,
) -> io::Result<Option<ToServer>> {
    loop {
        match frames.take() {
            Ok(Some(message)) => return Ok(Some(message)),
            Ok(None) => {}
            Err(_) => return Ok(None),
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        channel.socket().set_read_timeout(Some(left))?;
        channel.receive(frames)?;
    }
}
