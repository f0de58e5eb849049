//! The structs that the kernel side and the agent share: those of `bpf/law.h` and of the programs'
//! maps, field by field.
//!
//! Every field has the size of its place, without gaps, so that all bytes mean something on both
//! sides.
#![allow(unsafe_code)]

pub mod acks;

use algo::rwnd::drwa::{Config, Estimator, Form};

macro_rules! plain {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind,)* }
        // SAFETY: integers and such structs only, without padding (checked below), so any bytes are
        // a value.
        unsafe impl aya::Pod for $name {}
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$kind>())*);
    )*};
}
pub(crate) use plain;

plain! {
    /// The constants of a law: `struct drwa_law` of `bpf/law.h`.
    struct DrwaLaw {
        /// 1: the law averages the rate instead of the window.
        rate_form: u32,
        /// Weight of the old value in the average, in sixteenths.
        alpha: u32,
        /// λ, the allowed RTT as a multiple of RTTmin, in units of 1/256.
        lambda: u32,
        /// 1: the average takes a larger value at once.
        quick: u32,
        /// The smallest λ, where it adapts.
        lambda_min: u32,
        /// 1: λ and the rate adapt.
        adaptive: u32,
        /// Payload of a full segment.
        mss: u64,
        /// Bytes that every decision adds to the window.
        increment: u64,
        /// Lower bound of the window, bytes.
        floor: u64,
        /// Upper bound of the window, bytes.
        max: u64,
        /// Window before the first round has ended, bytes.
        initial: u64,
        /// Age at which RTTmin is measured again; 0: never.
        rtt_min_age_ns: u64,
        /// 1: RTT by window instead of timestamps.
        by_window: u32,
        /// 1: flows of one host get equal rates.
        fair: u32,
    }
    /// One sample for the law: `struct drwa_sample` of `bpf/law.h`.
    struct DrwaSample {
        /// Bytes received in order so far.
        received: u64,
        /// Bytes that the application has read so far.
        copied: u64,
        /// Right edge of the window: the byte up to which the sender may send.
        right_edge: u64,
        /// RTT sample; 0: none.
        rtt_us: u64,
        /// 1: data arrived; 0: the application read.
        arrived: u32,
        /// Padding, always zero.
        pad: u32,
    }
    /// State of the law for one connection: `struct drwa` of `bpf/law.h`.
    struct Drwa {
        /// Estimate of the sender's congestion window, bytes.
        cwnd: u64,
        /// Rate, bytes per second.
        rate: u64,
        /// Mean rate, bytes per second.
        mean: u64,
        /// The window that the law asks for, bytes.
        window: u64,
        /// Mean RTT of the last round, µs.
        rtt_us: u64,
        /// Minimum RTT so far, µs.
        rtt_min_us: u64,
        /// When it was visited.
        rtt_min_seen_ns: u64,
        /// Start of the current round.
        begun_ns: u64,
        /// `copied` at the start of the round.
        begun_copied: u64,
        /// Sum of the round's RTT samples, µs.
        rtt_sum_us: u64,
        /// Number of the round's RTT samples.
        rtt_count: u64,
        /// Longest silence within the round.
        silence_ns: u64,
        /// Time of the last data.
        arrived_ns: u64,
        /// `copied` at the last sample.
        copied: u64,
        /// Right edge at the last window sample: data beyond it ends that sample.
        edge: u64,
        /// When that edge was advertised.
        edge_ns: u64,
        /// Window to return to after RTTmin has been measured again.
        probe_resume: u64,
        /// A step of the probe ends when data beyond this sequence position arrives.
        probe_edge: u64,
        /// Minimum RTT of the probe so far, µs.
        probe_min_us: u64,
        /// Delay of ACKs on their own way, up to a constant.
        ack_delay_ns: i64,
        /// The same when the round began.
        begun_delay_ns: i64,
        /// λ in units of 1/256; 0: that of the law.
        lambda: u32,
        /// The opposite direction's queue in the last round, µs.
        beside_us: u32,
        /// Steps that the probe still has to wait for.
        probe_left: u32,
        /// Flags: a round has begun, an edge is pending, RTTmin is being probed, the state is
        /// initialised.
        flags: [u8; 4],
    }
    /// What the agent sets for DRWA on sockets: `struct receive_config` of `bpf/receive.h`.
    struct ReceiveConfig {
        /// The law; `floor` and `increment` are set for each socket from its segment size.
        law: DrwaLaw,
        /// CLOCK_MONOTONIC; after this nothing is changed.
        lease_until_ns: u64,
        /// Bytes received before anything is changed.
        start_bytes: u64,
        /// Id of the cgroup whose sockets are selected.
        cgroup: u64,
        /// Its depth below the root; 0: the root, so all sockets.
        cgroup_level: u32,
        /// Minimum window in segments.
        floor_segments: u32,
        /// Segments that every decision adds to the window.
        increment_segments: u32,
        /// 0: all destinations; 1: only those in `places`; 2: all but those.
        by_place: u32,
        /// 1: all sockets to an address share the minimum RTT.
        shared_minimum: u32,
        /// 1: measure and decide, but set no clamp.
        observe: u32,
        /// Grows with every change of `places` or `by_place`.
        places_version: u32,
        /// 1: only sockets of `user`.
        by_user: u32,
        /// Numeric id of a user.
        user: u32,
        /// 1: AFC's rate term is on.
        rate_term: u32,
        /// Largest receive buffer that may be set, with the kernel's overhead.
        max_buffer: u32,
        /// 1: TCP's memory is scarce, so larger buffers are given back.
        scarce: u32,
    }
    /// What the agent reads of a flow: `struct receive_flow` of `bpf/receive.h`.
    struct ReceiveFlow {
        /// Remote address, IPv4 as ::ffff:a.b.c.d, in network order.
        remote: [u32; 4],
        /// Port of the local end.
        local_port: u32,
        /// Port of the remote end.
        remote_port: u32,
        /// CLOCK_MONOTONIC of the last decision.
        at_ns: u64,
        /// Payload bytes received so far.
        received: u64,
        /// The law's average rate, bytes per second.
        rate: u64,
        /// Mean RTT of the last round, µs.
        rtt_us: u32,
        /// Minimum RTT so far, µs.
        rtt_min_us: u32,
        /// Window that the law asks for, bytes.
        target: u32,
        /// Window advertised to the sender, bytes.
        advertised: u32,
        /// The socket's clamp before this ACK.
        clamp: u32,
        /// How often autotuning had moved the clamp.
        reapplied: u32,
        /// 1: RTT by window, since the connection has no timestamps.
        by_window: u32,
        /// 1: nothing was set, the agent only observes.
        observed: u32,
        /// λ in units of 1/256.
        lambda: u32,
        /// Padding.
        pad: u32,
    }
    /// Counters of DRWA on sockets: `struct receive_counters` of `bpf/receive.h`.
    struct ReceiveCounters {
        /// Connections that were established.
        sockets: u64,
        /// ACKs that gave a sample.
        samples: u64,
        /// Rounds that ended with a decision.
        decisions: u64,
        /// Clamps that were set.
        applied: u64,
        /// Clamps set again because autotuning had moved them.
        reapplied: u64,
        /// Clamps that the kernel refused to set.
        refused: u64,
        /// Clamps lifted after the lease had expired.
        lifted: u64,
        /// Buffers that were made larger.
        raised: u64,
        /// Buffers that were not made larger, for want of memory.
        withheld: u64,
    }
    /// `struct place`: a prefix, IPv4 as ::ffff:a.b.c.d.
    struct Place {
        /// Length of the prefix in bits.
        prefix: u32,
        /// The address in network byte order.
        address: [u32; 4],
    }
    /// Task and results of a walk: `struct walk_task` of `bpf/sockets.bpf.c`.
    struct WalkTask {
        /// What to do, one of `Action`.
        action: u32,
        /// Number of sockets visited.
        visited: u32,
        /// Number of sockets changed.
        changed: u32,
        /// Number of sockets that the kernel refused to change.
        refused: u32,
        /// Sockets whose callback another program had silenced.
        silenced: u32,
        /// The last refusal, negative errno.
        error: i32,
        /// Id of the cgroup whose sockets are selected.
        cgroup: u64,
        /// Its depth below the root; 0: the root, so all sockets.
        cgroup_level: u32,
        /// 1: buffers shrink only as far as no advertised window is cut.
        gentle: u32,
        /// Number of sockets whose buffers are not there yet.
        waiting: u32,
        /// Padding, always zero.
        pad: u32,
        /// Bytes by which buffers are larger, all together.
        headroom: u64,
    }
    /// One listed socket: `struct walk_socket` of `bpf/sockets.bpf.c`.
    struct WalkSocket {
        /// Local address, IPv4 as ::ffff:a.b.c.d.
        local: [u32; 4],
        /// Remote address, IPv4 as ::ffff:a.b.c.d.
        remote: [u32; 4],
        /// Port of the local end.
        local_port: u32,
        /// Port of the remote end.
        remote_port: u32,
        /// TCP state in the kernel's numbering.
        state: u32,
        /// Smoothed RTT of sent data, µs.
        rtt_us: u32,
        /// Minimum RTT of sent data, µs; all ones: none.
        rtt_min_us: u32,
        /// Congestion window of the socket, packets.
        cwnd: u32,
        /// Number of packets in flight.
        out: u32,
        /// Maximum segment size, bytes.
        mss: u32,
        /// The socket's window clamp, bytes.
        clamp: u32,
        /// Window advertised to the sender, bytes.
        advertised: u32,
        /// Bits. 1: the callback is on. 2: our clamp is set.
        ours: u32,
        /// Padding, always zero.
        pad: u32,
        /// Payload bytes received so far.
        received: u64,
        /// Bytes sent and acknowledged.
        acked: u64,
        /// Name of the congestion control, padded with zeroes.
        congestion: [u8; 16],
    }
    /// A congestion control by name: `struct route` and `struct congestion_before` of
    /// `bpf/congestion.h`.
    struct Route {
        /// The name, padded with zeroes.
        name: [u8; 16],
    }
    /// What the agent sets for congestion control: `struct congestion_config` of
    /// `bpf/congestion.h`.
    struct CongestionConfig {
        /// CLOCK_MONOTONIC; after this nothing is changed.
        lease_until_ns: u64,
    }
    /// Counters of congestion control: `struct congestion_counters` of `bpf/congestion.h`.
    struct CongestionCounters {
        /// Connections that were switched when they began.
        switched: u64,
        /// Connections that the kernel refused to switch.
        refused: u64,
    }
    /// What the agent sets for the gate: `struct gate_config` of `bpf/gate.bpf.c`.
    struct GateConfig {
        /// Time that the bytes below the gate may take to drain.
        target_ns: u64,
        /// Maximum slack that is added to the target.
        slack_ns: u64,
        /// Bytes that may always be below the gate.
        floor: u64,
        /// Without a report for so long the gate is open.
        timeout_ns: u64,
        /// 1: intervals without data are left out of the average.
        hold: u32,
        /// Padding, always zero.
        pad: u32,
        /// CLOCK_MONOTONIC; after this everything passes.
        lease_until_ns: u64,
        /// Bytes of the link-layer header.
        link_header: u32,
        /// 1: everything passes before the first estimate of the rate.
        wait_for_rate: u32,
    }
    /// What the agent reads of the gate: `struct gate_view` of `bpf/gate.bpf.c`.
    struct GateView {
        /// CLOCK_MONOTONIC when the last report was received.
        at_ns: u64,
        /// CLOCK_MONOTONIC when the newest report was written.
        written_ns: u64,
        /// Number of reports received.
        reports: u64,
        /// Estimated bytes below the operating system.
        occupancy: u64,
        /// Limit of that estimate, bytes.
        limit: u64,
        /// Rate of the uplink, bytes per second; 0: unknown.
        rate: u64,
        /// Fair share of a flow, in units of an account of recent bytes.
        fair: u64,
        /// Bytes in the buffer by the last report.
        reported: u64,
    }
    /// Counters of the gate: `struct gate_counters` of `bpf/gate.bpf.c`.
    struct GateCounters {
        /// Number of packets that passed.
        passed: u64,
        /// Bytes of the packets that passed.
        passed_bytes: u64,
        /// Packets that passed above the limit: below the fair share, sparse, or bare
        /// acknowledgments.
        privileged: u64,
        /// Packets refused to sockets of this host, which wait.
        refused_own: u64,
        /// Forwarded packets refused, which are lost.
        refused_forwarded: u64,
        /// Packets that passed without a fresh report or a lease.
        unguarded: u64,
    }
}

impl WalkSocket {
    /// The sockets that a walk wrote, one record after another.
    pub fn all_of(bytes: &[u8]) -> Vec<WalkSocket> {
        let one = |bytes: &[u8]| {
            // SAFETY: integers only, so any bytes are a value; chunks_exact gives as many as it
            // has, and no alignment is asked for.
            unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast::<WalkSocket>()) }
        };
        bytes.chunks_exact(size_of::<WalkSocket>()).map(one).collect()
    }
}

impl DrwaLaw {
    /// The law of a configuration for segments of `mss` bytes, as `algo::rwnd::drwa::Drwa::new`
    /// computes it.
    pub fn new(config: &Config, mss: u64, timestamps: bool) -> DrwaLaw {
        let max = config.max.0.clamp(1, 1 << 30);
        let (lambda, lambda_min) = config.lambdas();
        DrwaLaw {
            rate_form: (config.form != Form::Paper).into(),
            alpha: config.alpha as u32,
            lambda: lambda as u32,
            quick: config.quick.into(),
            lambda_min: lambda_min.unwrap_or(lambda) as u32,
            adaptive: lambda_min.is_some().into(),
            mss,
            increment: config.increment.saturating_mul(mss).min(1 << 30),
            floor: config.min_window.saturating_mul(mss).clamp(1, max),
            max,
            initial: config.initial.0,
            rtt_min_age_ns: config.rtt_min_age.map_or(0, |age| age.0),
            by_window: (config.estimator == Estimator::Window || !timestamps).into(),
            fair: (config.fair && config.form == Form::Agent).into(),
        }
    }
}
