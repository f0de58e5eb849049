//! The thread of one direction: TUN device in, link direction, TUN device out.
//!
//! A loop: read packets (each with its own time of arrival), let the direction advance to now, hand
//! over what is due, sleep until the next due time or packet.
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
use crate::link_direction::{LinkDirection, Sink};
use crate::log::{self, Record};
use crate::offload::{self, Coalesced, HEADER, Virtio};
use crate::probe::{Listener, Prober};
use crate::report::{LossCause, Note, Outbox};
use crate::telemetry::Telemetry;
use crate::tun::Tun;

/// Packets read before what is due is looked at again: a batch costs less than the precision that
/// is promised.
const BATCH: usize = 32;
/// Largest packet that a TUN device hands out, with its virtio header.
const MAX_READ: usize = 65_536 + HEADER;
/// A log buffer is sent when it has so many bytes.
const LOG_BUFFER: usize = 1 << 16;
/// Longest sleep: counters are published at least that often.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// Counters of a running direction, which other threads read.
#[derive(Debug, Default)]
pub struct Live {
    /// Packets that arrived at the queue.
    pub offered: AtomicU64,
    /// Bytes handed over at the far end.
    pub bytes: AtomicU64,
    /// Packets handed over at the far end.
    pub arrived: AtomicU64,
    /// Dropped in the queue.
    pub dropped: AtomicU64,
    /// Lost on the link.
    pub lost: AtomicU64,
    /// Not taken by the far kernel.
    pub refused: AtomicU64,
    /// Bytes that wait before the link.
    pub waiting: AtomicU64,
}

/// The totals of a direction.
pub struct Finished {
    /// Totals of its stages.
    pub stages: Vec<StageRow>,
    /// Packets that came before the run's start, and were thrown away.
    pub early: u64,
    /// Packets longer than any slot.
    pub oversize: u64,
    /// Packets in queues and on the way at the end.
    pub stored: u64,
    /// Bytes of memory taken for packets.
    pub memory: u64,
    /// How late packets were handed over, ns.
    pub lateness: Histogram,
    /// Notes that were lost to a writer that was far behind.
    pub notes_lost: u64,
}

/// Everything a worker is made of.
pub struct Parts<'s> {
    /// The scenario of the run.
    pub scenario: &'s Scenario,
    /// Index of the link.
    pub link: usize,
    /// Where packets come from.
    pub input: Arc<Tun>,
    /// Where they go to.
    pub output: Arc<Tun>,
    /// Whether both take large segments.
    pub offload: bool,
    /// Clock of the run.
    pub clock: Clock,
    /// Readable when it is time to stop.
    pub stop: Arc<EventFd>,
    /// Notes for the writing thread.
    pub outbox: Outbox,
    /// Where reports of the modem go.
    pub telemetry: Option<Telemetry>,
    /// Pings for a gate that needs them.
    pub prober: Option<Prober>,
    /// Listeners of other directions, whose answers pass this one.
    pub listeners: Vec<Listener>,
    /// Counters that other threads read.
    pub live: Arc<Live>,
}

/// Why a worker stopped early.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A device went away.
    #[error("{device}: {error}")]
    Device {
        /// Name of the device.
        device: String,
        /// Error of the kernel.
        error: Errno,
    },
}

/// One direction with its devices, on a thread of its own.
pub struct Worker {
    direction: LinkDirection,
    recorder: Recorder,
    input: Arc<Tun>,
    output: Arc<Tun>,
    offload: bool,
    clock: Clock,
    end: Instant,
    stop: Arc<EventFd>,
    users: Users,
    prober: Option<Prober>,
    listeners: Vec<Listener>,
    coalesced: Coalesced,
    buffer: Vec<u8>,
    measured_from: Instant,
    early: u64,
    oversize: u64,
}

/// Records the decisions of the direction in the log, and frees packets that are gone.
struct Recorder {
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

impl Sink for Recorder {
    fn decided(&mut self, now: Instant, outcome: &Outcome) {
        let frames = &self.frames;
        if let Some(record) = log::record_of(outcome, |handle| frames.meta(handle).number) {
            self.log.put(now, &record);
            if let (Record::Reported { at, reported }, Some(telemetry)) =
                (record, &mut self.telemetry)
            {
                telemetry.send(self.zero_ns + at.0, reported);
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

impl Recorder {
    fn gone(&mut self, now: Instant, packet: &Packet, loss: Loss) {
        let view = view(self.frames.bytes(packet.handle));
        self.outbox.put(Note::Loss(now, self.link, LossCause::Decided(loss), view, packet.bytes));
        self.frames.remove(packet.handle);
    }

    fn refused(&mut self, now: Instant, handle: u32, error: Errno) {
        let meta = self.frames.meta(handle);
        self.log.put(now, &Record::Refused(meta.number, error as i32));
        let view = view(self.frames.bytes(handle));
        self.outbox.put(Note::Loss(
            now,
            self.link,
            LossCause::Undeliverable,
            view,
            u32::from(meta.length),
        ));
        self.refused += 1;
    }

    fn send_log(&mut self, min: usize) {
        if self.log.pending() > min {
            let bytes = self.log.swap(Vec::with_capacity(LOG_BUFFER + LOG_BUFFER / 4));
            self.outbox.put(Note::Log(self.link, bytes));
        }
    }
}

/// The user of a packet, by its addresses.
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
            // Unknown addresses are a user of their own.
            _ => u16::MAX,
        }
    }
}

impl Worker {
    /// A worker that has not started.
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
        let recorder = Recorder {
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
            direction: LinkDirection::new(scenario, link),
            recorder,
            input,
            output,
            offload,
            clock,
            end: Instant(scenario.duration.0),
            stop,
            users: Users::new(scenario),
            prober,
            listeners,
            coalesced: Coalesced::default(),
            buffer: vec![0; MAX_READ],
            measured_from: Instant(scenario.warmup.0),
            early: 0,
            oversize: 0,
        }
    }

    /// Works until reported to stop, or until a device goes away.
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
                Some(at) => at.since(now).min(MAX_SLEEP),
                None => MAX_SLEEP,
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
            self.direction.advance(now.min(self.end), &mut self.recorder);
            self.hand_over(now);
            self.publish();
            if now >= self.end && self.direction.next_due().is_none_or(|at| at > self.end) {
                // The scenario is over; later packets are not read.
                more = false;
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let probe = self
            .prober
            .as_ref()
            .filter(|_| self.direction.probe_every().is_some())
            .map(Prober::next);
        self.direction.next_due().into_iter().chain(probe).min()
    }

    /// Answers to the gate's probes, then those that are due.
    fn probe(&mut self, now: Instant) {
        let Some(mut prober) = self.prober.take() else { return };
        while let Some(rtt) = prober.next_round_trip(now) {
            self.direction.advance(now, &mut self.recorder);
            self.recorder.log.put(self.direction.now(), &Record::Probed(rtt));
            self.direction.probed(now, rtt, &mut self.recorder);
        }
        if self.direction.probe_every().is_none() {
            prober.pause(now);
        }
        while let Some(every) = self.direction.probe_every()
            && prober.next() <= now
        {
            let (at, request) = prober.next_request(every);
            self.arrive(at, &[&request], false);
        }
        self.prober = Some(prober);
    }

    fn device_error(&self, device: &str, error: Errno) -> WorkerError {
        WorkerError::Device { device: device.to_owned(), error }
    }

    /// Reads a batch; true: there may be more.
    fn read(&mut self, queue: BorrowedFd<'_>) -> Result<bool, WorkerError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut outcome = Ok(true);
        for _ in 0..BATCH {
            match nix::unistd::read(queue, &mut buffer) {
                Ok(length) if length > HEADER => self.on_read(&buffer[..length]),
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
    fn on_read(&mut self, read: &[u8]) {
        let now = self.clock.now();
        if now >= self.end {
            return;
        }
        let (header, packet) = read.split_at(HEADER);
        let mut virtio_header = [0; HEADER];
        virtio_header.copy_from_slice(header);
        let virtio = Virtio::read(&virtio_header);
        let was_segmented = virtio.segment_size.is_some_and(|size| {
            offload::segment(packet, size, |head, payload| self.arrive(now, &[head, payload], true))
        });
        if !was_segmented {
            self.arrive(now, &[packet], virtio.partial);
        }
    }

    fn arrive(&mut self, now: Instant, parts: &[&[u8]], partial: bool) {
        let view = view(parts[0]);
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let meta = Meta { number: self.recorder.arrivals, partial, length: 0 };
        let Some(handle) = self.recorder.frames.insert(meta, parts) else {
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
        self.direction.advance(now, &mut self.recorder);
        self.recorder.log.put(self.direction.now(), &Record::Arrived(packet));
        self.recorder.arrivals += 1;
        self.direction.arrive(now, packet, &mut self.recorder);
    }

    /// Writes what has reached the far end.
    fn hand_over(&mut self, now: Instant) {
        while let Some((at, handle)) = self.direction.depart(now) {
            if at > self.end {
                self.recorder.frames.remove(handle);
                continue;
            }
            let length = self.recorder.frames.meta(handle).length;
            self.direction.count(at, u64::from(length));
            self.recorder.lateness.record(now.since(at).0);
            if !self.listeners.is_empty() {
                let bytes = self.recorder.frames.bytes(handle);
                if self.listeners.iter().any(|listener| listener.intercepts(bytes)) {
                    self.recorder.frames.remove(handle);
                    continue;
                }
            }
            if !self.offload {
                self.write(now, handle);
                continue;
            }
            if !self.coalesced.coalesce(handle, self.recorder.frames.bytes(handle)) {
                self.write_coalesced(now);
                if !self.coalesced.coalesce(handle, self.recorder.frames.bytes(handle)) {
                    self.write(now, handle);
                }
            }
        }
        self.write_coalesced(now);
        self.recorder.send_log(LOG_BUFFER);
    }

    fn write_coalesced(&mut self, now: Instant) {
        match *self.coalesced.handles() {
            [] => return,
            [handle] => self.write(now, handle),
            _ => {
                let mut coalesced = std::mem::take(&mut self.coalesced);
                let from = coalesced.head_length();
                let mut parts = [IoSlice::new(&[]); offload::MAX_PACKETS + 2];
                let count = coalesced.handles().len();
                for (part, handle) in parts[2..].iter_mut().zip(coalesced.handles()) {
                    *part = IoSlice::new(&self.recorder.frames.bytes(*handle)[from..]);
                }
                let (header, head) = coalesced.finish();
                parts[0] = IoSlice::new(&header);
                parts[1] = IoSlice::new(head);
                let outcome = nix::sys::uio::writev(&self.output.queues[0], &parts[..count + 2]);
                for handle in coalesced.handles() {
                    if let Err(error) = outcome {
                        self.recorder.refused(now, *handle, error);
                    }
                    self.recorder.frames.remove(*handle);
                }
                self.coalesced = coalesced;
            }
        }
        self.coalesced.clear();
    }

    fn write(&mut self, now: Instant, handle: u32) {
        let bytes = self.recorder.frames.bytes(handle);
        let header = Virtio::write(self.recorder.frames.meta(handle).partial, bytes);
        let parts = [IoSlice::new(&header), IoSlice::new(bytes)];
        if let Err(error) = nix::sys::uio::writev(&self.output.queues[0], &parts) {
            self.recorder.refused(now, handle, error);
        }
        self.recorder.frames.remove(handle);
    }

    fn publish(&self) {
        let c = &self.direction.port().counters;
        let live = &self.recorder.live;
        for (to, value) in [
            (&live.offered, c.offered),
            (&live.bytes, c.bytes),
            (&live.arrived, c.arrived),
            (&live.dropped, c.overflowed + c.chosen),
            (&live.lost, c.lost),
            (&live.refused, self.recorder.refused),
            (&live.waiting, self.direction.waiting().0),
        ] {
            to.store(value, Ordering::Relaxed);
        }
    }

    fn finish(mut self) -> Finished {
        let now = self.clock.now().min(self.end);
        self.direction.advance(now, &mut self.recorder);
        self.recorder.log.put(self.direction.now(), &Record::Stopped);
        self.recorder.send_log(0);
        self.publish();
        Finished {
            stages: self.direction.port().stages(self.recorder.link, now.since(self.measured_from)),
            early: self.early,
            oversize: self.oversize,
            stored: self.recorder.frames.stored() as u64,
            memory: self.recorder.frames.memory() as u64,
            lateness: self.recorder.lateness,
            notes_lost: self.recorder.outbox.finish(),
        }
    }
}

#[cfg(test)]
mod tests;
