//! Requests and answers in UDP that name each other: DNS, and the probes of `unbloat measure`.
//!
//! signal: the first bytes behind a UDP header · model: DNS on its port, one question in the request, the transaction
//! identifier repeated in the answer (RFC 1035 section 4.1.1); a probe begins with `UBP1` and has 88 bytes
//! (`crates/measure/src/wire/probe.rs`) · action: kind, direction and number, or nothing
//!
//! Multicast DNS and LLMNR are left out: who asked is not the destination of the answer, or the identifier is zero.

use crate::decoded::{Message, MessageKind};
use crate::view::View;

const DNS_PORT: u16 = 53;
/// Length of the header of DNS.
const DNS_HEADER: u32 = 12;
/// Bit of an answer, and the operation, of which 0 is a query.
const RESPONSE: u16 = 0x8000;
const OPERATION: u16 = 0x7800;
/// What probes begin with, and their length.
const PROBE_MAGIC: [u8; 4] = *b"UBP1";
const PROBE_LENGTH: u32 = 88;

/// The message in the payload of a UDP datagram with these ports.
#[inline]
pub(crate) fn in_udp(ports: (u16, u16), payload: View<'_>) -> Option<Message> {
    if ports.0 == DNS_PORT || ports.1 == DNS_PORT {
        return dns(ports, payload);
    }
    if payload.wire == PROBE_LENGTH { probe(payload) } else { None }
}

fn dns(ports: (u16, u16), payload: View<'_>) -> Option<Message> {
    let (number, fields, questions) = (payload.be16(0)?, payload.be16(2)?, payload.be16(4)?);
    let answer = fields & RESPONSE != 0;
    // An answer of an error may leave the question out.
    let counted = questions == 1 || answer && questions == 0;
    let from_server = if answer { ports.0 } else { ports.1 } == DNS_PORT;
    let query = payload.wire >= DNS_HEADER && fields & OPERATION == 0 && counted && from_server;
    query.then(|| Message { kind: MessageKind::Dns, answer, number: number.into() })
}

fn probe(payload: View<'_>) -> Option<Message> {
    let head = payload.data.first_chunk::<20>()?;
    let answer = match head[4] {
        1 => false,
        2 => true,
        _ => return None,
    };
    let number = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
    let ours = head[..4] == PROBE_MAGIC;
    ours.then_some(Message { kind: MessageKind::Probe, answer, number })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(ports: (u16, u16), bytes: &[u8]) -> Option<(MessageKind, bool, u32)> {
        let view = View { data: bytes, wire: bytes.len() as u32 };
        in_udp(ports, view).map(|m| (m.kind, m.answer, m.number))
    }

    #[test]
    fn queries_and_answers_of_dns_have_their_identifier() {
        let mut bytes = [0; 30];
        (bytes[0], bytes[1], bytes[5]) = (0x12, 0x34, 1);
        let query = Some((MessageKind::Dns, false, 0x1234));
        assert_eq!(read((40_000, 53), &bytes), query);
        assert_eq!(read((53, 40_000), &bytes), None, "a query comes from the client");
        assert_eq!(read((40_000, 54), &bytes), None, "another port");
        bytes[2] = 0x80;
        assert_eq!(read((53, 40_000), &bytes), Some((MessageKind::Dns, true, 0x1234)));
        assert_eq!(read((53, 53), &bytes), Some((MessageKind::Dns, true, 0x1234)));
        bytes[2] = 0xa8;
        assert_eq!(read((53, 40_000), &bytes), None, "an update");
        bytes[2] = 0;
        bytes[5] = 2;
        assert_eq!(read((40_000, 53), &bytes), None, "no question of its own");
        assert_eq!(read((40_000, 53), &bytes[..11]), None, "too short");
    }

    #[test]
    fn probes_have_their_number_and_those_that_expire_are_none() {
        let mut bytes = [0; 88];
        bytes[..4].copy_from_slice(b"UBP1");
        bytes[16..20].copy_from_slice(&70_000_u32.to_le_bytes());
        for (kind, found) in [(0, None), (1, Some(false)), (2, Some(true)), (3, None)] {
            bytes[4] = kind;
            let message = found.map(|answer| (MessageKind::Probe, answer, 70_000));
            assert_eq!(read((40_000, 26_110), &bytes), message);
        }
        bytes[4] = 1;
        assert_eq!(read((40_000, 26_110), &bytes[..87]), None);
        bytes[0] = b'u';
        assert_eq!(read((40_000, 26_110), &bytes), None);
    }

    proptest! {
        #[test]
        fn any_bytes_cut_anywhere_are_read_alike_or_not_at_all(
            port in prop::sample::select(vec![53_u16, 26_110]),
            mut bytes in prop::collection::vec(any::<u8>(), 0..100),
            ours: bool,
            kept in 0_usize..100,
        ) {
            if ours && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&PROBE_MAGIC);
            }
            let wire = bytes.len() as u32;
            let whole = in_udp((40_000, port), View { data: &bytes, wire });
            let cut = View { data: &bytes[..kept.min(bytes.len())], wire };
            let short = in_udp((40_000, port), cut);
            prop_assert!(short.is_none() || short == whole);
        }
    }
}
