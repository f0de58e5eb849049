//! TCP small queues: a limit on the bytes of each connection below its socket.
//!
//! signal: bytes that passed, bytes that the device completed · model: a limit per flow, fixed or
//! 1 ms of its pacing rate · action: a flow above its limit waits. Source: Linux
//! `tcp_small_queue_check`; QCUT section 7.1 varies the size.
//!
//! Deviation: TSQ belongs to the sender. It counts one flow's bytes in the queue *and* the device, and
//! stops the flow, not the queue; simulated senders use [`flow_limit`] for that. The gate in this file
//! is the sum that `flows` such senders can have below an empty queue. As in QCUT, it bounds the
//! firmware buffer only if it is smaller than that buffer, and a packet counts until the firmware has
//! sent it.

use units::{Bytes, Instant, Rate};

use super::{Event, Gate, Limit, Setup, State};

/// Name in the table.
pub const NAME: &str = "tsq";
/// One-line description for lists and documentation.
pub const ABOUT: &str = "TCP small queues: a limit in bytes per connection";
/// Where it is specified.
pub const SOURCE: &str = "Linux tcp_small_queue_check; QCUT section 7.1";

config! {
    /// The limit of each sender.
    pub struct Config {
        /// `tcp_limit_output_bytes`: 128 KB in the kernels of QCUT (section 7.1); 4 MiB in Linux 6.18.
        size: Bytes = Bytes(131_072), Bytes(1), Bytes(1 << 30);
        /// Pacing rate of a flow, where the limit follows it; without it the limit is `size`, as in the kernels of 2012.
        pacing: Option<Rate> = None, Some(Rate(1)), Some(Rate(1_000_000_000_000));
        /// Number of sending connections.
        flows: u64 = 1, 1, 100_000;
    }
}

/// Bytes that one flow may have below its socket: 1/1,024 s of its pacing rate, at least two packets,
/// at most `size`.
pub fn flow_limit(pacing: Option<Rate>, packet: Bytes, size: Bytes) -> Bytes {
    // tcp_small_queue_check: max(2 · truesize, sk_pacing_rate >> sk_pacing_shift (10)), at most
    // tcp_limit_output_bytes
    pacing.map_or(size, |rate| Bytes(rate.0 / 8 / 1_024).max(packet * 2).min(size))
}

/// The TCP small queues of one device.
#[derive(Clone, Debug)]
pub struct Tsq {
    limit: Bytes,
    below: Bytes,
}

impl Tsq {
    /// The state of an idle device.
    pub fn new(config: Config, setup: &Setup) -> Tsq {
        Tsq {
            limit: flow_limit(config.pacing, setup.mtu, config.size) * config.flows,
            below: Bytes::ZERO,
        }
    }
}

impl Gate for Tsq {
    fn on_event(&mut self, _now: Instant, event: &Event) {
        match *event {
            Event::Passed { bytes, .. } => self.below += bytes,
            Event::Completed { bytes } => self.below = self.below - bytes,
            Event::Report { .. } | Event::Probe { .. } => {}
        }
    }
    fn limit(&self, _now: Instant) -> Limit {
        Limit::Bytes(self.limit)
    }
    fn open(&self, _now: Instant) -> bool {
        // "refcount_read(&sk->sk_wmem_alloc) > limit" throttles
        self.below <= self.limit
    }
    fn next_wakeup(&self, _now: Instant) -> Option<Instant> {
        None
    }
    fn state(&self, _now: Instant) -> State {
        State { occupancy: Some(self.below), rate: None, limit: Some(self.limit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_has_a_millisecond_of_its_pacing_rate_and_two_packets_at_least() {
        let packet = Bytes(1_500);
        let cap = Bytes(4_194_304);
        assert_eq!(flow_limit(Some(Rate(1_000_000)), packet, cap), Bytes(3_000));
        // 1 Gbit/s >> 10: 125,000,000 / 1,024
        assert_eq!(flow_limit(Some(Rate(1_000_000_000)), packet, cap), Bytes(122_070));
        assert_eq!(flow_limit(Some(Rate(100_000_000_000)), packet, cap), cap);
        assert_eq!(flow_limit(None, packet, Bytes(131_072)), Bytes(131_072));
    }

    #[test]
    fn the_gate_is_the_sum_of_its_flows() {
        let config = Config { size: Bytes(8_000), flows: 2, ..Config::default() };
        let mut gate = Tsq::new(config, &Setup::default());
        let now = Instant::ZERO;
        let mut passed = 0;
        while gate.open(now) {
            gate.on_event(now, &Event::Passed { bytes: Bytes(1_500), flow: 0, bare: false });
            passed += 1;
        }
        // the eleventh goes while 15,000 bytes lie below, and is the last
        assert_eq!(passed, 11);
        gate.on_event(now, &Event::Completed { bytes: Bytes(1_500) });
        assert!(gate.open(now));
    }
}
