//! Hosts with open connections: the bytes that each sent and received, and the minimum RTT between pairs.
//!
//! The bytes of a link are those of all flows from the same host or to the same host, whichever are more: in a capture
//! from a phone the uplink or the downlink. A flow's share of its link is relative to them.

use capture::Addr;
use hashbrown::HashMap;
use units::{Duration, Instant};

use crate::identity::key::Hasher;

/// Maximum number of path minima, so that a scan of the Internet stays bounded. Beyond, the table is cleared, and each
/// connection relies on its own samples until its path has some again.
const MAX_PATHS: usize = 1 << 16;

#[derive(Clone, Copy, Debug, Default)]
struct Host {
    sent: u64,
    received: u64,
    open: u32,
    /// Time of the last packet from or to it; zero before the first.
    last: Instant,
}

/// Table of hosts and of the minimum RTT between pairs of them.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    index: HashMap<Addr, u32, Hasher>,
    rows: Vec<Host>,
    free: Vec<u32>,
    paths: HashMap<(Addr, Addr), u64, Hasher>,
}

impl Hosts {
    /// The row of `addr`; counts one more connection of it.
    pub fn open(&mut self, addr: Addr) -> u32 {
        let Hosts { index, rows, free, .. } = self;
        let row = *index.entry(addr).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                rows.push(Host::default());
                (rows.len() - 1) as u32
            })
        });
        rows[row as usize].open += 1;
        row
    }

    /// Counts one connection of `addr` less.
    pub fn close(&mut self, addr: Addr, row: u32) {
        let host = &mut self.rows[row as usize];
        host.open -= 1;
        if host.open == 0 {
            *host = Host::default();
            self.index.remove(&addr);
            self.free.push(row);
        }
    }

    /// Counts `bytes` sent by host `from` to host `to` at `now`.
    #[inline]
    pub fn count_bytes(&mut self, from: u32, to: u32, bytes: u64, now: Instant) {
        let sender = &mut self.rows[from as usize];
        (sender.sent, sender.last) = (sender.sent + bytes, now);
        let receiver = &mut self.rows[to as usize];
        (receiver.received, receiver.last) = (receiver.received + bytes, now);
    }

    /// Time since the last packet from or to the host of `row`; `None` before its first.
    pub fn pause(&self, row: u32, now: Instant) -> Option<Duration> {
        let last = self.rows[row as usize].last;
        (last > Instant::ZERO && now >= last).then(|| now.since(last))
    }

    /// Bytes so far on the link that a flow `from` → `to` uses.
    #[inline]
    pub fn link_bytes(&self, from: u32, to: u32) -> u64 {
        self.rows[from as usize].sent.max(self.rows[to as usize].received)
    }

    /// Smallest RTT (ns) between the two hosts so far.
    pub fn path_min(&self, a: Addr, b: Addr) -> Option<u64> {
        self.paths.get(&(a.min(b), a.max(b))).copied()
    }

    /// Lowers the minimum RTT between the two hosts to `ns`.
    pub fn update_path_min(&mut self, a: Addr, b: Addr, ns: u64) {
        if self.paths.len() >= MAX_PATHS {
            self.paths.clear();
        }
        let min = self.paths.entry((a.min(b), a.max(b))).or_insert(ns);
        *min = (*min).min(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_counts_all_flows_of_its_busier_end_and_closed_hosts_are_forgotten() {
        let mut h = Hosts::default();
        let (phone, x, y) = (Addr(1), Addr(2), Addr(3));
        let (p, rx, p2, ry) = (h.open(phone), h.open(x), h.open(phone), h.open(y));
        assert_eq!(p, p2);
        assert_eq!(h.pause(p, Instant(5)), None);
        h.count_bytes(p, rx, 100, Instant(5));
        h.count_bytes(p, ry, 50, Instant(7));
        let pauses = [p, rx, ry].map(|row| h.pause(row, Instant(10)));
        assert_eq!(pauses, [3, 5, 3].map(|ns| Some(Duration(ns))));
        assert_eq!(h.link_bytes(p, rx), 150);
        h.close(y, ry);
        assert_eq!(h.open(Addr(4)), ry, "the row is used again");
        h.update_path_min(phone, x, 40);
        h.update_path_min(x, phone, 30);
        assert_eq!(h.path_min(phone, x), Some(30));
    }

    #[test]
    fn beyond_the_maximum_the_minima_are_cleared() {
        let mut h = Hosts::default();
        for i in 0..MAX_PATHS as u128 {
            h.update_path_min(Addr(0), Addr(i + 1), 40);
        }
        assert_eq!(h.path_min(Addr(0), Addr(1)), Some(40));
        h.update_path_min(Addr(0), Addr(MAX_PATHS as u128 + 1), 50);
        assert_eq!(h.path_min(Addr(0), Addr(1)), None);
        assert_eq!(h.path_min(Addr(0), Addr(MAX_PATHS as u128 + 1)), Some(50));
    }
}
