//! The client's ends of the streams.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use super::CONNECT;
use super::control::{Control, locked};
use crate::load::{self, Count};
use crate::seen::{Opened, Phase, Stream};
use crate::socket::{info, plain, prepare};
use crate::wire::data::{Direction, Opening};
use crate::wire::message::StreamInfo;

struct Open {
    id: u32,
    direction: Direction,
    socket: Arc<TcpStream>,
    why: Option<String>,
}

/// Streams of a test.
pub struct Loads {
    phase: Phase,
    cc: Option<String>,
    block: Arc<[u8]>,
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
            phase: Phase::Down,
            cc: None,
            block: load::random_block(seed),
            down: Arc::default(),
            up: Arc::default(),
            open: Arc::default(),
            opened: Arc::default(),
            stop: Arc::default(),
            next: 0,
        }
    }

    /// Phase and congestion control of the streams to come; `None`: each system's own.
    pub fn begin(&mut self, phase: Phase, cc: Option<String>) {
        (self.phase, self.cc) = (phase, cc);
    }

    /// Every stream so far.
    pub fn opened(&self) -> Vec<Opened> {
        locked(&self.opened).clone()
    }

    /// What this kernel says of each open stream.
    pub fn infos(&self) -> Vec<StreamInfo> {
        let of = |open: &Open| StreamInfo { id: open.id, ..info(&open.socket) };
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
        let opening =
            Opening { session: control.session, id: self.next, direction, cc: self.cc.clone() };
        self.next += 1;
        let count = match direction {
            Direction::Down => Arc::clone(&self.down),
            Direction::Up => Arc::clone(&self.up),
        };
        let (open, stop, block) =
            (Arc::clone(&self.open), Arc::clone(&self.stop), Arc::clone(&self.block));
        let opened = Arc::clone(&self.opened);
        let (phase, server, key) = (self.phase, control.server, control.key.clone());
        thread::spawn(move || -> io::Result<()> {
            let socket = TcpStream::connect_timeout(&server, CONNECT)?;
            socket.set_read_timeout(Some(CONNECT))?;
            (&socket).write_all(&opening.write(&key))?;
            (&socket).read_exact(&mut [0])?;
            let why = prepare(&socket, opening.cc.as_deref(), load::LOOK)?;
            let socket = Arc::new(socket);
            let Opening { id, direction, cc, .. } = opening;
            let client = plain(socket.local_addr()?);
            locked(&opened).push(Opened { id, phase, cc, direction, client, server });
            locked(&open).push(Open { id, direction, socket: Arc::clone(&socket), why });
            let done = match direction {
                Direction::Down => load::receive(&socket, &count, &stop),
                Direction::Up => load::send(&socket, &block, &count, &stop),
            };
            locked(&open).retain(|stream| stream.id != id);
            done
        });
    }

    /// What the kernel of the sending end says of each stream; the server's kernel by its latest report.
    pub fn streams(&self, reported: &[StreamInfo]) -> Vec<Stream> {
        locked(&self.open)
            .iter()
            .filter_map(|open| {
                let of_server = reported.iter().find(|stream| stream.id == open.id);
                let (at_sender, why) = match open.direction {
                    Direction::Up => (info(&open.socket), open.why.clone()),
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
            // A reader that waits returns at once.
            let _ = open.socket.shutdown(std::net::Shutdown::Read);
        }
        self.stop = Arc::default();
        self.open = Arc::default();
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        self.stop();
    }
}
