//! The server: one session at a time, on one port of TCP and UDP.
//!
//! signal: connections · model: eight bytes say what a connection is; a session needs the token, a data connection and a
//! probe the session's key · action: `session` while a client measures; everything else is closed.
//!
//! Without a session no UDP socket is open. No file is written, nothing that a client sends is printed.

mod answer;
mod session;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::load;
use crate::socket::plain;
use crate::wire::data;
use crate::wire::keys::{Key, Nonce, hex, proves, random, unhex};
use crate::wire::message::{Frames, Limits, ToClient, ToServer, frame};
use crate::wire::{CONTROL, DATA};

use session::Session;

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Until a connection has said what it is, and proved it.
const INTRODUCTION: Duration = Duration::from_secs(3);
/// Connections at a time: a session has 17, the others are waiting clients and strangers.
const MAX_CONNECTIONS: usize = 64;
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
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    session: Mutex<Option<Arc<Session>>>,
    connections: AtomicUsize,
    block: Arc<[u8]>,
}

/// A lock whose holder panicked is still a lock: no state here is half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Listens on an address.
    pub fn bind(address: SocketAddr, settings: Settings) -> io::Result<Server> {
        let seed = u64::from_le_bytes(random()?);
        let shared = Shared {
            settings,
            session: Mutex::new(None),
            connections: AtomicUsize::new(0),
            block: load::random_block(seed),
        };
        Ok(Server { listener: TcpListener::bind(address)?, shared: Arc::new(shared) })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
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
            let shared = Arc::clone(&self.shared);
            if shared.connections.fetch_add(1, Relaxed) >= MAX_CONNECTIONS {
                shared.connections.fetch_sub(1, Relaxed);
                continue;
            }
            let counted = Counted(shared);
            // Without a thread the connection is closed, as one too many.
            let _ = thread::Builder::new().spawn(move || {
                // How a connection of a stranger ends is of no interest.
                let _ = counted.0.introduced(socket, plain(peer).ip());
            });
        }
    }
}

/// One of the connections, until it is dropped.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
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
    fn introduced(&self, mut socket: TcpStream, peer: IpAddr) -> io::Result<()> {
        let until = Instant::now() + INTRODUCTION;
        let mut first = [0; 8];
        read_until(&mut socket, &mut first, until)?;
        match first {
            CONTROL => self.control(socket, peer, until),
            DATA => self.data(socket, peer, until),
            _ => Ok(()),
        }
    }

    fn control(&self, mut socket: TcpStream, peer: IpAddr, until: Instant) -> io::Result<()> {
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(INTRODUCTION))?;
        let nonce: Nonce = random()?;
        socket.write_all(&frame(&ToClient::Nonce { nonce: hex(&nonce) }))?;
        let mut frames = Frames::default();
        let Some(hello) = read_message(&mut socket, &mut frames, until)? else { return Ok(()) };
        let refuse = |socket: &mut TcpStream, why: &str| {
            socket.write_all(&frame(&ToClient::Refused { why: why.to_owned() }))
        };
        let ToServer::Hello { v, nonce: of_client, proof } = hello else {
            return refuse(&mut socket, "the first message has to be hello");
        };
        if !v.contains(&VERSION) {
            return refuse(&mut socket, "this server speaks version 1 of the protocol");
        }
        let token = &self.settings.token;
        let key = match unhex(&of_client) {
            Some(client) if proves(&proof, token, &nonce, &client) => {
                Key::derived(token, &nonce, &client)
            }
            _ => return refuse(&mut socket, "wrong token"),
        };
        let local = plain(socket.local_addr()?);
        let session = {
            let mut place = locked(&self.session);
            if place.is_some() {
                return socket.write_all(&frame(&ToClient::Busy { retry_s: RETRY_S }));
            }
            match Session::new(socket.try_clone()?, local, peer, key, &self.settings) {
                Ok(session) => {
                    let session = Arc::new(session);
                    *place = Some(Arc::clone(&session));
                    session
                }
                Err(e) => return refuse(&mut socket, &format!("no UDP socket: {}", e.kind())),
            }
        };
        let placed = Placed(self);
        let begun = Instant::now();
        session.run(socket, frames);
        drop(placed);
        let (up, down) = session.bytes();
        eprintln!(
            "{peer}: measured for {:.0} s, {} MB up, {} MB down",
            begun.elapsed().as_secs_f64(),
            up / 1_000_000,
            down / 1_000_000
        );
        Ok(())
    }

    fn data(&self, mut socket: TcpStream, peer: IpAddr, until: Instant) -> io::Result<()> {
        let mut opening = [0; data::LENGTH];
        opening[..DATA.len()].copy_from_slice(&DATA);
        read_until(&mut socket, &mut opening[DATA.len()..], until)?;
        let session = locked(&self.session).clone();
        match session {
            Some(session) if session.peer == peer => session.stream(socket, &opening, &self.block),
            _ => Ok(()),
        }
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

/// The next message, or `None` where the connection ends or says something else until then.
fn read_message(
    socket: &mut TcpStream,
    frames: &mut Frames,
    until: Instant,
) -> io::Result<Option<ToServer>> {
    let mut buffer = [0; 1];
    loop {
        match frames.take() {
            Ok(Some(message)) => return Ok(Some(message)),
            Ok(None) => {}
            Err(_) => return Ok(None),
        }
        // Byte by byte: what follows the message belongs to the session's reader, and a hello is short.
        read_until(socket, &mut buffer, until)?;
        frames.push(&buffer);
    }
}
