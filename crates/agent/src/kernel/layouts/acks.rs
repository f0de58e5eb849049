//! The structs of `bpf/acks.h`, `bpf/path.h` and `bpf/segment.h`, field by field.
#![allow(unsafe_code)]

use crate::kernel::layouts::{Drwa, DrwaLaw, DrwaSample, plain};

plain! {
    /// Addresses and ports of a flow in network byte order, IPv4 as ::ffff:a.b.c.d:
    /// `struct flow_key`.
    struct FlowKey {
        /// Address of this host, or of a host that sends through it.
        inside: [u32; 4],
        /// Address beyond the device.
        outside: [u32; 4],
        /// Port of the inner end.
        inside_port: u16,
        /// Port of the outer end.
        outside_port: u16,
        /// VLAN tags, twelve bits each.
        vlan: u32,
    }
    /// What the agent sets for ACK-window rewriting: `struct acks_config`.
    struct AcksConfig {
        /// The law of downloads.
        down: DrwaLaw,
        /// The law of uploads.
        up: DrwaLaw,
        /// CLOCK_MONOTONIC; after this everything passes.
        lease_until_ns: u64,
        /// Payload bytes of a download before its windows are rewritten.
        down_start_bytes: u64,
        /// Payload bytes of an upload before its windows are rewritten.
        up_start_bytes: u64,
        /// Silence after which a flow counts as idle and begins again.
        pause_ns: u64,
        /// Bytes before the network header.
        link_bytes: u32,
        /// Minimum window in segments.
        floor_segments: u32,
        /// Segments that every decision adds to the window.
        increment_segments: u32,
        /// Bit mask of controlled directions: 1 downloads, 2 uploads.
        directions: u32,
        /// Bit mask of directions whose windows pass unchanged for now; flows are still measured.
        lifted: u32,
        /// 1: `exempt` contains flows.
        exempting: u32,
        /// Counts leases; when it changes, the windows advertised in between are unknown.
        generation: u32,
        /// 1: this host's own downloads are left alone.
        forwarded_only: u32,
        /// 1: samples are copied to `trace`, for tests.
        tracing: u32,
        /// Padding, always zero.
        pad: u32,
    }
    /// The queue in the opposite direction: `struct opposite` of `bpf/path.h`.
    struct Opposite {
        /// Sum of that queue's samples in this round, µs.
        sum_us: u64,
        /// Number of samples in this round.
        count: u32,
        /// Mean of that queue in the last round, µs.
        mean_us: u32,
        /// Mean of that queue in the round before, µs.
        before_us: u32,
        /// What that queue adds to the window, µs of rate.
        added_us: u32,
        /// The flow's own queue in the last round, µs.
        own_us: u32,
        /// Padding, always zero.
        pad: u32,
        /// Rate, bytes per second.
        rate: u64,
        /// When the round began.
        begun_ns: u64,
        /// Byte count at the start of the round.
        begun_bytes: u64,
    }
    /// One direction of data of a flow: `struct direction`.
    struct Direction {
        /// State of the law of this direction.
        law: Drwa,
        /// Payload bytes of this direction so far.
        passed: u64,
        /// Payload bytes at the end of the last pause.
        started_at: u64,
        /// Time of the last payload.
        begun_ns: u64,
        /// Highest sequence number that came in.
        max_seq: u32,
        /// Right edge of the advertised window.
        edge: u32,
        /// The queue in the opposite direction.
        opposite: Opposite,
        /// Its place among the other flows: `struct member` of `bpf/fair.h`.
        member: [u64; 3],
        /// Target window, bytes; 0: none yet.
        target: u32,
        /// Window as the sender got to see it, bytes.
        advertised: u32,
        /// Number of segments whose window was rewritten.
        rewritten: u32,
        /// Whether `max_seq` and `edge` are known; the window scale; padding, always zero.
        flags: [u8; 4],
    }
    /// The clock of a far end: `struct far_clock` of `bpf/path.h`.
    struct FarClock {
        /// Time of the last new timestamp.
        last_ns: u64,
        /// Time of the first timestamp.
        begun_ns: u64,
        /// Arrival minus sending time, relative to the first packet.
        delay: i64,
        /// Lower bound of that delay without a queue.
        low: i64,
        /// Upper bound of that delay without a queue.
        high: i64,
        /// Value of the last timestamp.
        last: u32,
        /// Value of the first timestamp.
        begun: u32,
        /// Length of a clock tick; 0: unknown.
        tick_ns: u32,
        /// Bits. 1: the tick has been measured. 2: there is a lower bound.
        state: u32,
    }
    /// A round-trip measurement in flight: `struct probe` of `bpf/path.h`.
    struct Probe {
        /// Time at which the value left.
        sent_ns: u64,
        /// Timestamp or sequence number that has to come back.
        value: u32,
        /// 1: by timestamp, 2: by sequence number, 0: the slot is free.
        kind: u32,
    }
    /// One half of a path: `struct half` of `bpf/path.h`.
    struct Half {
        /// When the last segment from its far end came.
        received_ns: u64,
        /// Round-trip measurements in flight.
        probes: [Probe; 4],
        /// When the last measurement began.
        probed_ns: u64,
        /// Value of the last measurement.
        last_probed: u32,
        /// Last round trip, µs.
        rtt_us: u32,
        /// Minimum round trip, µs.
        rtt_min_us: u32,
        /// Certain queueing towards the device, µs.
        towards_us: u32,
        /// Certain queueing away from the device, µs.
        away_us: u32,
        /// The minimum round trip that the clock's lower bound was found with, µs.
        low_min_us: u32,
        /// The clock of its far end.
        clock: FarClock,
    }
    /// One TCP connection at the device: `struct flow`.
    struct Flow {
        /// Data towards the inner end.
        down: Direction,
        /// Data towards the outer end.
        up: Direction,
        /// The path beyond the device.
        outer: Half,
        /// The path on this side of the device.
        inner: Half,
        /// Time of the last segment.
        seen_ns: u64,
        /// Highest sequence number sent to outside.
        sent_out: u32,
        /// Highest sequence number sent to inside.
        sent_in: u32,
        /// Sequence number of the SYN from inside.
        first_out: u32,
        /// Sequence number of the SYN from outside.
        first_in: u32,
        /// Value of [`AcksConfig::generation`] at the last segment.
        generation: u32,
        /// Maximum segment size that the inner end announced.
        mss_out: u16,
        /// Maximum segment size that the outer end announced.
        mss_in: u16,
        /// Window Scale options plus one, and SYNs seen; each out and in.
        syns: [u8; 4],
        /// FINs seen out and in; ready; excluded.
        flags: [u8; 4],
        /// 1: one of its ends is on this host.
        local: u32,
        /// Padding, always zero.
        pad: u32,
    }
    /// Path state of a remote address: `struct place_path` of `bpf/path.h`.
    struct PlacePath {
        /// Minimum round trip beyond the device, µs.
        rtt_us: u64,
        /// When its queues were measured.
        at_ns: u64,
        /// Certain queueing towards the device, µs.
        towards_us: u32,
        /// Certain queueing away from the device, µs.
        away_us: u32,
    }
    /// Counters of ACK-window rewriting: `struct acks_counters`.
    struct AcksCounters {
        /// TCP segments that were parsed.
        segments: u64,
        /// Flows that were added to the map.
        flows: u64,
        /// Segments of flows whose window scale is unknown.
        unknown: u64,
        /// Segments of flows that are signed or of MPTCP.
        excluded: u64,
        /// Samples that the laws have taken.
        samples: u64,
        /// Rounds that ended with a decision.
        decisions: u64,
        /// Number of windows rewritten.
        rewritten: u64,
        /// GSO/GRO packets, which contain several segments.
        gso_packets: u64,
        /// Windows above the target because a right edge had been advertised.
        edge_limited: u64,
        /// Segments outside of both windows, which no receiver accepts.
        out_of_window: u64,
        /// Payload bytes of downloads.
        down_bytes: u64,
        /// Payload bytes of uploads that were acknowledged.
        up_bytes: u64,
        /// Packets of any kind that came to the hooks.
        packets: u64,
    }
    /// One sample as tests see it: `struct traced`.
    struct Traced {
        /// Time of the sample.
        now_ns: u64,
        /// The sample that the law got.
        sample: DrwaSample,
        /// RTTmin before the sample, µs.
        rtt_min_us: u64,
        /// The law's window after the sample, bytes.
        window: u64,
        /// 1: of an upload; 0: of a download.
        up: u32,
        /// 1: the law's first sample.
        begins: u32,
        /// Copy of `added_us` of [`Direction::opposite`].
        opposite_us: u32,
        /// Target window after the sample, bytes.
        target: u32,
        /// The constants of the law.
        law: DrwaLaw,
    }
}
