//! Every key of a scenario file: form, default, meaning. The parser reads by these tables and the
//! reference in `docs/generated/scenario.md` is printed from them.

use settings::form::{FLAG, bytes, choice, count, duration, number, rate};
use settings::{Form, Key};

use crate::family::Family;

const fn key(name: &'static str, form: Form, default: &'static str, about: &'static str) -> Key {
    Key { name, form, default, about }
}

const CONGESTION: Form = Form::Other(Family::Congestion.noun());
const WINDOW: Form = Form::Other(Family::Window.noun());
const QUEUE: Form = Form::Other(Family::Queue.noun());
const GATE: Form = Form::Other(Family::Gate.noun());
const MEDIUM: Form = Form::Other(Family::Medium.noun());
/// Bands of priority; no discipline here distinguishes as many as 8.
const CLASS: Form = count("0", "7");

pub(crate) const RATE_RANGE: (&str, &str) = ("0 bit/s", "1000 Gbit/s");
pub(crate) const INTERVAL_RANGE: (&str, &str) = ("10 us", "60 min");
pub(crate) const SIZE_RANGE: (&str, &str) = ("1 B", "100 GB");
pub(crate) const THINK_RANGE: (&str, &str) = ("0 s", "60 min");

pub(crate) const ROOT: &[Key] = &[
    key("name", Form::Text, "scenario", "the name of the scenario"),
    key("about", Form::Text, "", "one or two sentences"),
    key("duration", duration("1 ms", "1440 min"), "60 s", "how long it runs"),
    key(
        "warmup",
        duration("0 s", "1440 min"),
        "0 s",
        "statistics begin here, series at 0; shorter than the duration",
    ),
    key(
        "seed",
        count("0", "9007199254740992"),
        "1",
        "random seed: the same file and seed give the same run",
    ),
    key("bin", duration("1 ms", "60 min"), "100 ms", "length of a bin of the series"),
    key("node", Form::Other("[[node]]"), "(`client` and `server`)", "hosts and routers"),
    key(
        "link",
        Form::Other("[link.NAME] or [[link]]"),
        "",
        "one direction of a connection between two nodes each",
    ),
    key(
        "device",
        Form::Other("[device] or [[device]]"),
        "",
        "what stands above the radio on a sending phone",
    ),
    key("router", Form::Other("[router]"), "", "a router between the client and its radio link"),
    key("flow", Form::Other("[[flow]]"), "", "transfers"),
    key("probe", Form::Other("[[probe]]"), "", "measuring traffic"),
    key("change", Form::Other("[[change]]"), "", "what changes in mid-run"),
    key(
        "lab",
        Form::Other("[lab]"),
        "",
        "how `unbloat lab` runs it; the simulator does not look here",
    ),
    key("sweep", Form::Other("[sweep]"), "", "one run for every combination of the values given"),
    key("expect", Form::Other("[[expect]]"), "", "bounds on the results"),
    key("traces", Form::Other("[traces]"), "", "short names of trace files: `name = \"path\"`"),
    key(
        "claim",
        Form::Other("[claim]"),
        "",
        "whose claim this scenario reproduces; read by `unbloat reproduce`",
    ),
    key(
        "figure",
        Form::Other("[[figure]]"),
        "",
        "a figure of the claim and its bounds; read by `unbloat reproduce`",
    ),
];

pub(crate) const NODE: &[Key] = &[
    key("name", Form::Name, "", "required"),
    key(
        "window",
        WINDOW,
        "",
        "a law on the window field of ACKs that this node forwards or receives; `false`: none",
    ),
];

pub(crate) const LINK: &[Key] = &[
    key("name", Form::Name, "", "in [[link]], required; in [link.NAME] the name stands above"),
    key(
        "from",
        Form::Name,
        "",
        "the sending node; `client` for up, `server` for down, else required",
    ),
    key(
        "to",
        Form::Name,
        "",
        "the receiving node; `server` for up, `client` for down, else required",
    ),
    key(
        "rate",
        Form::Other("rate, or { profile, unit, slot }"),
        "",
        "a constant rate, or rates by turns. One of rate, trace, model and medium is required",
    ),
    key(
        "trace",
        Form::Text,
        "",
        "a trace by its name: mahimahi's delivery opportunities or rate over time",
    ),
    key("model", MEDIUM, "", "another word for medium"),
    key("medium", MEDIUM, "", "what decides when a packet leaves"),
    key("delay", duration("0 s", "60 min"), "", "propagation, one way; required"),
    key(
        "layers",
        Form::Other("list of layers"),
        "",
        "what happens on the way, in this order; then the layers that stand under their own name (`loss = 0.01`, \
         `loss = { rate = 0.01 }`, `loss = true`), in the order of the table below",
    ),
    key("queue", QUEUE, "droptail", "the queue in front of it; unused where a device feeds it"),
    key(
        "queue_per",
        choice(&["link", "user"]),
        "link",
        "one queue for all, or one for each user, served in turn by bytes",
    ),
];

pub(crate) const DEVICE: &[Key] = &[
    key("node", Form::Name, "client", "where it is"),
    key(
        "link",
        Form::Name,
        "",
        "the outgoing link that it feeds; the node's only one where not given",
    ),
    key("qdisc", QUEUE, "droptail", "the operating system's queue"),
    key("gate", GATE, "none", "what may go from there into the firmware buffer"),
    key(
        "firmware",
        Form::Other("[device.firmware]"),
        "",
        "the modem's buffer; takes the place of the link's queue",
    ),
    key(
        "window",
        WINDOW,
        "",
        "a law on the window field of incoming ACKs: the sending side limits its own uploads; `false`: none",
    ),
];

pub(crate) const FIRMWARE: &[Key] = &[
    // QCUT section 4: occupancy reached 300 KB.
    key(
        "buffer",
        bytes("1 B", "1 GB"),
        "300 KB",
        "its size; the queue above stops when it is full",
    ),
    // netif_stop_queue and netif_wake_queue at two marks, as drivers do.
    key(
        "wake",
        bytes("0 B", "1 GB"),
        "0 B",
        "bytes that are free again when the driver wakes the queue that it stopped; 0: as soon as a packet fits",
    ),
    key(
        "report_every",
        duration("10 us", "60 s"),
        "5 ms",
        "interval of its reports (QCUT section 6)",
    ),
    key(
        "report_delay",
        duration("0 s", "60 s"),
        "100 ms",
        "their mean age when the kernel reads them (QCUT section 6)",
    ),
    // QCUT gives a mean of "around 100 ms, due to various overheads" and not how it comes about.
    key(
        "report_batch",
        duration("0 s", "60 s"),
        "0 s",
        "reports of this span reach the kernel together, at most twice `report_delay`; 0: each alone",
    ),
    // 36.321 table 6.1.3.1-1 has 64 levels; which number the kernel takes for one QCUT does not say.
    key(
        "level",
        choice(&["upper", "middle"]),
        "upper",
        "what the kernel takes a report's level for: the upper edge of its interval, or its middle",
    ),
    // QCUT section 6.3 asks the modem for its time and corrects the stamps; what is left is not stated.
    key(
        "clock_ahead",
        duration("0 s", "60 s"),
        "0 s",
        "the modem's clock is so far ahead of the host's: its reports are older than they say",
    ),
    key(
        "clock_behind",
        duration("0 s", "60 s"),
        "0 s",
        "the modem's clock is so far behind the host's: its reports are younger than they say",
    ),
];

pub(crate) const ROUTER: &[Key] = &[
    key("window", WINDOW, "", "a law on the window field of forwarded ACKs; `false`: none"),
    key("rate", rate("1 bit/s", "1000 Gbit/s"), "1 Gbit/s", "between client and router, both ways"),
    key("delay", duration("0 s", "60 min"), "1 ms", "between client and router, one way"),
    key("queue", QUEUE, "droptail", "at both ends of that path segment"),
];

pub(crate) const FLOW: &[Key] = &[
    key("name", Form::Name, "(flow0, flow1, …)", "in the results; copies add -0, -1, …"),
    key(
        "from",
        Form::Name,
        "",
        "the node that sends the data: `client` makes an upload, `server` a download; required",
    ),
    key("to", Form::Name, "", "the node that receives it; may be left out between two hosts"),
    key(
        "opens",
        choice(&["sender", "receiver"]),
        "",
        "which end opens the connection: the receiver of data that comes from a node called `server…`, else the sender",
    ),
    key("start", duration("0 s", "1440 min"), "0 s", ""),
    key("stop", duration("0 s", "1440 min"), "", "when the application stops; after the start"),
    key("count", count("1", "10000"), "1", "copies"),
    key(
        "stagger",
        duration("0 s", "60 min"),
        "0 s",
        "from the start of one copy to the start of the next",
    ),
    key("congestion", CONGESTION, "cubic", "the sender's congestion control"),
    key(
        "app",
        Form::Other("name, or { kind, … }"),
        "bulk",
        "what makes the traffic: see applications",
    ),
    key(
        "sender",
        Form::Other("[flow.sender]"),
        "",
        "the keys below; they may also stand in [[flow]] itself",
    ),
    key("receiver", Form::Other("[flow.receiver]"), "", "the receiving end"),
];

pub(crate) const SENDER: &[Key] = &[
    key("initial_window", count("1", "1000"), "10", "segments before the first ACK (RFC 6928)"),
    key(
        "mss",
        bytes("64 B", "65000 B"),
        "1448 B",
        "payload of a full segment; 1460 B where timestamps are off",
    ),
    key(
        "buffer",
        bytes("2 KB", "1 GiB"),
        "4 MiB",
        "unacknowledged and unsent data that the socket takes (Linux `tcp_wmem` maximum)",
    ),
    key(
        "waits_for_space",
        FLAG,
        "false",
        "an application that found the buffer full writes again when a third of it is free (Linux `sk_stream_is_writeable`), and not each byte that is acknowledged",
    ),
    // Linux' tcp_limit_output_bytes when QCUT was measured (its table of TSQ sizes: 128 KB by
    // default).
    key(
        "tsq",
        Form::Other("bytes, or false"),
        "128 KiB",
        "TCP small queues: bytes of a flow that may wait in the host's own queue (QCUT's phones; Linux today: a millisecond's worth)",
    ),
    key(
        "pacing",
        FLAG,
        "false",
        "paced although the congestion control does not ask for it (`fq`)",
    ),
    key("sack", FLAG, "true", "RFC 2018"),
    key("timestamps", FLAG, "true", "RFC 7323"),
    key("ecn", FLAG, "false", "RFC 3168; Linux does not ask for it by itself"),
    key("class", CLASS, "1", "priority band of the data, 0 the most urgent"),
    key(
        "slow_start_after_idle",
        FLAG,
        "true",
        "after idleness longer than an RTO start again from the initial window",
    ),
];

pub(crate) const RECEIVER: &[Key] = &[
    key("window", WINDOW, "autotune", "the law of its receive window"),
    key(
        "read",
        Form::Other(
            "\"at-once\", { profile, unit, slot, tick }, or { work_per_kb, cpu, background }",
        ),
        "at-once",
        "how the application drains the buffer",
    ),
    // AFC's slides: "open window" of one segment, then its ACK advertises the rest; Linux:
    // tcp_cleanup_rbuf.
    key(
        "window_update",
        choice(&["linux", "segment"]),
        "linux",
        "when reading frees buffer: in bytes, advertised when the window has doubled; or, as in AFC's simulations, in whole segments, the first one after a zero window advertised at once and alone",
    ),
    key(
        "ack_every",
        count("1", "100"),
        "2",
        "an ACK at the latest after so many segments (RFC 9293)",
    ),
    key(
        "ack_delay",
        duration("0 s", "500 ms"),
        "40 ms",
        "… and after so much time (Linux; 500 ms at most: RFC 9293)",
    ),
    key("ack_class", CLASS, "1", "priority band of its ACKs"),
];

pub(crate) const LAB: &[Key] = &[
    key(
        "offload",
        // A full frame at a time is cheap enough up to here, and shows a capture what was on the
        // wire.
        choice(&["auto", "on", "off"]),
        "auto",
        "segmentation offload of the TUN devices; auto: where a link is faster than 200 Mbit/s",
    ),
    key(
        "bulk",
        choice(&["own", "iperf3"]),
        "own",
        "which program makes bulk traffic: the lab's own sender, or iperf3",
    ),
    key(
        "capture",
        choice(&["ends", "all", "none"]),
        "ends",
        "where packets are captured: where flows and probes end, at every node, nowhere",
    ),
    key(
        "gate",
        choice(&["emulator", "agent"]),
        "emulator",
        "which program is the gate of a device: the emulator, or unbloat-agent on the phone's own kernel, by the reports of the emulated modem (`qcut_d` only)",
    ),
];

/// A profile of rates, for links and readers and senders.
pub(crate) const PROFILE: &[Key] = &[
    key(
        "profile",
        Form::Other("list of numbers, or of rates"),
        "",
        "one rate per slot, repeated; required",
    ),
    key(
        "unit",
        choice(&["bit/s", "kbit/s", "Mbit/s", "Gbit/s"]),
        "",
        "of plain numbers; required with them",
    ),
    key("slot", duration("1 ms", "60 min"), "", "how long each rate lasts; required"),
];

pub(crate) const TICK: &[Key] = &[key(
    "tick",
    duration("1 ms", "60 s"),
    "100 ms",
    "how often the application reads; the slot at most",
)];

/// A reader that its processor limits.
pub(crate) const PROCESSOR: &[Key] = &[
    key(
        "work_per_kb",
        // Up to a hundred bytes per millisecond: slower is no reader of a network.
        duration("1 ns", "10 ms"),
        "",
        "processor time for each 1,000 bytes that the application reads; required",
    ),
    key(
        "cpu",
        // cgroup v2 has no quota below 1 ms, of a period of 100 ms.
        number("0.01", "1"),
        "1",
        "share of one processor that its group of processes has: a quota in each period of 100 ms, as `cpu.max` of cgroup v2",
    ),
    key(
        "background",
        count("0", "100"),
        "0",
        "busy processes of the same group, which share its quota equally with the reader",
    ),
];

pub(crate) const FILE: &[Key] = &[
    key("bytes", bytes("1 B", "1000 GB"), "", "its size; required"),
    key(
        "every",
        duration("1 ms", "60 min"),
        "",
        "start to start, where it is sent again and again",
    ),
];

pub(crate) const REQUESTS: &[Key] = &[
    key("request", bytes("1 B", "1 GB"), "500 B", "bytes of a request"),
    key(
        "response",
        Form::Other("bytes, or list of bytes"),
        "10 KB",
        "answered; a list is gone through again and again",
    ),
    key(
        "think",
        Form::Other("duration, or list of durations"),
        "100 ms",
        "pause between an answer and the next request; a list is gone through again and again",
    ),
];

pub(crate) const WEB: &[Key] = &[
    key("html", bytes("1 B", "1 GB"), "60 KB", "the document"),
    key(
        "objects",
        Form::Other("list of bytes, or { count, bytes }"),
        "{ count = 40, bytes = \"25 KB\" }",
        "the objects (a page of about 1 MB: an example, no measured one)",
    ),
    key(
        "depth",
        count("1", "100"),
        "3",
        "layers of the object tree: a layer is requested when the one before has arrived",
    ),
    key("connections", count("1", "100"), "6", "at a time (browsers with HTTP/1.1)"),
    key("request", bytes("1 B", "1 MB"), "500 B", "bytes of each request"),
    key(
        "compute",
        duration("0 s", "60 s"),
        "0 s",
        "time that the browser computes for a page, in equal parts after the document and each layer",
    ),
    key("every", duration("1 ms", "60 min"), "10 s", "page start to page start"),
];

pub(crate) const OBJECTS: &[Key] = &[
    key("count", count("1", "1000"), "40", "how many"),
    key("bytes", bytes("1 B", "1 GB"), "25 KB", "size of each"),
];

pub(crate) const VIDEO: &[Key] = &[
    // The rates that adaptive video is usually studied with.
    key(
        "ladder",
        Form::Other("list of rates"),
        "300 kbit/s, 750 kbit/s, 1200 kbit/s, 1850 kbit/s, 2850 kbit/s, 4300 kbit/s",
        "rates of the ladder, ascending",
    ),
    key("segment", duration("100 ms", "60 s"), "4 s", "play time of a segment"),
    key(
        "start_buffer",
        duration("0 s", "10 min"),
        "4 s",
        "play time buffered before playing starts, and after a stall",
    ),
    key(
        "max_buffer",
        duration("100 ms", "60 min"),
        "60 s",
        "play time buffered at most; a segment at least",
    ),
    key("safety", number("0.01", "10"), "0.8", "share of the measured throughput that is used"),
];

pub(crate) const VOIP: &[Key] = &[
    key("every", duration("1 ms", "1 s"), "20 ms", "between packets (G.711 in RTP)"),
    key("bytes", bytes("29 B", "1500 B"), "200 B", "of a packet on the IP layer (160 of voice)"),
    key(
        "jitter_buffer",
        Form::Other("`adaptive`, or duration"),
        "adaptive",
        "when a packet is played: as the delays ask for, or this long after the smallest delay; a later one is lost to the listener",
    ),
    key(
        "jitter_min",
        duration("0 s", "10 s"),
        "20 ms",
        "the least wait of an adaptive buffer after the mean delay (a packet, the least of WebRTC's)",
    ),
];

pub(crate) const PROBE: &[Key] = &[
    key("name", Form::Name, "(probe0, probe1, …)", "in the results"),
    key(
        "kind",
        choice(&["ping", "isochronous"]),
        "ping",
        "ICMP echo, there and back; or UDP, one way",
    ),
    key("from", Form::Name, "client", "the node that sends the probes"),
    key("to", Form::Name, "server", "the node that answers"),
    key("start", duration("0 s", "1440 min"), "0 s", ""),
    key(
        "every",
        Form::Other("duration, or list of durations"),
        "100 ms",
        "between packets; a list is gone through again and again",
    ),
    key("bytes", bytes("28 B", "1500 B"), "84 B", "of a packet on the IP layer (ping's default)"),
    key("class", CLASS, "1", "priority band"),
    key(
        "ttl",
        count("1", "255"),
        "",
        "of a ping: the node so many hops away answers that it has expired (ICMP time exceeded, as for traceroute); without, only `to` answers",
    ),
];

pub(crate) const CHANGE: &[Key] = &[key("at", duration("0 s", "1440 min"), "", "when; required")];

pub(crate) const SWEEP: &[Key] = &[key(
    "seeds",
    count("1", "1000"),
    "1",
    "so many runs of each combination, with seed, seed + 1, …",
)];

pub(crate) const EXPECT: &[Key] = &[
    key(
        "run",
        Form::Other("{ LABEL = value, … }"),
        "(every run)",
        "the runs of the sweep that it speaks of",
    ),
    key(
        "flow",
        Form::Name,
        "(every flow)",
        "the flow that it speaks of; all copies where it has some",
    ),
    key("probe", Form::Name, "(every probe)", "the probe that it speaks of"),
    key("link", Form::Name, "(every link)", "the link that it speaks of"),
];

/// The applications with their keys; `kind` names one.
pub(crate) const APPS: &[(&str, &str, &[Key])] = &[
    ("bulk", "as much as goes", &[]),
    ("file", "a file, once or again and again", FILE),
    ("web", "a page: a document, then its objects over several connections", WEB),
    (
        "abr-video",
        "adaptive video: segments at the best rate that the measured throughput carries",
        VIDEO,
    ),
    ("voip", "voice over UDP, both ways, scored with the E-model (ITU-T G.107)", VOIP),
    ("requests", "requests one after another on one connection", REQUESTS),
    ("rate-profile", "data made at given rates: an application-limited sender", PROFILE),
];

/// Every section in the order of the reference: heading, text above its table, keys.
pub(crate) const SECTIONS: &[(&str, &str, &[Key])] = &[
    ("Top level", "", ROOT),
    ("[[node]]", "Where there is none, there are `client` and `server`.", NODE),
    ("[link.NAME] or [[link]]", "`[link.up]` and `[link.down]` connect client and server.", LINK),
    (
        "[device]",
        "qdisc → gate → firmware buffer → air, in place of the queue of one outgoing link.",
        DEVICE,
    ),
    ("[device.firmware]", "", FIRMWARE),
    (
        "[router]",
        "Puts a node `router` between client and radio link: up begins and down ends there. Only where no nodes are named.",
        ROUTER,
    ),
    ("[[flow]]", "", FLOW),
    ("[flow.sender]", "", SENDER),
    ("[flow.receiver]", "", RECEIVER),
    (
        "Profiles",
        "Rates by turns, for the `rate` of a link, the `read` of a receiver, the application `rate-profile`.",
        PROFILE,
    ),
    ("read", "A profile, and:", TICK),
    ("read, limited by a processor", "In place of a profile:", PROCESSOR),
    ("[[probe]]", "", PROBE),
    ("[[change]]", "", CHANGE),
    ("[lab]", "How `unbloat lab` runs the scenario on the kernel's own TCP.", LAB),
    ("[sweep]", "", SWEEP),
    ("[[expect]]", "", EXPECT),
];

#[cfg(test)]
mod tests {
    use super::*;
    use settings::quantity::constant;

    #[test]
    fn every_default_can_be_read_and_lies_in_its_range() {
        let apps = APPS.iter().map(|(_, _, keys)| *keys);
        for key in SECTIONS.iter().map(|(_, _, keys)| *keys).chain(apps).chain([OBJECTS]).flatten()
        {
            let Form::Plain(unit, range) = key.form else { continue };
            let ends = range.map(|(min, max)| {
                let end = |text| constant(unit, text).and_then(|v| v.magnitude());
                (end(min).expect(key.name), end(max).expect(key.name))
            });
            if key.default.is_empty() {
                continue;
            }
            let default =
                constant(unit, key.default).unwrap_or_else(|| panic!("default of {}", key.name));
            if let (Some(x), Some((min, max))) = (default.magnitude(), ends) {
                assert!(min <= x && x <= max, "default of {}", key.name);
            }
        }
    }
}
