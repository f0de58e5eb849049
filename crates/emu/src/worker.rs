//! The thread of one direction: TUN device in, lane, TUN device out.
//!
//! signal: packets that can be read, a time that has come · model: read what is there (each packet
//! with its own time of arrival), let the lane catch up to now, hand over what is due, sleep until
//! the next of these · action: packets, decisions, how late each was.
//!
//! In steady state nothing is allocated per packet: bytes lie in [`Frames`], decisions in buffers
//! of the log.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use algo::port::{Loss, Outcome, QueueRow, StageRow};
use algo::{Ecn, Packet};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::time::{TimeSpec, TimeValLike};
use scenario::Scenario;
use units::{Duration, Histogram, Instant};

use crate::clock::Clock;
use crate::frames::{Frames, Meta};
use crate::headers::{self, View, view};
use crate::lane::{Lane, Sink};
use crate::log::{self, Record};
use crate::offload::{self, HEADER, Joined, Virtio};
use crate::probe::{Listener, Prober};
use crate::report::{Note, Outbox, Why};
use crate::telemetry::Telemetry;
use crate::tun::Tun;

/// Packets read before what is due is looked at again: a batch costs less than the precision that
/// is promised.
const BATCH: usize = 32;
/// Largest packet that a TUN device hands out, with its virtio header.
const LARGEST: usize = 65_536 + HEADER;
/// A log buffer is sent when so full.
const LOG_BUFFER: usize = 1 << 16;
/// Longest sleep: counters are shown that often at least.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// What everybody may see of a direction while it runs.
#[derive(Debug, Default)]
pub struct Live {
    /// Packets that came.
    pub offered: AtomicU64,
    /// Bytes handed over at the far end.
    pub bytes: AtomicU64,
    /// Packets handed over.
    pub arrived: AtomicU64,
    /// Dropped in the queue.
    pub dropped: AtomicU64,
    /// Lost on the link.
    pub lost: AtomicU64,
    /// Not taken by the far kernel.
    pub refused: AtomicU64,
    /// Bytes that wait.
    pub waiting: AtomicU64,
}

/// What a direction comes to.
pub struct Finished {
    /// Its stages.
    pub stages: Vec<StageRow>,
    /// Packets that came before the run's start, and were thrown away.
    pub early: u64,
    /// Packets longer than any slot.
    pub oversize: u64,
    /// Packets in queues and on the way at the end.
    pub held: u64,
    /// Bytes of memory taken for packets.
    pub memory: u64,
    /// How late packets were handed over, ns.
    pub lateness: Histogram,
    /// Notes that were lost to a writer that was far behind.
    pub notes_lost: u64,
}

/// Everything a worker is made of.
pub struct Parts<'s> {
    /// The scenario.
    pub scenario: &'s Scenario,
    /// Index of the link.
    pub link: usize,
    /// Where packets come from.
    pub input: Arc<Tun>,
    /// Where they go to.
    pub output: Arc<Tun>,
    /// Whether both take large segments.
    pub offload: bool,
    /// The run's time.
    pub clock: Clock,
    /// Readable when it is time to stop.
    pub stop: Arc<EventFd>,
    /// Where notes go.
    pub outbox: Outbox,
    /// Where reports of the modem go.
    pub telemetry: Option<Telemetry>,
    /// Pings for a gate that wants them.
    pub prober: Option<Prober>,
    /// Those of other directions whose answers come this way.
    pub listeners: Vec<Listener>,
    /// Seen from outside.
    pub live: Arc<Live>,
}

/// Why a worker stopped early.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A device went away.
    #[error("{device}: {error}")]
    Device {
        /// Which.
        device: String,
        /// What the kernel said.
        error: Errno,
    },
}

/// The worker.
pub struct Worker {
    lane: Lane,
    books: Books,
    input: Arc<Tun>,
    output: Arc<Tun>,
    offload: bool,
    clock: Clock,
    end: Instant,
    stop: Arc<EventFd>,
    users: Users,
    prober: Option<Prober>,
    listeners: Vec<Listener>,
    joined: Joined,
    buffer: Vec<u8>,
    measured_from: Instant,
    early: u64,
    oversize: u64,
}

/// The lane's sink: what it decides goes to the log, and packets that are gone are forgotten.
struct Books {
    link: usize,
    zero_ns: u64,
    frames: Frames,
    log: log::Writer,
    outbox: Outbox,
    telemetry: Option<Telemetry>,
    lateness: Histogram,
    live: Arc<Live>,
    arrivals: u64,
    refused: u64,
}

impl Sink for Books {
    fn decided(&mut self, now: Instant, outcome: &Outcome) {
        let frames = &self.frames;
        if let Some(record) = log::record_of(outcome, |handle| frames.meta(handle).number) {
            self.log.put(now, &record);
            if let (Record::Reported { at, told }, Some(telemetry)) = (record, &mut self.telemetry)
            {
                telemetry.send(self.zero_ns + at.0, told);
            }
        }
        match outcome {
            Outcome::Started(packet, _) if packet.ecn == Ecn::Marked => {
                headers::mark(self.frames.bytes_mut(packet.handle));
            }
            Outcome::Gone(packet, loss) => self.gone(now, packet, *loss),
            _ => {}
        }
    }

    fn bin(&mut self, row: QueueRow) {
        self.outbox.put(Note::Bin(row));
    }
}

impl Books {
    fn gone(&mut self, now: Instant, packet: &Packet, loss: Loss) {
        let view = view(self.frames.bytes(packet.handle));
        self.outbox.put(Note::Loss(now, self.link, Why::Decided(loss), view, packet.bytes));
        self.frames.remove(packet.handle);
    }

    fn refused(&mut self, now: Instant, handle: u32, error: Errno) {
        let meta = self.frames.meta(handle);
        self.log.put(now, &Record::Refused(meta.number, error as i32));
        let view = view(self.frames.bytes(handle));
        self.outbox.put(Note::Loss(
            now,
            self.link,
            Why::Undeliverable,
            view,
            u32::from(meta.length),
        ));
        self.refused += 1;
    }

    fn send_log(&mut self, least: usize) {
        if self.log.pending() > least {
            let bytes = self.log.swap(Vec::with_capacity(LOG_BUFFER + LOG_BUFFER / 4));
            self.outbox.put(Note::Log(self.link, bytes));
        }
    }
}

/// Whose traffic a packet is, by its addresses.
struct Users {
    nodes: usize,
    /// By ends, lower · nodes + higher.
    table: Vec<u16>,
}

impl Users {
    fn new(scenario: &Scenario) -> Users {
        let nodes = scenario.nodes.len();
        let pairs = (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b)));
        Users { nodes, table: pairs.map(|(a, b)| scenario.user(a, b) as u16).collect() }
    }

    fn of(&self, view: &View) -> u16 {
        let node = |address: &[u8; 16]| {
            let [a, b, c, d, ..] = *address;
            scenario::node_at([a, b, c, d].into()).filter(|_| view.version == 4)
        };
        match (node(&view.source), node(&view.destination)) {
            (Some(a), Some(b)) if a < self.nodes && b < self.nodes => {
                self.table[a * self.nodes + b]
            }
            // A stranger is a user of its own.
            _ => u16::MAX,
        }
    }
}

impl Worker {
    /// An idle worker.
    pub fn new(parts: Parts<'_>) -> Worker {
        let Parts {
            scenario,
            link,
            input,
            output,
            offload,
            clock,
            stop,
            outbox,
            telemetry,
            prober,
            listeners,
            live,
        } = parts;
        let books = Books {
            link,
            zero_ns: clock.zero_ns,
            frames: Frames::default(),
            log: log::Writer::new(link as u16),
            outbox,
            telemetry,
            lateness: Histogram::default(),
            live,
            arrivals: 0,
            refused: 0,
        };
        Worker {
            lane: Lane::new(scenario, link),
            books,
            input,
            output,
            offload,
            clock,
            end: Instant(scenario.duration.0),
            stop,
            users: Users::new(scenario),
            prober,
            listeners,
            joined: Joined::default(),
            buffer: vec![0; LARGEST],
            measured_from: Instant(scenario.warmup.0),
            early: 0,
            oversize: 0,
        }
    }

    /// Works until told to stop, or until a device goes away.
    pub fn run(mut self) -> (Finished, Result<(), WorkerError>) {
        let outcome = self.work();
        (self.finish(), outcome)
    }

    fn work(&mut self) -> Result<(), WorkerError> {
        let (input, stop) = (self.input.clone(), self.stop.clone());
        let mut polled: Vec<PollFd<'_>> =
            input.queues.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)).collect();
        let wake = self.prober.as_ref().map(|prober| prober.wake.clone());
        polled.extend(wake.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        polled.push(PollFd::new(stop.as_fd(), PollFlags::POLLIN));
        let queues = input.queues.len();
        let zero = self.clock.zero_ns;
        while crate::clock::monotonic_ns() < zero {
            for fd in &input.queues {
                self.early += u64::from(nix::unistd::read(fd, &mut self.buffer).is_ok());
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        let mut more = true;
        loop {
            let now = self.clock.now();
            let sleep = match self.next_due() {
                _ if more => Duration::ZERO,
                Some(at) => at.since(now).min(LONGEST_SLEEP),
                None => LONGEST_SLEEP,
            };
            match ppoll(&mut polled, Some(TimeSpec::nanoseconds(sleep.0 as i64)), None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(self.device_error(&input.name, error)),
            }
            let happened = |fd: &PollFd<'_>| fd.revents().unwrap_or(PollFlags::empty());
            if polled.last().is_some_and(|fd| !happened(fd).is_empty()) {
                return Ok(());
            }
            more = false;
            for (fd, queue) in polled.iter().take(queues).zip(&input.queues) {
                if !happened(fd).is_empty() {
                    more |= self.read(queue.as_fd())?;
                }
            }
            let now = self.clock.now();
            self.probe(now.min(self.end));
            self.lane.advance(now.min(self.end), &mut self.books);
            self.hand_over(now);
            self.publish();
            if now >= self.end && self.lane.next_due().is_none_or(|at| at > self.end) {
                // The scenario is over; what still comes is nobody's.
                more = false;
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let probe =
            self.prober.as_ref().filter(|_| self.lane.probe_every().is_some()).map(Prober::next);
        self.lane.next_due().into_iter().chain(probe).min()
    }

    /// Answers to the gate's probes, then those that are due.
    fn probe(&mut self, now: Instant) {
        let Some(mut prober) = self.prober.take() else { return };
        while let Some(rtt) = prober.heard(now) {
            self.lane.advance(now, &mut self.books);
            self.books.log.put(self.lane.now(), &Record::Probed(rtt));
            self.lane.probed(now, rtt, &mut self.books);
        }
        if self.lane.probe_every().is_none() {
            prober.rest(now);
        }
        while let Some(every) = self.lane.probe_every()
            && prober.next() <= now
        {
            let (at, request) = prober.ask(every);
            self.arrive(at, &[&request], false);
        }
        self.prober = Some(prober);
    }

    fn device_error(&self, device: &str, error: Errno) -> WorkerError {
        WorkerError::Device { device: device.to_owned(), error }
    }

    /// Reads a batch; whether there may be more.
    fn read(&mut self, queue: BorrowedFd<'_>) -> Result<bool, WorkerError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut outcome = Ok(true);
        for _ in 0..BATCH {
            match nix::unistd::read(queue, &mut buffer) {
                Ok(length) if length > HEADER => self.take(&buffer[..length]),
                Ok(_) => {}
                Err(Errno::EAGAIN) => {
                    outcome = Ok(false);
                    break;
                }
                Err(Errno::EINTR) => {}
                Err(error) => {
                    outcome = Err(self.device_error(&self.input.name, error));
                    break;
                }
            }
        }
        self.buffer = buffer;
        outcome
    }

    /// A packet, or a large segment, with its virtio header.
    fn take(&mut self, read: &[u8]) {
        let now = self.clock.now();
        if now >= self.end {
            return;
        }
        let (header, packet) = read.split_at(HEADER);
        let mut own = [0; HEADER];
        own.copy_from_slice(header);
        let virtio = Virtio::read(&own);
        let was_cut = virtio.segment.is_some_and(|segment| {
            offload::cut(packet, segment, |head, payload| self.arrive(now, &[head, payload], true))
        });
        if !was_cut {
            self.arrive(now, &[packet], virtio.partial);
        }
    }

    fn arrive(&mut self, now: Instant, parts: &[&[u8]], partial: bool) {
        let view = view(parts[0]);
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let meta = Meta { number: self.books.arrivals, partial, length: 0 };
        let Some(handle) = self.books.frames.insert(meta, parts) else {
            self.oversize += 1;
            return;
        };
        let packet = Packet {
            handle,
            bytes: length as u32,
            flow_hash: view.hash(),
            host: self.users.of(&view),
            class: view.class(),
            ecn: view.ecn,
            enqueued: Instant::ZERO,
        };
        self.lane.advance(now, &mut self.books);
        self.books.log.put(self.lane.now(), &Record::Arrived(packet));
        self.books.arrivals += 1;
        self.lane.arrive(now, packet, &mut self.books);
    }

    /// Writes what has reached the far end.
    fn hand_over(&mut self, now: Instant) {
        while let Some((at, handle)) = self.lane.depart(now) {
            if at > self.end {
                self.books.frames.remove(handle);
                continue;
            }
            let length = self.books.frames.meta(handle).length;
            self.lane.count(at, u64::from(length));
            self.books.lateness.record(now.since(at).0);
            if !self.listeners.is_empty() {
                let bytes = self.books.frames.bytes(handle);
                if self.listeners.iter().any(|listener| listener.keeps(bytes)) {
                    self.books.frames.remove(handle);
                    continue;
                }
            }
            if !self.offload {
                self.write(now, handle);
                continue;
            }
            if !self.joined.take(handle, self.books.frames.bytes(handle)) {
                self.write_joined(now);
                if !self.joined.take(handle, self.books.frames.bytes(handle)) {
                    self.write(now, handle);
                }
            }
        }
        self.write_joined(now);
        self.books.send_log(LOG_BUFFER);
    }

    fn write_joined(&mut self, now: Instant) {
        match *self.joined.handles() {
            [] => return,
            [handle] => self.write(now, handle),
            _ => {
                let mut joined = std::mem::take(&mut self.joined);
                let from = joined.head_length();
                let mut parts = [IoSlice::new(&[]); offload::MOST + 2];
                let count = joined.handles().len();
                for (part, handle) in parts[2..].iter_mut().zip(joined.handles()) {
                    *part = IoSlice::new(&self.books.frames.bytes(*handle)[from..]);
                }
                let (header, head) = joined.finish();
                parts[0] = IoSlice::new(&header);
                parts[1] = IoSlice::new(head);
                let outcome = nix::sys::uio::writev(&self.output.queues[0], &parts[..count + 2]);
                for handle in joined.handles() {
                    if let Err(error) = outcome {
                        self.books.refused(now, *handle, error);
                    }
                    self.books.frames.remove(*handle);
                }
                self.joined = joined;
            }
        }
        self.joined.clear();
    }

    fn write(&mut self, now: Instant, handle: u32) {
        let bytes = self.books.frames.bytes(handle);
        let header = Virtio::write(self.books.frames.meta(handle).partial, bytes);
        let parts = [IoSlice::new(&header), IoSlice::new(bytes)];
        if let Err(error) = nix::sys::uio::writev(&self.output.queues[0], &parts) {
            self.books.refused(now, handle, error);
        }
        self.books.frames.remove(handle);
    }

    fn publish(&self) {
        let c = &self.lane.port().counters;
        let live = &self.books.live;
        for (to, value) in [
            (&live.offered, c.offered),
            (&live.bytes, c.bytes),
            (&live.arrived, c.arrived),
            (&live.dropped, c.overflowed + c.chosen),
            (&live.lost, c.lost),
            (&live.refused, self.books.refused),
            (&live.waiting, self.lane.waiting().0),
        ] {
            to.store(value, Ordering::Relaxed);
        }
    }

    fn finish(mut self) -> Finished {
        let now = self.clock.now().min(self.end);
        self.lane.advance(now, &mut self.books);
        self.books.log.put(self.lane.now(), &Record::Stopped);
        self.books.send_log(0);
        self.publish();
        Finished {
            stages: self.lane.port().stages(self.books.link, now.since(self.measured_from)),
            early: self.early,
            oversize: self.oversize,
            held: self.books.frames.held() as u64,
            memory: self.books.frames.memory() as u64,
            lateness: self.books.lateness,
            notes_lost: self.books.outbox.finish(),
        }
    }
}
