//! What kernel and agent both see: the structs of `bpf/law.h` and of the programs' maps, field by field.
//!
//! Every field has the size of its place, without gaps, so that all bytes mean something on both sides.
#![allow(unsafe_code)]

pub mod acks;

use algo::rwnd::drwa::{Config, Estimator, Form};

macro_rules! plain {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind,)* }
        // SAFETY: integers and such structs only, without padding (checked below), so any bytes are a value.
        unsafe impl aya::Pod for $name {}
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$kind>())*);
    )*};
}
pub(crate) use plain;

plain! {
    /// `struct drwa_law`.
    struct DrwaLaw {
        /// Average of the rate instead of the window.
        rate_form: u32,
        /// Weight of the old value, in sixteenths.
        alpha: u32,
        /// λ in sixteenths.
        lambda: u32,
        /// The average jumps up.
        quick: u32,
        /// What every decision adds, bytes.
        increment: u64,
        /// Smallest window, bytes.
        floor: u64,
        /// Largest window, bytes.
        max: u64,
        /// Window before the first round has ended.
        initial: u64,
        /// RTTmin is measured anew after so long; 0: never.
        rtt_min_age_ns: u64,
        /// RTT by window instead of timestamps.
        by_window: u32,
        /// Nothing.
        pad: u32,
    }
    /// `struct drwa_sample`.
    struct DrwaSample {
        /// Received in order.
        received: u64,
        /// Read by the application.
        copied: u64,
        /// Up to which the sender may send.
        right_edge: u64,
        /// 0: none.
        rtt_us: u64,
        /// 1 where data arrived.
        arrived: u32,
        /// Nothing.
        pad: u32,
    }
    /// `struct drwa`.
    struct Drwa {
        /// cwnd_est, bytes.
        cwnd: u64,
        /// Bytes per second.
        rate: u64,
        /// Wanted.
        window: u64,
        /// Mean RTT of the last round.
        rtt_us: u64,
        /// Smallest RTT.
        rtt_min_us: u64,
        /// When it was seen.
        rtt_min_seen_ns: u64,
        /// Begin of the round.
        begun_ns: u64,
        /// What had been read then.
        begun_copied: u64,
        /// RTT samples of the round.
        rtt_sum_us: u64,
        /// Their number.
        rtt_count: u64,
        /// Longest silence of the round.
        silence_ns: u64,
        /// When data arrived last.
        arrived_ns: u64,
        /// What had been read at the last sample.
        copied: u64,
        /// The edge that has to be passed.
        edge: u64,
        /// Since when it is on offer.
        edge_ns: u64,
        /// The window before RTTmin is measured anew.
        probe_resume: u64,
        /// The step ends when data beyond this arrives.
        probe_edge: u64,
        /// Smallest RTT of the measurement.
        probe_min_us: u64,
        /// Windows to wait for yet.
        probe_left: u32,
        /// Flags: a round has begun, an edge is pending, RTTmin is being measured, the state is initialised.
        flags: [u8; 4],
    }
    /// `struct receive_config`.
    struct ReceiveConfig {
        /// The law; `floor` and `increment` are set for each socket from its segment size.
        law: DrwaLaw,
        /// CLOCK_MONOTONIC; nothing is done after this.
        lease_until_ns: u64,
        /// Bytes received before anything is done.
        start_bytes: u64,
        /// Number of the cgroup whose sockets are ours.
        cgroup: u64,
        /// Its depth; 0: everybody's.
        cgroup_level: u32,
        /// Smallest window in segments.
        floor_segments: u32,
        /// Segments that every decision adds.
        increment_segments: u32,
        /// 0 everybody, 1 only listed destinations, 2 all but those.
        by_place: u32,
        /// Whether the smallest RTT is shared by all sockets to an address.
        shared_minimum: u32,
        /// Measure and decide, but set no clamp.
        observe: u32,
        /// Grows when `places` or `by_place` changes.
        places_version: u32,
        /// Only sockets of `user`.
        by_user: u32,
        /// Number of a user.
        user: u32,
        /// AFC's rate term.
        rate_term: u32,
        /// Largest receive buffer that may be asked for, with the kernel's overhead.
        most_buffer: u32,
        /// TCP's memory is scarce.
        scarce: u32,
    }
    /// `struct receive_flow`.
    struct ReceiveFlow {
        /// Remote address, IPv4 as ::ffff:a.b.c.d, in network order.
        remote: [u32; 4],
        /// Port here.
        local_port: u32,
        /// Port there.
        remote_port: u32,
        /// CLOCK_MONOTONIC of the last decision.
        at_ns: u64,
        /// Bytes received.
        received: u64,
        /// Average of the law, bytes per second.
        rate: u64,
        /// Mean RTT of the last round.
        rtt_us: u32,
        /// Smallest RTT.
        rtt_min_us: u32,
        /// Window wanted.
        wanted: u32,
        /// Window advertised.
        advertised: u32,
        /// The socket's clamp before this ACK.
        clamp: u32,
        /// How often autotuning had moved it.
        reapplied: u32,
        /// RTT by window, since the connection has no timestamps.
        by_window: u32,
        /// Nothing was set: the agent only looks.
        observed: u32,
    }
    /// `struct receive_counters`.
    struct ReceiveCounters {
        /// Connections that were opened.
        sockets: u64,
        /// ACKs looked at.
        samples: u64,
        /// Rounds decided.
        decisions: u64,
        /// Clamps set.
        applied: u64,
        /// … because autotuning had moved one.
        reapplied: u64,
        /// Clamps that the kernel refused.
        refused: u64,
        /// Clamps lifted after the lease.
        lifted: u64,
        /// Buffers made larger.
        raised: u64,
        /// … and not, for want of memory.
        withheld: u64,
    }
    /// `struct place`: a prefix, IPv4 as ::ffff:a.b.c.d.
    struct Place {
        /// Bits that count.
        prefix: u32,
        /// Network order.
        address: [u32; 4],
    }
    /// `struct walk_task`.
    struct WalkTask {
        /// What to do.
        action: u32,
        /// Sockets visited.
        seen: u32,
        /// Sockets changed.
        changed: u32,
        /// Sockets that the kernel refused.
        refused: u32,
        /// Sockets whose callback another program had silenced.
        silenced: u32,
        /// The last refusal, negative errno.
        error: i32,
        /// Number of the cgroup whose sockets are ours.
        cgroup: u64,
        /// Its depth; 0: everybody's.
        cgroup_level: u32,
        /// Buffers shrink only as far as nothing that was promised is lost.
        gentle: u32,
        /// … and so many are not there yet.
        waiting: u32,
        /// Nothing.
        pad: u32,
        /// Bytes that buffers are larger by, all together.
        room: u64,
    }
    /// `struct walk_socket`.
    struct WalkSocket {
        /// Local address, IPv4 as ::ffff:a.b.c.d.
        local: [u32; 4],
        /// Remote address.
        remote: [u32; 4],
        /// Port here.
        local_port: u32,
        /// Port there.
        remote_port: u32,
        /// TCP's state as the kernel numbers it.
        state: u32,
        /// Smoothed RTT of what is sent.
        rtt_us: u32,
        /// Smallest RTT of what is sent; all ones: none.
        rtt_min_us: u32,
        /// Congestion window, packets.
        cwnd: u32,
        /// Packets in flight.
        out: u32,
        /// Bytes of a segment.
        mss: u32,
        /// The window's clamp.
        clamp: u32,
        /// Window advertised.
        advertised: u32,
        /// 1: the callback is on, 2: our clamp is set.
        ours: u32,
        /// Nothing.
        pad: u32,
        /// Bytes received.
        received: u64,
        /// Bytes sent and acknowledged.
        acked: u64,
        /// Name of the congestion control, with zeroes.
        congestion: [u8; 16],
    }
    /// `struct route`, `struct congestion_before`.
    struct Route {
        /// Name with zeroes.
        name: [u8; 16],
    }
    /// `struct congestion_config`.
    struct CongestionConfig {
        /// CLOCK_MONOTONIC; nothing is done after this.
        lease_until_ns: u64,
    }
    /// `struct congestion_counters`.
    struct CongestionCounters {
        /// Connections that were switched as they began.
        switched: u64,
        /// … that the kernel did not let be switched.
        refused: u64,
    }
    /// `struct gate_config`.
    struct GateConfig {
        /// What lies below may take so long to drain.
        target_ns: u64,
        /// The most that is added to it.
        slack_ns: u64,
        /// Bytes that may always lie below.
        floor: u64,
        /// Without a report for so long the gate is open.
        patience_ns: u64,
        /// Leaves intervals without data out of the average.
        hold: u32,
        /// Nothing.
        pad: u32,
        /// CLOCK_MONOTONIC; everything passes after this.
        lease_until_ns: u64,
        /// Bytes of the link layer's header.
        link_header: u32,
        /// Nothing.
        pad2: u32,
    }
    /// `struct gate_view`.
    struct GateView {
        /// CLOCK_MONOTONIC when the last report came.
        at_ns: u64,
        /// … when the newest was written.
        written_ns: u64,
        /// How many came.
        reports: u64,
        /// Bytes below the operating system.
        occupancy: u64,
        /// Bytes that may lie there.
        limit: u64,
        /// Bytes per second; 0: not known.
        rate: u64,
        /// Share of a flow, as an account of recent bytes.
        fair: u64,
        /// Bytes in the last report.
        reported: u64,
    }
    /// `struct gate_counters`.
    struct GateCounters {
        /// Packets that passed.
        passed: u64,
        /// Their bytes.
        passed_bytes: u64,
        /// … above the limit, for being thin, sparse or bare.
        privileged: u64,
        /// Refused to sockets of this host, which wait.
        refused_own: u64,
        /// Refused to others, who lose them.
        refused_forwarded: u64,
        /// Passed without reports or lease.
        unguarded: u64,
    }
}

impl WalkSocket {
    /// The sockets that a walk wrote, one after the other.
    pub fn all_of(bytes: &[u8]) -> Vec<WalkSocket> {
        let one = |bytes: &[u8]| {
            // SAFETY: integers only, so any bytes are a value; chunks_exact gives as many as it has, and no alignment is asked for.
            unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast::<WalkSocket>()) }
        };
        bytes.chunks_exact(size_of::<WalkSocket>()).map(one).collect()
    }
}

impl DrwaLaw {
    /// The law of a configuration, for segments of `mss` bytes: as `algo::rwnd::drwa::Drwa::new` has it.
    pub fn new(config: &Config, mss: u64, timestamps: bool) -> DrwaLaw {
        let max = config.max.0.clamp(1, 1 << 30);
        DrwaLaw {
            rate_form: (config.form == Form::Rate).into(),
            alpha: config.alpha as u32,
            lambda: config.lambda as u32,
            quick: config.quick.into(),
            increment: config.increment.saturating_mul(mss).min(1 << 30),
            floor: config.min_window.saturating_mul(mss).clamp(1, max),
            max,
            initial: config.initial.0,
            rtt_min_age_ns: config.rtt_min_age.map_or(0, |age| age.0),
            by_window: (config.estimator == Estimator::Window || !timestamps).into(),
            pad: 0,
        }
    }
}
