//! A session: one client measures.
//!
//! signal: frames, data connections, probes · model: a client that is silent for three seconds is gone · action: streams
//! as they are asked for within the limits, what they did ten times a second, and the end of everything.

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use rustls::ServerConfig;

use super::Settings;
use super::answer::{Answerer, MAX_QUIC_PER_S};
use crate::carrier::Carrier;
use crate::channel::{Channel, locked};
use crate::clock::Clock;
use crate::load::{self, Count};
use crate::quic::{self, Door, Flow, Listener};
use crate::socket::{congestion_controls, plain, prepare, stamped};
use crate::wire::data::{self, Direction, Opening};
use crate::wire::keys::{Key, hex, random};
use crate::wire::message::{Frames, Info, Limits, StreamInfo, ToClient, ToServer, frame};

/// Neither frame nor probe for so long: the other side is gone.
const SILENCE: Duration = Duration::from_secs(3);
/// Between two reports of the streams.
const REPORT: Duration = Duration::from_millis(100);
/// Longest silence that a client may ask for.
const QUIET: Duration = Duration::from_secs(60);
/// Until the threads of stopped streams have ended: five looks.
const ENDING: Duration = Duration::from_millis(500);

struct Stream {
    id: u32,
    carrier: Carrier,
    why: Option<String>,
    stop: Arc<AtomicBool>,
}

/// One client's session.
pub struct Session {
    /// Its client.
    pub peer: IpAddr,
    id: u64,
    key: Key,
    limits: Limits,
    clock: Clock,
    controls: Vec<String>,
    probes: UdpSocket,
    tls: Arc<ServerConfig>,
    block: Bytes,
    quic: Mutex<Option<Listener>>,
    /// Connections by QUIC that were none of the session's.
    refused: Arc<AtomicU64>,
    channel: Arc<Channel>,
    begun: Instant,
    /// Milliseconds from `begun` until the client was last active.
    active_ms: AtomicU64,
    /// Until then the client wants silence; zero: it does not.
    quiet_until_ms: AtomicU64,
    over: AtomicBool,
    streams: Mutex<Vec<Stream>>,
    up: Count,
    down: Count,
}

impl Session {
    /// With a UDP socket beside the control connection's own address.
    pub fn new(
        channel: Arc<Channel>,
        peer: IpAddr,
        key: Key,
        settings: &Settings,
        block: Bytes,
    ) -> io::Result<Session> {
        let local = plain(channel.socket().local_addr()?);
        Ok(Session {
            peer,
            id: u64::from_le_bytes(random()?),
            key,
            limits: settings.limits,
            clock: settings.clock,
            controls: congestion_controls(),
            probes: stamped(local, load::LOOK)?,
            tls: Arc::clone(&settings.tls),
            block,
            quic: Mutex::default(),
            refused: Arc::default(),
            channel,
            begun: Instant::now(),
            active_ms: AtomicU64::new(0),
            quiet_until_ms: AtomicU64::new(0),
            over: AtomicBool::new(false),
            streams: Mutex::default(),
            up: Count::default(),
            down: Count::default(),
        })
    }

    /// Bytes up and down.
    pub fn bytes(&self) -> (u64, u64) {
        (self.up.bytes.load(Relaxed), self.down.bytes.load(Relaxed))
    }

    /// Connections by QUIC that were none of the session's.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Leads the session to its end.
    pub fn run(self: &Arc<Self>, frames: Frames) {
        self.say(&ToClient::Welcome {
            session: hex(&self.id.to_le_bytes()),
            cc: self.controls.clone(),
            limits: self.limits,
            quic: quic::CONTROLS.map(str::to_owned).to_vec(),
            quic_probes: MAX_QUIC_PER_S,
        });
        thread::scope(|scope| {
            scope.spawn(|| self.answer_probes());
            scope.spawn(|| self.report());
            // Even by a panic: the other threads end with the session.
            let _ending = Ending(self);
            self.listen(frames);
        });
    }

    fn end(&self) {
        self.over.store(true, Relaxed);
        self.stop_streams();
        // Its tasks have this session, until its thread has ended.
        let listener = locked(&self.quic).take();
        drop(listener);
    }

    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn alive(&self) {
        self.active_ms.store(self.begun.elapsed().as_millis() as u64, Relaxed);
        self.quiet_until_ms.store(0, Relaxed);
    }

    /// Whether the client still wants silence.
    fn is_quiet(&self) -> bool {
        (self.begun.elapsed().as_millis() as u64) < self.quiet_until_ms.load(Relaxed)
    }

    fn is_silent(&self) -> bool {
        let last = self.active_ms.load(Relaxed).max(self.quiet_until_ms.load(Relaxed));
        self.begun.elapsed().saturating_sub(Duration::from_millis(last)) > SILENCE
    }

    /// A frame to the client. One that cannot be written ends the session: the next would begin in its middle.
    fn say(&self, message: &ToClient) {
        if self.channel.send(&frame(message)).is_err() {
            self.over.store(true, Relaxed);
        }
    }

    fn answer_probes(&self) {
        let Session { id, key, peer, limits, clock, .. } = self;
        let mut answerer = Answerer::new(*id, key.clone(), *peer, limits.pps, *clock);
        while !self.is_over() {
            if answerer.serve(&self.probes) {
                self.alive();
            }
        }
    }

    /// Reports ten times a second, and ends what exceeds a limit.
    fn report(&self) {
        let mut limited = false;
        while !self.is_over() {
            thread::sleep(REPORT);
            let (up, down) = self.bytes();
            if !self.is_quiet() {
                self.say(&ToClient::Info(Info {
                    t_ns: self.clock.now(),
                    up_bytes: up,
                    streams: locked(&self.streams).iter().map(of_stream).collect(),
                }));
            }
            if up + down > self.limits.bytes && !limited {
                limited = true;
                self.stop_streams();
                self.say(&ToClient::Error {
                    why: "the server's limit of bytes is reached".to_owned(),
                });
            }
            if self.is_silent() {
                self.over.store(true, Relaxed);
            }
            if self.begun.elapsed() > Duration::from_secs(u64::from(self.limits.seconds)) {
                self.say(&ToClient::Error {
                    why: "the server's limit of time is reached".to_owned(),
                });
                self.over.store(true, Relaxed);
            }
        }
    }

    fn listen(self: &Arc<Self>, mut frames: Frames) {
        // Looks for the end of the session as often as a stream does.
        if self.channel.socket().set_read_timeout(Some(load::LOOK)).is_err() {
            return;
        }
        while !self.is_over() {
            loop {
                match frames.take() {
                    Ok(Some(message)) => self.obey(message),
                    Ok(None) => break,
                    Err(_) => return self.say(&ToClient::Error { why: "no frame".to_owned() }),
                }
            }
            match self.channel.receive(&mut frames) {
                Ok(()) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => return,
            }
        }
    }

    fn obey(self: &Arc<Self>, message: ToServer) {
        self.alive();
        match message {
            ToServer::Alive => {}
            ToServer::Quiet { ms } => {
                let length = Duration::from_millis(ms.into()).min(QUIET);
                let until = self.begun.elapsed() + length;
                self.quiet_until_ms.store(until.as_millis() as u64, Relaxed);
            }
            ToServer::Stop => {
                self.stop_streams();
                self.say(&ToClient::Stopped);
            }
            ToServer::Quic { cc } => {
                let why = self.take_quic(cc.as_deref()).err().map(|e| e.to_string());
                self.say(&ToClient::Quic { why });
            }
            ToServer::Hello { .. } | ToServer::Unknown => {
                self.say(&ToClient::Error { why: "an unknown message".to_owned() });
            }
        }
    }

    /// Takes connections by QUIC, the next ones with this congestion control.
    fn take_quic(self: &Arc<Self>, cc: Option<&str>) -> io::Result<()> {
        let mut place = locked(&self.quic);
        let listener = match place.take() {
            Some(listener) => listener,
            None => {
                let (door, refused) = (Arc::clone(self), Arc::clone(&self.refused));
                Listener::begin(&self.probes, &self.tls, self.block.clone(), door, refused)?
            }
        };
        place.insert(listener).control(cc);
        Ok(())
    }

    /// What the first bytes of a data connection want; `None`: they are not of this session's client, or there are too many.
    pub fn wanted(&self, opening: &[u8; data::LENGTH]) -> Option<Opening> {
        let opening = Opening::read(opening, &self.key)?;
        let open = locked(&self.streams).len();
        (opening.session == self.id && open < self.limits.streams as usize).then_some(opening)
    }

    /// A data connection, as its first bytes want it.
    pub fn stream(&self, socket: TcpStream, opening: Opening, block: &[u8]) -> io::Result<()> {
        let Opening { id, direction, cc, .. } = opening;
        let cc = cc.as_deref();
        let known = cc.is_none_or(|cc| self.controls.iter().any(|known| known == cc));
        let mut why = prepare(&socket, cc.filter(|_| known), load::LOOK)?;
        if !known {
            why = Some("not among the server's congestion controls".to_owned());
        }
        (&socket).write_all(&[1])?;
        let socket = Arc::new(socket);
        let stop = Arc::new(AtomicBool::new(false));
        let carrier = Carrier::Tcp(Arc::clone(&socket));
        let stream = Stream { id, carrier, why, stop: Arc::clone(&stop) };
        locked(&self.streams).push(stream);
        // After it is in the list, so that the end of the session sees either the stream or this.
        if self.is_over() {
            stop.store(true, Relaxed);
        }
        // Which end closed it is of no interest: the client counts.
        let _ = match direction {
            Direction::Up => load::receive(&socket, &self.up, &stop),
            Direction::Down => load::send(&socket, block, &self.down, &stop),
        };
        locked(&self.streams).retain(|stream| stream.id != id);
        Ok(())
    }

    fn stop_streams(&self) {
        for stream in locked(&self.streams).iter() {
            stream.stop.store(true, Relaxed);
            if let Carrier::Quic(flow) = &stream.carrier {
                flow.end();
            }
        }
        let until = Instant::now() + ENDING;
        while !locked(&self.streams).is_empty() && Instant::now() < until {
            thread::sleep(ENDING / 50);
        }
    }
}

impl Door for Session {
    fn peer(&self) -> IpAddr {
        self.peer
    }

    fn wanted(&self, opening: &[u8; data::LENGTH]) -> Option<Opening> {
        Session::wanted(self, opening)
    }

    fn enter(&self, id: u32, flow: &Flow) -> bool {
        let carrier = Carrier::Quic(flow.clone());
        locked(&self.streams).push(Stream { id, carrier, why: None, stop: Arc::default() });
        // As with TCP: the end sees the stream, or this the end. A limit of bytes takes no stream any more.
        let (up, down) = self.bytes();
        !self.is_over() && up + down <= self.limits.bytes
    }

    fn leave(&self, id: u32) {
        locked(&self.streams).retain(|stream| stream.id != id);
    }

    fn count(&self, direction: Direction) -> &Count {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

struct Ending<'a>(&'a Session);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn of_stream(stream: &Stream) -> StreamInfo {
    let info = stream.carrier.info();
    StreamInfo { id: stream.id, why: stream.why.clone().or(info.why.clone()), ..info }
}
