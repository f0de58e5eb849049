//! Hosts that have open connections: how many bytes each sent and received, and the smallest RTT between pairs.
//!
//! A flow's share of its link is its bytes over those of all flows that leave the same host or reach the same one,
//! whichever is more: on a phone's capture that is the uplink or the downlink.

use capture::Addr;
use hashbrown::HashMap;

use crate::packet::key::Hasher;

/// Path minima kept; beyond that the table starts afresh, so that a scan of the Internet stays bounded.
const MAX_PATHS: usize = 1 << 16;

#[derive(Clone, Copy, Debug, Default)]
struct Host {
    sent: u64,
    received: u64,
    open: u32,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    index: HashMap<Addr, u32, Hasher>,
    rows: Vec<Host>,
    free: Vec<u32>,
    paths: HashMap<(Addr, Addr), u64, Hasher>,
}

impl Hosts {
    /// The row of `addr`, for one more connection.
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

    /// One connection of `addr` less.
    pub fn close(&mut self, addr: Addr, row: u32) {
        let host = &mut self.rows[row as usize];
        host.open -= 1;
        if host.open == 0 {
            *host = Host::default();
            self.index.remove(&addr);
            self.free.push(row);
        }
    }

    /// `bytes` went from one to the other.
    #[inline]
    pub fn moved(&mut self, from: u32, to: u32, bytes: u64) {
        self.rows[from as usize].sent += bytes;
        self.rows[to as usize].received += bytes;
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

    /// A connection between the two measured `ns` at the least.
    pub fn learn_path(&mut self, a: Addr, b: Addr, ns: u64) {
        if self.paths.len() >= MAX_PATHS {
            self.paths.clear();
        }
        let least = self.paths.entry((a.min(b), a.max(b))).or_insert(ns);
        *least = (*least).min(ns);
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
        h.moved(p, rx, 100);
        h.moved(p, ry, 50);
        assert_eq!(h.link_bytes(p, rx), 150);
        h.close(y, ry);
        assert_eq!(h.open(Addr(4)), ry, "the row is used again");
        h.learn_path(phone, x, 40);
        h.learn_path(x, phone, 30);
        assert_eq!(h.path_min(phone, x), Some(30));
    }
}
