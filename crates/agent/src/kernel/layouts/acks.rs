//! The structs of `bpf/acks.h`, `bpf/path.h` and `bpf/segment.h`, field by field.
#![allow(unsafe_code)]

use crate::kernel::layouts::{Drwa, DrwaLaw, DrwaSample, plain};

plain! {
    /// `struct flow_key`. Network order; IPv4 as ::ffff:a.b.c.d.
    struct FlowKey {
        /// This host, or who sends through it.
        inside: [u32; 4],
        /// Beyond the device.
        outside: [u32; 4],
        /// Port inside.
        inside_port: u16,
        /// Port outside.
        outside_port: u16,
        /// VLAN tags, twelve bits each.
        vlan: u32,
    }
    /// `struct acks_config`.
    struct AcksConfig {
        /// Downloads.
        down: DrwaLaw,
        /// Uploads.
        up: DrwaLaw,
        /// CLOCK_MONOTONIC; everything passes after this.
        lease_until_ns: u64,
        /// Payload of a download before anything is done.
        down_start_bytes: u64,
        /// … of an upload.
        up_start_bytes: u64,
        /// A silence that begins anew.
        pause_ns: u64,
        /// Bytes before the network header.
        link_bytes: u32,
        /// Smallest window in segments.
        floor_segments: u32,
        /// Segments that every decision adds.
        increment_segments: u32,
        /// 1 downloads, 2 uploads.
        directions: u32,
        /// Of these directions windows pass, but are watched.
        lifted: u32,
        /// There are flows in `exempt`.
        exempting: u32,
        /// Another one: what was told meanwhile is not known.
        generation: u32,
        /// This host's own downloads are left alone.
        forwarded_only: u32,
        /// Samples go to `trace`.
        tracing: u32,
        /// Nothing.
        pad: u32,
    }
    /// `struct opposite`.
    struct Opposite {
        /// Its queue in this round.
        sum_us: u64,
        /// Round trips in this round.
        count: u32,
        /// Its mean in the last round.
        mean_us: u32,
        /// Its mean in the one before.
        before_us: u32,
        /// What the window has on top, µs.
        on_top_us: u32,
        /// Its own queue in the last round.
        own_us: u32,
        /// Nothing.
        pad: u32,
        /// Bytes per second.
        rate: u64,
        /// When the round began.
        begun_ns: u64,
        /// Bytes before it.
        begun_bytes: u64,
    }
    /// `struct direction`.
    struct Direction {
        /// Its law.
        law: Drwa,
        /// Payload.
        passed: u64,
        /// … at the end of the last pause.
        started_at: u64,
        /// When payload came last.
        begun_ns: u64,
        /// Highest number that came in.
        top: u32,
        /// The right edge that was told.
        edge: u32,
        /// The other direction's queue.
        opposite: Opposite,
        /// Window that is wanted; 0: none yet.
        wanted: u32,
        /// Window that was told.
        told: u32,
        /// Segments that were changed.
        rewritten: u32,
        /// Whether `top` and `edge` are known, the scale, nothing.
        flags: [u8; 4],
    }
    /// `struct far_clock`.
    struct FarClock {
        /// Last tick.
        last_ns: u64,
        /// First tick.
        begun_ns: u64,
        /// Arrival minus sending.
        delay: i64,
        /// Lower bound of that without a queue.
        low: i64,
        /// Upper bound.
        high: i64,
        /// Last timestamp.
        last: u32,
        /// First timestamp.
        begun: u32,
        /// Length of a tick; 0: not known.
        tick_ns: u32,
        /// 1: measured, 2: there is a lower bound.
        state: u32,
    }
    /// `struct probe`.
    struct Probe {
        /// When it left.
        sent_ns: u64,
        /// What has to come back.
        value: u32,
        /// As timestamp or as number; 0: none is on its way.
        kind: u32,
    }
    /// `struct half`.
    struct Half {
        /// When its far end was heard last.
        heard_ns: u64,
        /// On their way.
        probes: [Probe; 4],
        /// When the last one left.
        probed_ns: u64,
        /// The last one.
        last_probed: u32,
        /// Round trip, µs.
        rtt_us: u32,
        /// Smallest, µs.
        rtt_min_us: u32,
        /// Certainly queueing towards us, µs.
        towards_us: u32,
        /// Certainly queueing away from us, µs.
        away_us: u32,
        /// Round trips.
        samples: u32,
        /// The clock at its end.
        clock: FarClock,
    }
    /// `struct flow`.
    struct Flow {
        /// Data that comes in.
        down: Direction,
        /// Data that goes out.
        up: Direction,
        /// Path beyond the device.
        outer: Half,
        /// Path on this side.
        inner: Half,
        /// Last segment.
        seen_ns: u64,
        /// Highest byte sent to outside.
        sent_out: u32,
        /// Highest byte sent to inside.
        sent_in: u32,
        /// Number of the SYN from inside.
        first_out: u32,
        /// … from outside.
        first_in: u32,
        /// See [`AcksConfig`].
        generation: u32,
        /// Largest segment, from inside.
        mss_out: u16,
        /// … from outside.
        mss_in: u16,
        /// Scales offered plus one and SYNs seen, out and in.
        syns: [u8; 4],
        /// FINs seen out and in, ready, barred.
        flags: [u8; 4],
        /// One of its ends is on this host.
        local: u32,
        /// Nothing.
        pad: u32,
    }
    /// `struct place_seen`.
    struct PlaceSeen {
        /// Smallest round trip beyond the device, µs.
        rtt_us: u64,
        /// When its queues were seen.
        at_ns: u64,
        /// Certainly queueing towards us, µs.
        towards_us: u32,
        /// … away from us.
        away_us: u32,
    }
    /// `struct acks_counters`.
    struct AcksCounters {
        /// TCP segments.
        segments: u64,
        /// Flows that were taken up.
        flows: u64,
        /// Segments of flows whose scale is not known.
        unknown: u64,
        /// Segments that are signed or of MPTCP.
        barred: u64,
        /// Samples of laws.
        samples: u64,
        /// Rounds decided.
        decisions: u64,
        /// Windows rewritten.
        rewritten: u64,
        /// Segments that stand for several.
        superpackets: u64,
        /// Windows that were larger than wanted because of what had been told.
        held: u64,
        /// Segments that no end would take.
        strange: u64,
        /// Payload of downloads.
        down_bytes: u64,
        /// Payload of uploads that was acknowledged.
        up_bytes: u64,
    }
    /// `struct traced`.
    struct Traced {
        /// When.
        now_ns: u64,
        /// The sample.
        sample: DrwaSample,
        /// RTTmin as known before it.
        rtt_min_us: u64,
        /// The law's window after it.
        window: u64,
        /// An upload's.
        up: u32,
        /// The law's first.
        begins: u32,
        /// As in [`Direction`].
        opposite_us: u32,
        /// Window wanted after it.
        wanted: u32,
        /// The law's constants.
        law: DrwaLaw,
    }
}
