//! The client's side of the control connection.
//!
//! signal: frames of the server, answers to probes · model: neither for three seconds is a server that is gone ·
//! action: what the streams did, and why it ended.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{CONNECT, Failure, Options, connect, printable};
use crate::server::VERSION;
use crate::socket::plain;
use crate::wire::keys::{Key, Nonce, hex, proof, random, unhex};
use crate::wire::message::{Frames, Info, Limits, ToClient, ToServer, frame};
use crate::wire::{CONTROL, PORT};

/// As the server's.
const SILENCE: Duration = Duration::from_secs(3);
/// Ten a second in the longest session, twice.
const MAX_INFOS: usize = 4000;
/// A busy server is asked again for so long: another client's test, and some.
const PATIENCE: Duration = Duration::from_secs(90);

/// A lock whose holder panicked is still a lock.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the server said, as it comes.
#[derive(Debug)]
pub struct FromServer {
    begun: Instant,
    last_ms: AtomicU64,
    /// Why the server ended it, or will do no more.
    ended: Mutex<Option<String>>,
    /// Reports of the streams since the beginning.
    pub infos: Mutex<Vec<Info>>,
    /// All streams have ended.
    pub stopped: AtomicBool,
}

impl FromServer {
    /// The server is there.
    pub fn alive(&self) {
        self.last_ms.store(self.begun.elapsed().as_millis() as u64, Relaxed);
    }

    /// Why it is over; `None` while it is not.
    pub fn over(&self) -> Option<String> {
        let last = Duration::from_millis(self.last_ms.load(Relaxed));
        if let Some(why) = locked(&self.ended).clone() {
            return Some(why);
        }
        (self.begun.elapsed().saturating_sub(last) > SILENCE)
            .then(|| "the server has been silent for three seconds".to_owned())
    }

    /// Keeps a report that follows the last one; others would make a count run backwards.
    fn take(&self, info: Info) {
        let mut infos = locked(&self.infos);
        let follows = infos
            .last()
            .is_none_or(|last: &Info| last.t_ns < info.t_ns && last.up_bytes <= info.up_bytes);
        let sane = (i64::MIN / 4..i64::MAX / 4).contains(&info.t_ns) && infos.len() < MAX_INFOS;
        if follows && sane {
            infos.push(info);
        }
    }

    fn end(&self, why: &str) {
        locked(&self.ended).get_or_insert_with(|| why.to_owned());
    }
}

/// A session with a server.
pub struct Control {
    /// The server's address.
    pub server: SocketAddr,
    /// This end's address.
    pub local: SocketAddr,
    /// Its number.
    pub session: u64,
    /// Its key.
    pub key: Key,
    /// What it may take.
    pub limits: Limits,
    /// What the server says.
    pub from_server: Arc<FromServer>,
    socket: TcpStream,
}

impl Control {
    /// Begins a session; waits where another client measures, and calls `waiting`.
    pub fn begin(options: &Options, waiting: impl Fn()) -> Result<Control, Failure> {
        let begun = Instant::now();
        loop {
            match Control::once(options)? {
                Ok(control) => return Ok(control),
                Err(retry) if begun.elapsed() + retry < PATIENCE => {
                    waiting();
                    thread::sleep(retry);
                }
                Err(_) => return Err(Failure::Refused("another client measures".to_owned())),
            }
        }
    }

    /// A session, or the time after which a busy server may be asked again.
    fn once(options: &Options) -> Result<Result<Control, Duration>, Failure> {
        let lost = |e: std::io::Error| {
            Failure::NoServer(format!(
                "{}: no server of unbloat measure ({})",
                options.host,
                e.kind()
            ))
        };
        let mut socket = connect(&options.host, PORT)?;
        let (server, local) =
            (plain(socket.peer_addr().map_err(lost)?), plain(socket.local_addr().map_err(lost)?));
        socket.set_nodelay(true).map_err(lost)?;
        socket.set_read_timeout(Some(CONNECT)).map_err(lost)?;
        socket.set_write_timeout(Some(CONNECT)).map_err(lost)?;
        socket.write_all(&CONTROL).map_err(lost)?;
        let mut frames = Frames::default();
        let of_client: Nonce = random().map_err(lost)?;
        let mut key = None;
        let (session, limits) = loop {
            match next(&mut socket, &mut frames).map_err(lost)? {
                ToClient::Nonce { nonce } => {
                    let nonce = unhex(&nonce).ok_or_else(|| lost(ErrorKind::InvalidData.into()))?;
                    key = Some(Key::derived(&options.token, &nonce, &of_client));
                    let hello = ToServer::Hello {
                        v: vec![VERSION],
                        nonce: hex(&of_client),
                        proof: proof(&options.token, &nonce, &of_client),
                    };
                    socket.write_all(&frame(&hello)).map_err(lost)?;
                }
                ToClient::Welcome { session, limits, .. } => {
                    let session =
                        unhex(&session).ok_or_else(|| lost(ErrorKind::InvalidData.into()))?;
                    break (u64::from_le_bytes(session), limits);
                }
                ToClient::Busy { retry_s } => {
                    return Ok(Err(Duration::from_secs(u64::from(retry_s.clamp(1, 10)))));
                }
                ToClient::Refused { why } => return Err(Failure::Refused(printable(&why))),
                _ => {}
            }
        };
        let key = key.ok_or_else(|| lost(ErrorKind::InvalidData.into()))?;
        let from_server = Arc::new(FromServer {
            begun: Instant::now(),
            last_ms: AtomicU64::new(0),
            ended: Mutex::default(),
            infos: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let (mut reader, received) = (socket.try_clone().map_err(lost)?, Arc::clone(&from_server));
        thread::spawn(move || {
            // The silence is judged by who waits for it; this thread ends with the connection.
            let _ = reader.set_read_timeout(None);
            while let Ok(message) = next(&mut reader, &mut frames) {
                received.alive();
                match message {
                    ToClient::Info(info) => received.take(info),
                    ToClient::Stopped => received.stopped.store(true, Relaxed),
                    ToClient::Error { why } => received.end(&printable(&why)),
                    _ => {}
                }
            }
            received.end("the server closed the connection");
        });
        Ok(Ok(Control { server, local, session, key, limits, from_server, socket }))
    }

    /// A message to the server. One that cannot be written is a server that is gone.
    pub fn say(&self, message: &ToServer) {
        if (&self.socket).write_all(&frame(message)).is_err() {
            self.from_server.end("the connection to the server broke");
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Ends the reading thread, too.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

fn next(socket: &mut TcpStream, frames: &mut Frames) -> std::io::Result<ToClient> {
    let mut buffer = [0; 4096];
    loop {
        match frames.take() {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => {}
            Err(_) => return Err(ErrorKind::InvalidData.into()),
        }
        match socket.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => frames.push(&buffer[..read]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}
