//! The client's side of the control connection.
//!
//! signal: frames of the server, answers to probes · model: neither for three seconds is a server that is gone ·
//! action: what the streams did, and why it ended.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::{CONNECT, Failure, Options, connect, printable};
use crate::channel::{Channel, ChannelError};
use crate::seen::Transport;
use crate::server::VERSION;
use crate::socket::plain;
use crate::tls;
use crate::wire::PORT;
use crate::wire::keys::{Key, proof, unhex};
use crate::wire::message::{Frames, Info, Limits, ToClient, ToServer, frame};

/// As the server's.
const SILENCE: Duration = Duration::from_secs(3);
/// Ten a second in the longest session, twice.
const MAX_INFOS: usize = 4000;
/// A busy server is asked again for so long: another client's test, and some.
const PATIENCE: Duration = Duration::from_secs(90);

pub use crate::channel::locked;

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
    /// What it answered to the latest request of QUIC: nothing, or why not.
    pub quic: Mutex<Option<Option<String>>>,
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
    /// QUIC probes a second that the server answers.
    pub quic_probes: u32,
    /// What the server says.
    pub from_server: Arc<FromServer>,
    channel: Arc<Channel>,
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
        let lost = |e: io::Error| lost(&options.host, e);
        let socket = connect(&options.host, PORT)?;
        let (server, local) =
            (plain(socket.peer_addr().map_err(lost)?), plain(socket.local_addr().map_err(lost)?));
        let (channel, key) = greet(socket, server.ip(), options)
            .map_err(|e| failure(&options.host, options.pin.is_some(), e))?;
        let mut frames = Frames::default();
        let (session, limits, quic_probes) = loop {
            match next(&channel, &mut frames).map_err(lost)? {
                ToClient::Welcome { session, limits, quic, quic_probes, .. } => {
                    if quic.is_empty() && options.transports.contains(&Transport::Quic) {
                        let why = "it has no QUIC: its unbloat measure is older";
                        return Err(Failure::Refused(why.to_owned()));
                    }
                    let session =
                        unhex(&session).ok_or_else(|| lost(ErrorKind::InvalidData.into()))?;
                    break (u64::from_le_bytes(session), limits, quic_probes);
                }
                ToClient::Busy { retry_s } => {
                    return Ok(Err(Duration::from_secs(u64::from(retry_s.clamp(1, 10)))));
                }
                ToClient::Refused { why } => return Err(Failure::Refused(printable(&why))),
                _ => {}
            }
        };
        let from_server = Arc::new(FromServer {
            begun: Instant::now(),
            last_ms: AtomicU64::new(0),
            ended: Mutex::default(),
            infos: Mutex::default(),
            stopped: AtomicBool::new(false),
            quic: Mutex::default(),
        });
        // The silence is judged by who waits for it; the reading thread ends with the connection.
        channel.socket().set_read_timeout(None).map_err(lost)?;
        let channel = Arc::new(channel);
        let (reader, received) = (Arc::clone(&channel), Arc::clone(&from_server));
        thread::spawn(move || {
            while let Ok(message) = next(&reader, &mut frames) {
                received.alive();
                match message {
                    ToClient::Info(info) => received.take(info),
                    ToClient::Stopped => received.stopped.store(true, Relaxed),
                    ToClient::Quic { why } => {
                        *locked(&received.quic) = Some(why.as_deref().map(printable));
                    }
                    ToClient::Error { why } => received.end(&printable(&why)),
                    _ => {}
                }
            }
            received.end("the server closed the connection");
        });
        Ok(Ok(Control { server, local, session, key, limits, quic_probes, from_server, channel }))
    }

    /// A message to the server. One that cannot be written is a server that is gone.
    pub fn say(&self, message: &ToServer) {
        if self.channel.send(&frame(message)).is_err() {
            self.from_server.end("the connection to the server broke");
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Ends the reading thread, too.
        self.channel.close();
    }
}

/// TLS with the server that is meant, and the proof that the token is known; the key that follows from it.
fn greet(
    socket: TcpStream,
    address: IpAddr,
    options: &Options,
) -> Result<(Channel, Key), ChannelError> {
    let begun = Instant::now();
    let name = server_name(&options.host, address);
    let tls = ClientConnection::new(tls::client(options.pin)?, name)?;
    let channel = Channel::open(socket, tls.into(), begun + CONNECT, CONNECT)?;
    channel.socket().set_read_timeout(Some(CONNECT))?;
    let binding = channel.binding()?;
    let proof = proof(&options.token, &binding);
    channel.send(&frame(&ToServer::Hello { v: vec![VERSION], proof }))?;
    Ok((channel, Key::derived(&options.token, &binding)))
}

/// Why there is no TLS with the server.
fn failure(host: &str, pinned: bool, error: ChannelError) -> Failure {
    match error {
        ChannelError::Io(e) => lost(host, e),
        ChannelError::Tls(rustls::Error::InvalidCertificate(why)) => {
            Failure::Untrusted(if pinned {
                format!(
                    "{host}: the server's key is not that of --pin: the server has a new one, or another host answers for it"
                )
            } else {
                format!(
                    "{host}: the server has no certificate of a public authority for this name ({}): it needs --pin, as the server prints it",
                    printable(&why.to_string())
                )
            })
        }
        ChannelError::Tls(e) => no_server(host, &printable(&e.to_string())),
    }
}

fn lost(host: &str, error: io::Error) -> Failure {
    no_server(host, &error.kind().to_string())
}

fn no_server(host: &str, why: &str) -> Failure {
    Failure::NoServer(format!("{host}: no server of unbloat measure ({why})"))
}

/// The name that a certificate has to have: the host without a port.
pub(super) fn server_name(host: &str, address: IpAddr) -> ServerName<'static> {
    let bare = |text: &str| text.trim_matches(['[', ']']).to_owned();
    let name = match host.rsplit_once(':') {
        Some((name, _)) if bare(host).parse::<IpAddr>().is_err() => bare(name),
        _ => bare(host),
    };
    // A name that no certificate can have.
    ServerName::try_from(name).unwrap_or(address.into())
}

fn next(channel: &Channel, frames: &mut Frames) -> io::Result<ToClient> {
    loop {
        match frames.take() {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => {}
            Err(_) => return Err(ErrorKind::InvalidData.into()),
        }
        match channel.receive(frames) {
            Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_or_without_a_port_has_one_name() {
        let any = IpAddr::from([192, 0, 2, 1]);
        let name = |host| server_name(host, any).to_str().into_owned();
        for (host, expected) in [
            ("a.example", "a.example"),
            ("a.example:1", "a.example"),
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7:1", "192.0.2.7"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]:1", "2001:db8::1"),
            ("no name:1", "192.0.2.1"),
        ] {
            assert_eq!(name(host), expected);
        }
    }
}
