//! Where exchanges of requests and answers were captured: what they took is the RTT of the path only away from the host that
//! answers.
//!
//! signal: TTLs; the vantage of TCP connections between the same two hosts · model: packets of a host beside the capture
//! still have the initial TTL of an operating system, and one capture has one place on a path · action: beside the answering
//! host the time is that of its answer, and no RTT is known
//!
//! Where both hosts or neither have such a TTL, and no TCP connection shows more, the place is not known. The time then counts
//! as an RTT: it is one from the capture to the answering host and back.

use capture::Addr;
use hashbrown::HashMap;

use crate::identity::key::Hasher;
use crate::series::rows::{Connection, Flow, Protocol, RttMethod, Vantage};

/// The vantage as seen from the first of two hosts, by the TTLs of their packets; 0 stands for none.
pub(super) fn by_ttl(ttl: [u8; 2]) -> Option<Vantage> {
    let fresh = |ttl: u8| matches!(ttl, 64 | 128 | 255);
    let known = ttl.iter().all(|ttl| *ttl > 0);
    match (fresh(ttl[0]), fresh(ttl[1])) {
        (true, false) if known => Some(Vantage::Sender),
        (false, true) if known => Some(Vantage::Receiver),
        _ => None,
    }
}

/// The vantage as the other host sees it.
pub(super) const fn seen_back(vantage: Vantage) -> Vantage {
    match vantage {
        Vantage::Sender => Vantage::Receiver,
        Vantage::Receiver => Vantage::Sender,
        other => other,
    }
}

/// Sets the vantage of all flows with exchanges; beside the answering host their RTT becomes the time of the answer. Both
/// lists are sorted by id.
pub(super) fn place_exchanges(connections: &mut [Connection], flows: &mut [Flow]) {
    let exchange = |f: &Flow| {
        matches!(f.rtt_method, RttMethod::Echo | RttMethod::Answer) && f.rtt_ms.is_some()
    };
    if !flows.iter().any(exchange) {
        return;
    }
    let mut of_tcp: HashMap<(Addr, Addr), Vantage, Hasher> = HashMap::default();
    for c in connections.iter().filter(|c| c.protocol == Protocol::Tcp) {
        if c.vantage != Vantage::Unknown {
            of_tcp.insert((c.a_addr, c.b_addr), c.vantage);
            of_tcp.insert((c.b_addr, c.a_addr), seen_back(c.vantage));
        }
    }
    for (c, pair) in connections.iter_mut().zip(flows.chunks_exact_mut(2)) {
        if !pair.iter().any(exchange) {
            continue;
        }
        if c.vantage == Vantage::Unknown {
            c.vantage = of_tcp.get(&(c.a_addr, c.b_addr)).copied().unwrap_or_default();
        }
        for (f, vantage) in pair.iter_mut().zip([c.vantage, seen_back(c.vantage)]) {
            f.vantage = vantage;
            if vantage == Vantage::Receiver && exchange(f) {
                (f.answer_ms, f.rtt_ms, f.loaded_rtt_ms) = (f.rtt_ms, None, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_whose_packets_no_router_has_passed_is_beside_the_capture() {
        assert_eq!(by_ttl([64, 57]), Some(Vantage::Sender));
        assert_eq!(by_ttl([250, 128]), Some(Vantage::Receiver));
        assert_eq!([by_ttl([64, 64]), by_ttl([63, 57]), by_ttl([64, 0])], [None; 3]);
    }
}
