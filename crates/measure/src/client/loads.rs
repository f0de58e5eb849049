//! The client's ends of the streams.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use hyper::body::Bytes;

use super::CONNECT;
use super::control::{Control, locked};
use crate::carrier::Carrier;
use crate::load::{self, Count};
use crate::quic::{Dialer, Flow, Wanted, Watch};
use crate::seen::{Opened, Part, Phase, Stream, Transport};
use crate::socket::{plain, prepare};
use crate::wire::data::{Direction, Opening};
use crate::wire::message::StreamInfo;

struct Open {
    id: u32,
    direction: Direction,
    carrier: Carrier,
    why: Option<String>,
}

/// Streams of a test.
pub struct Loads {
    part: Part,
    dialer: Option<Dialer>,
    failed: Arc<Mutex<Option<String>>>,
    block: Bytes,
    down: Arc<Count>,
    up: Arc<Count>,
    open: Arc<Mutex<Vec<Open>>>,
    opened: Arc<Mutex<Vec<Opened>>>,
    stop: Arc<AtomicBool>,
    next: u32,
}

impl Loads {
    /// None as yet.
    pub fn new(seed: u64) -> Loads {
        Loads {
            part: Part { phase: Phase::Down, transport: Transport::Tcp, cc: None },
            dialer: None,
            failed: Arc::default(),
            block: Bytes::from_owner(load::random_block(seed)),
            down: Arc::default(),
            up: Arc::default(),
            open: Arc::default(),
            opened: Arc::default(),
            stop: Arc::default(),
            next: 0,
        }
    }

    /// What the streams to come shall be.
    pub fn begin(&mut self, part: Part) {
        self.part = part;
    }

    /// Whether connections of QUIC can be opened.
    pub fn has_dialer(&self) -> bool {
        self.dialer.is_some()
    }

    /// By what connections of QUIC are opened.
    pub fn dial_by(&mut self, dialer: Dialer) {
        self.dialer = Some(dialer);
    }

    /// Why no connection of QUIC carries a load, where one was tried.
    pub fn failed(&self) -> Option<String> {
        locked(&self.open).is_empty().then(|| locked(&self.failed).clone()).flatten()
    }

    /// Every stream so far.
    pub fn opened(&self) -> Vec<Opened> {
        locked(&self.opened).clone()
    }

    /// What this end knows of each open stream.
    pub fn infos(&self) -> Vec<StreamInfo> {
        let of = |open: &Open| StreamInfo { id: open.id, ..open.carrier.info() };
        locked(&self.open).iter().map(of).collect()
    }

    /// Bytes that were read here.
    pub fn received(&self) -> u64 {
        self.down.bytes.load(Relaxed)
    }

    /// Bytes that were read and written here.
    pub fn bytes(&self) -> u64 {
        self.received() + self.up.bytes.load(Relaxed)
    }

    /// Opens a stream in the background: on a loaded path that takes its time.
    pub fn add(&mut self, control: &Control, direction: Direction) {
        let cc = self.part.cc.clone();
        let opening = Opening { session: control.session, id: self.next, direction, cc };
        self.next += 1;
        let count = match direction {
            Direction::Down => Arc::clone(&self.down),
            Direction::Up => Arc::clone(&self.up),
        };
        let (open, stop, block) =
            (Arc::clone(&self.open), Arc::clone(&self.stop), self.block.clone());
        let (opened, part) = (Arc::clone(&self.opened), self.part.clone());
        let (server, key) = (control.server, control.key.clone());
        if let (Transport::Quic, Some(dialer)) = (part.transport, &self.dialer) {
            let failed = Arc::clone(&self.failed);
            let wanted = Wanted {
                opening: opening.write(&key),
                direction,
                cc: part.cc.clone(),
                block,
                count,
            };
            let id = opening.id;
            return dialer
                .dial(wanted, ByQuic { id, direction, part, server, open, opened, failed, stop });
        }
        thread::spawn(move || -> io::Result<()> {
            let socket = TcpStream::connect_timeout(&server, CONNECT)?;
            socket.set_read_timeout(Some(CONNECT))?;
            (&socket).write_all(&opening.write(&key))?;
            (&socket).read_exact(&mut [0])?;
            let why = prepare(&socket, opening.cc.as_deref(), load::LOOK)?;
            let socket = Arc::new(socket);
            let Opening { id, direction, .. } = opening;
            let client = plain(socket.local_addr()?);
            locked(&opened).push(Opened { id, part, direction, client, server });
            let carrier = Carrier::Tcp(Arc::clone(&socket));
            locked(&open).push(Open { id, direction, carrier, why });
            let done = match direction {
                Direction::Down => load::receive(&socket, &count, &stop),
                Direction::Up => load::send(&socket, &block, &count, &stop),
            };
            locked(&open).retain(|stream| stream.id != id);
            done
        });
    }

    /// What the sending end knows of each stream; the server by its latest report.
    pub fn streams(&self, reported: &[StreamInfo]) -> Vec<Stream> {
        locked(&self.open)
            .iter()
            .filter_map(|open| {
                let of_server = reported.iter().find(|stream| stream.id == open.id);
                let (at_sender, why) = match open.direction {
                    Direction::Up => (open.carrier.info(), open.why.clone()),
                    Direction::Down => (of_server?.clone(), of_server?.why.clone()),
                };
                Some(Stream::new(open.direction, at_sender, why))
            })
            .collect()
    }

    /// Ends all streams, and begins a new set.
    pub fn stop(&mut self) {
        self.stop.store(true, Relaxed);
        for open in locked(&self.open).iter() {
            open.carrier.end();
        }
        self.stop = Arc::default();
        self.open = Arc::default();
    }
}

/// A connection by QUIC in its place among the streams.
struct ByQuic {
    id: u32,
    direction: Direction,
    part: Part,
    server: SocketAddr,
    open: Arc<Mutex<Vec<Open>>>,
    opened: Arc<Mutex<Vec<Opened>>>,
    failed: Arc<Mutex<Option<String>>>,
    stop: Arc<AtomicBool>,
}

impl Watch for ByQuic {
    fn began(&self, flow: Flow, local: SocketAddr) {
        let ByQuic { id, direction, server, .. } = *self;
        let (part, client, why) = (self.part.clone(), plain(local), flow.info().why);
        locked(&self.opened).push(Opened { id, part, direction, client, server });
        let carrier = Carrier::Quic(flow.clone());
        locked(&self.open).push(Open { id, direction, carrier, why });
        // After it is in the list: the end of the phase sees it, or this the end.
        if self.stop.load(Relaxed) {
            flow.end();
        }
    }

    fn failed(&self, why: &str) {
        *locked(&self.failed) = Some(why.to_owned());
    }

    fn ended(&self) {
        locked(&self.open).retain(|stream| stream.id != self.id);
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        self.stop();
    }
}
