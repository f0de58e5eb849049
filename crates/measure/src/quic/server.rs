//! The server's end of QUIC, for one session.
//!
//! signal: connections of the session's client · model: its first bytes are those of a data connection of TCP, signed with the
//! session's key · action: the load that they want, until the session ends; all else is closed and counted.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use hyper::body::Bytes;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime, VarInt};
use tokio::time::timeout;

use super::{Control, Flow, Reactor, WINDOW, roomy, steer};
use crate::channel::locked;
use crate::load::Count;
use crate::socket::plain;
use crate::wire::QUIC_ALPN;
use crate::wire::data::{self, Direction, Opening};
use crate::wire::probe::MAGIC;

/// Until a connection has proved that it is of the session: as one of TCP.
const INTRODUCTION: Duration = Duration::from_secs(3);
/// Connections that have proved nothing, at a time: as many as a client opens at once, twice.
const MAX_STRANGERS: usize = 32;
/// Bytes of a connection that has proved nothing: more than it may have to say, and little for all of them together.
const STRANGER_WINDOW: u32 = 16 << 10;
/// The error by which a connection is closed that is not of the session.
const NO_SESSION: VarInt = VarInt::from_u32(1);

/// What a session decides of connections.
pub trait Door: Send + Sync + 'static {
    /// Its client.
    fn peer(&self) -> IpAddr;
    /// What the first bytes of a connection want; `None`: they are not of this session, or there are too many.
    fn wanted(&self, opening: &[u8; data::LENGTH]) -> Option<Opening>;
    /// A connection of the session begins; false: the session is over.
    fn enter(&self, id: u32, flow: &Flow) -> bool;
    /// It has ended.
    fn leave(&self, id: u32);
    /// Where its bytes are counted.
    fn count(&self, direction: Direction) -> &Count;
}

/// A server of QUIC, until it is dropped.
pub struct Listener {
    shared: Arc<Shared>,
    // The last field: its tasks use the others.
    _reactor: Reactor,
}

struct Shared {
    endpoint: Endpoint,
    tls: Arc<QuicServerConfig>,
    now: Mutex<(Control, Arc<ServerConfig>)>,
    strangers: AtomicUsize,
    refused: Arc<AtomicU64>,
    block: Bytes,
}

impl Shared {
    fn now(&self) -> MutexGuard<'_, (Control, Arc<ServerConfig>)> {
        locked(&self.now)
    }

    fn config(tls: &Arc<QuicServerConfig>, control: &Control) -> Arc<ServerConfig> {
        let mut transport = control.transport();
        transport.receive_window(VarInt::from_u32(STRANGER_WINDOW));
        let mut config = ServerConfig::with_crypto(Arc::clone(tls) as Arc<_>);
        // A connection stays at the address of the session's client.
        config.transport_config(Arc::new(transport)).migration(false);
        Arc::new(config)
    }
}

impl Listener {
    /// Answers at the port of `probes`. `refused` counts connections that are not of the session.
    pub fn begin(
        probes: &UdpSocket,
        tls: &rustls::ServerConfig,
        block: Bytes,
        door: Arc<dyn Door>,
        refused: Arc<AtomicU64>,
    ) -> io::Result<Listener> {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![QUIC_ALPN.to_vec()];
        let tls = Arc::new(QuicServerConfig::try_from(tls).map_err(io::Error::other)?);
        let socket = steer::beside(probes, MAGIC)?;
        roomy(&socket)?;
        let control = Control::of(None);
        let config = Shared::config(&tls, &control);
        let reactor = Reactor::begin()?;
        let (made, endpoint) = mpsc::channel();
        let of_endpoint = ServerConfig::clone(&config);
        reactor.spawn(async move {
            let runtime = Arc::new(TokioRuntime);
            let endpoint =
                Endpoint::new(EndpointConfig::default(), Some(of_endpoint), socket, runtime);
            // The other end waits for it.
            let _ = made.send(endpoint);
        });
        let endpoint = endpoint.recv().map_err(io::Error::other)??;
        let shared = Arc::new(Shared {
            endpoint,
            tls,
            now: Mutex::new((control, config)),
            strangers: AtomicUsize::new(0),
            refused,
            block,
        });
        let accepting = Arc::clone(&shared);
        reactor.spawn(async move {
            while let Some(incoming) = accepting.endpoint.accept().await {
                let (shared, door) = (Arc::clone(&accepting), Arc::clone(&door));
                let strange = shared.strangers.load(Relaxed) >= MAX_STRANGERS;
                if strange || plain(incoming.remote_address()).ip() != door.peer() {
                    shared.refused.fetch_add(1, Relaxed);
                    // Not a byte goes to an address that nothing proves.
                    incoming.ignore();
                    continue;
                }
                shared.strangers.fetch_add(1, Relaxed);
                tokio::spawn(async move { shared.connection(incoming, &*door).await });
            }
        });
        Ok(Listener { shared, _reactor: reactor })
    }

    /// The congestion control of the connections to come.
    pub fn control(&self, asked: Option<&str>) {
        let control = Control::of(asked);
        let config = Shared::config(&self.shared.tls, &control);
        *self.shared.now() = (control, config);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.endpoint.close(VarInt::from_u32(0), b"");
    }
}

impl Shared {
    async fn connection(&self, incoming: Incoming, door: &dyn Door) {
        let (control, config) = self.now().clone();
        let introduced = async {
            let connection = incoming.accept_with(config).ok()?.await.ok()?;
            let mut opening = [0; data::LENGTH];
            let read = async {
                let (mut answer, mut stream) = connection.accept_bi().await.ok()?;
                stream.read_exact(&mut opening).await.ok()?;
                let opening = door.wanted(&opening)?;
                answer.write_all(&[1]).await.ok()?;
                Some((opening, answer, stream))
            };
            match timeout(INTRODUCTION, read).await.ok().flatten() {
                Some(read) => Some((connection, read)),
                None => {
                    connection.close(NO_SESSION, b"no session");
                    None
                }
            }
        };
        // A handshake that does not end is bounded as well.
        let introduced = timeout(2 * INTRODUCTION, introduced).await.ok().flatten();
        self.strangers.fetch_sub(1, Relaxed);
        let Some((connection, (opening, answer, stream))) = introduced else {
            self.refused.fetch_add(1, Relaxed);
            return;
        };
        connection.set_receive_window(WINDOW.into());
        let Opening { id, direction, .. } = opening;
        let flow = Flow::new(connection, control);
        if door.enter(id, &flow) {
            let count = door.count(direction);
            match direction {
                Direction::Up => flow.receive(stream, count).await,
                Direction::Down => flow.send(answer, &self.block, count).await,
            }
        }
        flow.end();
        door.leave(id);
    }
}
