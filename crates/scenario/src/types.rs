//! A scenario after parsing: every name resolved, every value in its unit, every default filled in.
//!
//! Times count from the start of the run. Nodes, links and flows are named by their index here.

use std::sync::Arc;

pub use algo::port::Firmware;
use algo::{Capacity, Settings, aqm, cc, gate, link, rwnd};
use units::{Bytes, Duration, Instant, Rate};

/// One entry of an algorithm family with its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Algorithm {
    /// Index into the family's `TABLE`.
    pub index: usize,
    /// Values of its parameters, in their order.
    pub settings: Settings,
}

impl Algorithm {
    /// Builds the congestion control that this names.
    pub fn congestion(&self, setup: &cc::Setup) -> cc::Cc {
        (cc::TABLE[self.index].build)(&self.settings, setup)
    }
    /// Builds the window law that this names.
    pub fn window(&self, setup: &rwnd::Setup) -> rwnd::Rwnd {
        (rwnd::TABLE[self.index].build)(&self.settings, setup)
    }
    /// Builds the queue discipline that this names.
    pub fn queue(&self, setup: &aqm::Setup) -> aqm::Aqm {
        (aqm::TABLE[self.index].build)(&self.settings, setup)
    }
    /// Builds the gate that this names.
    pub fn gate(&self, setup: &gate::Setup) -> gate::AnyGate {
        (gate::TABLE[self.index].build)(&self.settings, setup)
    }
    /// Builds the medium that this names.
    pub fn medium(&self, setup: &link::Setup) -> link::AnyMedium {
        (link::TABLE[self.index].build)(&self.settings, setup)
    }
    /// Builds the link layer that this names.
    pub fn layer(&self, setup: &link::layer::Setup) -> link::layer::Layer {
        (link::layer::TABLE[self.index].build)(&self.settings, setup)
    }
}

/// A run, ready to go.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name of the scenario.
    pub name: String,
    /// One or two sentences.
    pub about: String,
    /// How long it runs.
    pub duration: Duration,
    /// Statistics of flows, probes and queues begin here; series begin at 0.
    pub warmup: Duration,
    /// Random seed of the run.
    pub seed: u64,
    /// Length of a bin of the series.
    pub bin: Duration,
    /// Hosts and routers. In the short form 0 is `client` and 1 is `server`.
    pub nodes: Vec<Node>,
    /// Directed links. In the short form 0 is `up` (client → server) and 1 is `down`.
    pub links: Vec<Link>,
    /// Transfers, in the order of the file.
    pub flows: Vec<Flow>,
    /// Traffic that only measures.
    pub probes: Vec<Probe>,
    /// What changes in mid-run, in order of time.
    pub changes: Vec<Change>,
    /// How it is run on the kernel's own TCP.
    pub lab: Lab,
}

/// What only a run on the real clock needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lab {
    /// Whether the TUN devices take segments larger than the MTU.
    pub offload: Offload,
    /// Which program makes bulk traffic.
    pub bulk: Bulk,
    /// Where packets are captured.
    pub capture: Capture,
    /// Which program is the gate of a device.
    pub gate: GateBy,
}

/// When the TUN devices use segmentation offload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Offload {
    /// Where a link is faster than 200 Mbit/s.
    #[default]
    Auto,
    /// Offloads are on, on every device.
    On,
    /// Offloads are off, on every device.
    Off,
}

/// A maker of bulk traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Bulk {
    /// The lab's own sender.
    #[default]
    Own,
    /// The program iperf3.
    Iperf3,
}

/// Which program is the gate of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GateBy {
    /// The emulator, as the simulator.
    #[default]
    Emulator,
    /// The program unbloat-agent, on the node.
    Agent,
}

/// The nodes at which packets are captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Capture {
    /// Those where flows and probes begin and end.
    #[default]
    Ends,
    /// All nodes, or all packets of the link.
    All,
    /// Nothing is captured.
    None,
}

/// A host or a router.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name in the file.
    pub name: String,
    /// The device stack above its outgoing radio link, where it has one.
    pub device: Option<Device>,
    /// A window law applied to the window field of ACKs that this node forwards or receives: the
    /// law in a router, or at the sending side. `None`: ACKs are left alone.
    pub window: Option<Algorithm>,
}

/// What stands above the radio on a phone (QCUT section 4): qdisc → gate → firmware buffer → air.
/// It takes the place of the queue of the node's outgoing link.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Index of the outgoing link that it feeds.
    pub link: usize,
    /// The operating system's queue.
    pub qdisc: Algorithm,
    /// What may go from there into the firmware buffer.
    pub gate: Algorithm,
    /// The modem's buffer below the gate.
    pub firmware: Firmware,
}

/// Which packets share a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueuePer {
    /// All nodes, or all packets of the link.
    #[default]
    Link,
    /// Those of one user: a queue each, served in turn by bytes, as base stations do.
    User,
}

/// The trace that a link replays, already read.
#[derive(Clone, Debug, PartialEq)]
pub enum Trace {
    /// mahimahi's delivery opportunities, in milliseconds.
    Opportunities(Arc<[u64]>),
    /// Steps of the rate over time.
    Rates(Arc<[(Instant, Rate)]>),
}

/// One direction of a connection between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name in the file.
    pub name: String,
    /// Index of the sending node.
    pub from: usize,
    /// Index of the receiving node.
    pub to: usize,
    /// What decides when a packet leaves.
    pub medium: Algorithm,
    /// The trace that the medium replays, for `trace` and `rates`.
    pub trace: Option<Trace>,
    /// Propagation delay, one way.
    pub delay: Duration,
    /// What happens on the way, in order.
    pub layers: Vec<Algorithm>,
    /// The queue in front of it; unused where a device feeds the link.
    pub queue: Algorithm,
    /// Which packets share that queue.
    pub queue_per: QueuePer,
}

impl Link {
    /// The link itself, idle.
    pub fn build(&self) -> link::Link {
        let mut setup = link::Setup::default();
        match &self.trace {
            Some(Trace::Opportunities(ms)) => setup.opportunities = ms.to_vec(),
            Some(Trace::Rates(steps)) => setup.rates = steps.to_vec(),
            None => {}
        }
        let layer = link::layer::Setup { delay: self.delay };
        let layers = self.layers.iter().map(|l| l.layer(&layer)).collect();
        link::Link::new(self.medium.medium(&setup), self.delay, layers)
    }
}

/// A transfer: one connection, or (web, video) a group of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name in the results.
    pub name: String,
    /// Index of the node that sends the data.
    pub from: usize,
    /// Index of the node that receives it.
    pub to: usize,
    /// Whether the data's sender opens the connection (uploads); else its receiver does
    /// (downloads).
    pub sender_opens: bool,
    /// When it starts, from the start of the run.
    pub start: Duration,
    /// When the application stops; `None`: never.
    pub stop: Option<Duration>,
    /// Settings of the data's sender.
    pub sender: Sender,
    /// Settings of the data's receiver.
    pub receiver: Receiver,
    /// Application that makes the traffic.
    pub app: App,
}

/// Settings of the sending end.
#[derive(Clone, Debug, PartialEq)]
pub struct Sender {
    /// Congestion control of its socket.
    pub congestion: Algorithm,
    /// Window before the first ACK, in segments (10: RFC 6928).
    pub initial_window: u64,
    /// Payload of a full segment (1,448 bytes with timestamps on Ethernet).
    pub mss: Bytes,
    /// Most unacknowledged and unsent data that the socket takes (`tcp_wmem` maximum, 4 MB here);
    /// the application waits for free space.
    pub buffer: Bytes,
    /// A writer that found the buffer full waits until a third of it is free, as on Linux.
    pub waits_for_space: bool,
    /// TCP small queues: bytes of this flow that may wait in the host's own queue. `None`: no such
    /// limit.
    pub tsq: Option<Bytes>,
    /// Paced although the congestion control does not ask for it (`fq`).
    pub pacing: bool,
    /// SACK is negotiated (RFC 2018). Without it recovery is NewReno's.
    pub sack: bool,
    /// Timestamps are negotiated (RFC 7323).
    pub timestamps: bool,
    /// ECN is negotiated (RFC 3168).
    pub ecn: bool,
    /// Priority band of its data, 0 the most urgent.
    pub class: u8,
    /// After idleness longer than an RTO, start again from the initial window (Linux
    /// `tcp_slow_start_after_idle`).
    pub slow_start_after_idle: bool,
}

/// Settings of the receiving end.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// Law of its receive window.
    pub window: Algorithm,
    /// How the application reads.
    pub read: Read,
    /// How the window that slow reading leaves is counted, and when it is advertised.
    pub window_update: WindowUpdate,
    /// An ACK at the latest after so much data, in segments (2: RFC 9293).
    pub ack_every: u64,
    /// … and after so much time (40 ms: Linux's minimum).
    pub ack_delay: Duration,
    /// Priority band of its ACKs.
    pub ack_class: u8,
}

/// How an application drains the receive buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    /// It reads at once.
    AtOnce,
    /// By a profile of rates, one per slot, repeated; it reads every `tick` what the rate allows.
    Profile {
        /// One rate per slot.
        rates: Vec<Rate>,
        /// How long each lasts.
        slot: Duration,
        /// How often the application reads.
        tick: Duration,
    },
    /// As fast as its processor allows: a group of processes has a share of one processor, and the
    /// reader shares that with busy ones.
    Processor {
        /// Processor time for each 1,000 bytes.
        work_per_kb: Duration,
        /// Share of one processor that the group has.
        cpu: f64,
        /// Busy processes of the group, beside the reader.
        background: u64,
    },
}

/// How a receiver counts the window that slow reading leaves, and when it advertises more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WindowUpdate {
    /// As Linux does: in bytes, with an ACK of its own when reading has at least doubled the
    /// window.
    #[default]
    Linux,
    /// As AFC's simulations did: in whole segments, so that it is zero as soon as none fits; the
    /// first segment that is free again is advertised at once, and alone; all else goes with the
    /// ACKs of data.
    Segment,
}

/// What an application sends or fetches.
#[derive(Clone, Debug, PartialEq)]
pub enum App {
    /// Data without end.
    Bulk,
    /// A file, again and again where `every` is given.
    File {
        /// Size of the file.
        bytes: Bytes,
        /// Start to start; a transfer that is not done by then is followed at once by the next.
        every: Option<Duration>,
    },
    /// Data made at given rates, one per slot, repeated: an application-limited sender.
    Rates {
        /// One rate per slot.
        rates: Vec<Rate>,
        /// How long each lasts.
        slot: Duration,
    },
    /// Requests one after another on one connection.
    Requests {
        /// Bytes of a request.
        request: Bytes,
        /// Bytes of each response, by turns.
        responses: Vec<Bytes>,
        /// Pauses between an answer and the next request, by turns.
        thinks: Vec<Duration>,
    },
    /// A web page: a document, then its objects over several connections, each layer known when the
    /// one before is there.
    Web(Page),
    /// Adaptive video: segments of fixed play time at the best rate that the measured throughput
    /// carries.
    Video {
        /// Rates of the ladder, ascending.
        ladder: Vec<Rate>,
        /// Play time of a segment.
        segment: Duration,
        /// Play time buffered before playing starts, and again after a stall.
        start_buffer: Duration,
        /// Largest play time buffered.
        max_buffer: Duration,
        /// Share of the measured throughput that is used.
        safety: f64,
    },
    /// Voice over UDP, both ways, scored with the E-model (ITU-T G.107).
    Voip {
        /// Interval between packets.
        every: Duration,
        /// IP bytes of a packet.
        bytes: Bytes,
        /// When the receiver plays a packet; later ones are lost to it.
        jitter_buffer: JitterBuffer,
    },
}

/// How long a receiver of voice waits before it plays a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JitterBuffer {
    /// As the delay of the packets asks for (Ramjee et al. 1994).
    Adaptive {
        /// After the mean delay, at least.
        least: Duration,
    },
    /// So long after the smallest delay that it saw.
    Fixed(Duration),
}

/// What a web page is made of.
#[derive(Clone, PartialEq, Debug)]
pub struct Page {
    /// Size of the document.
    pub html: Bytes,
    /// Sizes of the objects.
    pub objects: Vec<Bytes>,
    /// Layers of the object tree: objects of a layer are requested when the layer before has
    /// arrived.
    pub depth: u64,
    /// Connections at a time (6: browsers with HTTP/1.1).
    pub connections: u64,
    /// Bytes of a request.
    pub request: Bytes,
    /// Time that the browser computes, in equal parts after the document and after each layer.
    pub compute: Duration,
    /// Page start to page start; a page that is not done by then is followed at once by the next.
    pub every: Duration,
}

/// Traffic that only measures.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Its name in the results.
    pub name: String,
    /// Kind of packets.
    pub kind: ProbeKind,
    /// Index of the node that sends the probes.
    pub from: usize,
    /// Index of the node that answers or receives them.
    pub to: usize,
    /// When it starts, from the start of the run.
    pub start: Duration,
    /// Time between packets, one after another where a list is given (DRWA figure 5), repeated.
    pub every: Vec<Duration>,
    /// IP bytes of a packet.
    pub bytes: Bytes,
    /// Priority band, 0 the most urgent.
    pub class: u8,
    /// Hops after which a ping expires, and is answered by the node there; none: never.
    pub ttl: Option<u8>,
}

/// What a probe sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeKind {
    /// ICMP echo, there and back.
    Ping,
    /// UDP one way, the receiver's clock being the sender's.
    Isochronous,
}

/// Something that changes in mid-run.
#[derive(Clone, Debug)]
pub struct Change {
    /// When it changes, from the start of the run.
    pub at: Duration,
    /// What changes at that time.
    pub what: Vec<Changed>,
}

/// A part of the scenario with its new value.
#[derive(Clone, Debug)]
pub enum Changed {
    /// A link's medium, delay and layers; its queue keeps its packets.
    Link(usize, Link),
    /// The limit of a link's droptail queue, which keeps its packets.
    QueueLimit(usize, Capacity),
    /// The gate of a node's device.
    Gate(usize, Algorithm),
    /// The size of the firmware buffer of a node's device, which keeps its packets.
    FirmwareBuffer(usize, Bytes),
    /// The window law on a node's ACKs.
    NodeWindow(usize, Option<Algorithm>),
    /// A flow's congestion control: as the agent switches a live socket.
    Congestion(usize, Algorithm),
    /// A flow's window law.
    Window(usize, Algorithm),
}
