//! QUIC (RFC 9000) as the transport of a load, by quinn.
//!
//! signal: a session that asks for it · model: a stream of a load is a connection of its own with one stream of QUIC, so that
//! several compete as several of TCP do · action: connections that begin as those of TCP (`wire::data`), what quinn knows of
//! each, and the end of all.
//!
//! quinn and tokio run in one thread of each end, as long as a session uses QUIC. What differs from TCP: the receiver counts
//! what arrives, also behind a gap; packets carry ECT(0), so a queue may mark them (RFC 3168); the kernel does not limit what
//! a sender has in its device's queue.

mod client;
mod server;
mod steer;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::UdpSocket;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::body::Bytes;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBuf;
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::{Connection, RecvStream, SendStream, TransportConfig, VarInt};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::load::{Count, LOOK};
use crate::wire::message::{QuicInfo, StreamInfo};

pub use client::{Dialer, Wanted, Watch};
pub use server::{Door, Listener};

/// Congestion controls of quinn, the first one if none is named. Its BBR is version 1, which quinn calls experimental.
pub const CONTROLS: [&str; 3] = ["cubic", "newreno", "bbr"];
/// Bytes that a receiver lets come, and a sender keeps until they are acknowledged: 1 Gbit/s over 130 ms in one connection, and 16
/// of them. As sent bytes are slices of one block, they take no memory; received ones are thrown away at once.
const WINDOW: u32 = 16 << 20;
/// Nothing is received for so long: longer than a session lasts without a sign of life.
const IDLE_MS: u32 = 10_000;
/// Of a receiving socket; the kernel gives `net.core.rmem_max` at most. What it drops looks like loss of the path.
const RECEIVE_BUFFER: usize = 4 << 20;
/// One call.
const PIECE: usize = 64 << 10;
/// Until the packets that close connections have left.
const FAREWELL: Duration = Duration::from_millis(50);

/// A congestion control of quinn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Its name.
    pub name: &'static str,
    /// Why it is another than was asked for.
    pub why: Option<String>,
}

impl Control {
    /// The one that is asked for, or the usual one.
    pub fn of(asked: Option<&str>) -> Control {
        let usual = CONTROLS[0];
        match asked {
            None => Control { name: usual, why: None },
            // The kernel's name of the same algorithm (RFC 9002 section 7).
            Some("reno") => Control { name: "newreno", why: None },
            Some(asked) => match CONTROLS.iter().find(|name| **name == asked) {
                Some(name) => Control { name, why: None },
                None => Control {
                    name: usual,
                    why: Some(format!("{asked}: QUIC has {} here", CONTROLS.join(", "))),
                },
            },
        }
    }

    fn transport(&self) -> TransportConfig {
        let factory: Arc<dyn ControllerFactory + Send + Sync> = match self.name {
            "newreno" => Arc::new(NewRenoConfig::default()),
            "bbr" => Arc::new(BbrConfig::default()),
            _ => Arc::new(CubicConfig::default()),
        };
        let mut config = TransportConfig::default();
        config
            .congestion_controller_factory(factory)
            .stream_receive_window(WINDOW.into())
            .receive_window(WINDOW.into())
            .send_window(WINDOW.into())
            .max_idle_timeout(Some(VarInt::from_u32(IDLE_MS).into()))
            .max_concurrent_bidi_streams(VarInt::from_u32(1))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .datagram_receive_buffer_size(None);
        config
    }
}

/// A connection that carries a load.
#[derive(Clone)]
pub struct Flow {
    connection: Connection,
    control: Control,
    received: Arc<AtomicU64>,
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flow({}, {})", self.connection.remote_address(), self.control.name)
    }
}

impl Flow {
    fn new(connection: Connection, control: Control) -> Flow {
        Flow { connection, control, received: Arc::default() }
    }

    /// What this end knows of it.
    pub fn info(&self) -> StreamInfo {
        let path = self.connection.stats().path;
        let us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        StreamInfo {
            cc: self.control.name.to_owned(),
            why: self.control.why.clone(),
            rtt_us: us(path.rtt),
            min_rtt_us: us(path.min_rtt),
            mss: path.current_mtu.into(),
            cwnd: u32::try_from(path.cwnd / u64::from(path.current_mtu.max(1))).unwrap_or(u32::MAX),
            quic: Some(QuicInfo {
                lost_packets: path.lost_packets,
                congestion_events: path.congestion_events,
                received: self.received.load(Relaxed),
            }),
            ..StreamInfo::default()
        }
    }

    /// Ends it at once: what was not sent yet is thrown away.
    pub fn end(&self) {
        self.connection.close(VarInt::from_u32(0), b"");
    }

    /// Sends until either side ends it. What counts has left, headers and all: of what was written most waits for the window.
    async fn send(&self, mut stream: SendStream, block: &Bytes, count: &Count) {
        let (mut at, mut counted) = (0, 0);
        let mut look = || {
            let sent = self.connection.stats().udp_tx.bytes;
            count.bytes.fetch_add(sent - counted, Relaxed);
            counted = sent;
        };
        let mut writes = true;
        while writes {
            let piece = block.slice(at..(at + PIECE).min(block.len()));
            at = (at + PIECE) % block.len();
            let mut write = pin!(stream.write_chunk(piece));
            writes = loop {
                let written = timeout(LOOK / 2, &mut write).await;
                look();
                if let Ok(written) = written {
                    break written.is_ok();
                }
            };
        }
    }

    /// Receives until either side ends it.
    async fn receive(&self, mut stream: RecvStream, count: &Count) {
        while let Ok(Some(chunk)) = stream.read_chunk(PIECE, false).await {
            let length = chunk.bytes.len() as u64;
            self.received.fetch_add(length, Relaxed);
            count.bytes.fetch_add(length, Relaxed);
        }
    }
}

/// A thread in which tasks run until it is dropped.
struct Reactor {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reactor {
    fn begin() -> io::Result<Reactor> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new().name("quic".to_owned()).spawn(move || {
            runtime.block_on(async {
                // Its sender is dropped at the latest.
                let _ = stopped.await;
                tokio::time::sleep(FAREWELL).await;
            });
        })?;
        Ok(Reactor { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Runs a task in the background.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(task));
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed.
            let _ = thread.join();
        }
    }
}

/// Has a socket room for what comes while this program does something else.
fn roomy(socket: &UdpSocket) -> io::Result<()> {
    Ok(setsockopt(socket, RcvBuf, &RECEIVE_BUFFER)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_control_that_quic_lacks_is_a_reason() {
        assert_eq!(Control::of(None), Control { name: "cubic", why: None });
        assert_eq!(Control::of(Some("reno")), Control { name: "newreno", why: None });
        assert_eq!(Control::of(Some("bbr")), Control { name: "bbr", why: None });
        let other = Control::of(Some("dctcp"));
        assert_eq!(other.name, "cubic");
        assert_eq!(other.why.as_deref(), Some("dctcp: QUIC has cubic, newreno, bbr here"));
    }
}
