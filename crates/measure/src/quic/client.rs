//! The client's end of QUIC.

use std::io;
use std::net::SocketAddr;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, EndpointConfig, RecvStream, SendStream, TokioRuntime};
use tokio::time::timeout;

use super::{Control, Flow, Reactor, roomy};
use crate::load::Count;
use crate::tls;
use crate::wire::data::{Direction, LENGTH};

/// Until a connection carries a load: handshake and first answer, each as long as one of TCP may take.
const CONNECT: Duration = Duration::from_secs(6);

/// Opens connections to a server, until it is dropped.
pub struct Dialer {
    tls: Arc<QuicClientConfig>,
    local: SocketAddr,
    server: SocketAddr,
    name: String,
    reactor: Reactor,
}

/// A connection that is wanted.
pub struct Wanted {
    /// Its first bytes.
    pub opening: [u8; LENGTH],
    /// Which way its data go.
    pub direction: Direction,
    /// The congestion control that is asked for.
    pub cc: Option<String>,
    /// What is sent.
    pub block: Bytes,
    /// Where bytes are counted.
    pub count: Arc<Count>,
}

/// What becomes of it.
pub trait Watch: Send + 'static {
    /// It carries a load from now on, from this address.
    fn began(&self, flow: Flow, local: SocketAddr);
    /// It never came so far.
    fn failed(&self, why: &str);
    /// It has ended.
    fn ended(&self);
}

impl Dialer {
    /// To the server that a control connection has found, and by its name, with the key of `tls`.
    pub fn begin(
        local: SocketAddr,
        server: SocketAddr,
        name: String,
        pin: Option<tls::Pin>,
    ) -> io::Result<Dialer> {
        let tls = tls::load_client(pin).map_err(io::Error::other)?;
        let tls = Arc::new(QuicClientConfig::try_from(tls).map_err(io::Error::other)?);
        Ok(Dialer { tls, local, server, name, reactor: Reactor::begin()? })
    }

    /// Opens a connection in the background, by a socket of its own, so that the network takes it for a flow of its own.
    pub fn dial(&self, wanted: Wanted, watch: impl Watch) {
        let control = Control::of(wanted.cc.as_deref());
        let mut config = ClientConfig::new(Arc::clone(&self.tls) as Arc<_>);
        config.transport_config(Arc::new(control.transport()));
        let (server, name) = (self.server, self.name.clone());
        // Of the same interface: a link-local address is worth nothing without it.
        let mut local = self.local;
        local.set_port(0);
        self.reactor.spawn(async move {
            let opened = open(config, local, server, &name, &wanted.opening);
            let opened = timeout(CONNECT, opened).await.unwrap_or_else(|_| {
                Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))
            });
            match opened {
                Err(e) => watch.failed(&e.to_string()),
                Ok((endpoint, connection, send, receive)) => {
                    let flow = Flow::new(connection, control);
                    watch.began(flow.clone(), endpoint.local_addr().unwrap_or(local));
                    match wanted.direction {
                        Direction::Down => flow.receive(receive, &wanted.count).await,
                        Direction::Up => flow.send(send, &wanted.block, &wanted.count).await,
                    }
                    flow.end();
                    watch.ended();
                    endpoint.wait_idle().await;
                }
            }
        });
    }
}

/// A connection whose load the server has taken.
async fn open(
    config: ClientConfig,
    local: SocketAddr,
    server: SocketAddr,
    name: &str,
    opening: &[u8],
) -> io::Result<(Endpoint, quinn::Connection, SendStream, RecvStream)> {
    let socket = UdpSocket::bind(local)?;
    roomy(&socket)?;
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))?;
    let connection = endpoint.connect_with(config, server, name).map_err(io::Error::other)?.await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(opening).await?;
    receive.read_exact(&mut [0]).await.map_err(io::Error::other)?;
    Ok((endpoint, connection, send, receive))
}
