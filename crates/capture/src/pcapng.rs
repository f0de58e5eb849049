//! The pcapng format: sections of blocks, each section with its own byte order and interfaces.
//!
//! Source: draft-ietf-opsawg-pcapng. Block types that carry no packets and no interface are skipped by their
//! length. The interfaces of a later section get indices behind those of the sections before it.

use std::io::Read;

use crate::buffer::Buffer;
use crate::error::{OpenError, ReadError};
use crate::frame::{Interface, MAX_RECORD, Record, SNAP_SLACK, max_record};
use crate::order::Order;
use units::Instant;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED: u32 = 6;

/// Block type, length and the length's repetition.
const FRAMING: usize = 12;
/// A file with more interfaces than this is corrupt, and its descriptions would fill the memory.
const MAX_INTERFACES: usize = 1 << 16;

/// How ticks of an interface become nanoseconds.
#[derive(Clone, Copy)]
enum Scale {
    Times(u64),
    Over(u64),
    /// Ticks of 2^-n s.
    Binary(u32),
}

impl Scale {
    /// From `if_tsresol`: the top bit selects powers of two.
    fn from_option(value: u8) -> Scale {
        let exponent = u32::from(value & 0x7f);
        match (value & 0x80 != 0, exponent) {
            (true, e) => Scale::Binary(e),
            (false, e @ 0..=9) => Scale::Times(10u64.pow(9 - e)),
            // 10^19 is the last power in 64 bits; finer ticks than that never reach a nanosecond.
            (false, e) => Scale::Over(10u64.checked_pow(e - 9).unwrap_or(u64::MAX)),
        }
    }

    #[inline]
    fn nanos(self, ticks: u64) -> u64 {
        match self {
            Scale::Times(k) => ticks.saturating_mul(k),
            Scale::Over(k) => ticks / k,
            Scale::Binary(n) => {
                let ns = (u128::from(ticks) * 1_000_000_000) >> n;
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Clock {
    scale: Scale,
    /// Seconds to add to every time (`if_tsoffset`).
    offset: i64,
}

impl Clock {
    #[inline]
    fn time(self, ticks: u64) -> u64 {
        let ns = self.scale.nanos(ticks);
        if self.offset == 0 {
            return ns;
        }
        ns.saturating_add_signed(self.offset.saturating_mul(1_000_000_000))
    }
}

pub(crate) struct Pcapng {
    order: Order,
    /// Global index of the section's first interface.
    base: usize,
    /// One for each interface of all sections.
    clocks: Vec<Clock>,
    last_time: u64,
    max_block: u32,
}

impl Pcapng {
    pub(crate) fn recognise(head: &[u8]) -> bool {
        head.starts_with(&SECTION.to_be_bytes())
    }

    pub(crate) fn new() -> Pcapng {
        Pcapng {
            order: Order::Little,
            base: 0,
            clocks: Vec::new(),
            last_time: 0,
            max_block: SNAP_SLACK,
        }
    }

    /// Consumes the first section header.
    pub(crate) fn open<R: Read>(&mut self, buffer: &mut Buffer<R>) -> Result<(), OpenError> {
        // A whole section header: framing, magic, version, section length.
        const NEEDED: usize = 28;
        if !buffer.has(NEEDED) {
            return Err(match buffer.at_end(NEEDED) {
                Some(ReadError::Io { source, .. }) => OpenError::Io(source),
                Some(ReadError::Decompress { source, .. }) => OpenError::Decompress(source),
                _ => {
                    OpenError::Truncated { needed: NEEDED as u64, got: buffer.ready().len() as u64 }
                }
            });
        }
        if section_order(buffer.ready()).is_none() {
            return Err(OpenError::NotACapture {
                looks_like: "a file that begins like pcapng, without its byte order",
            });
        }
        self.section(buffer, 0).map_err(|e| match e {
            ReadError::Corrupt { why, .. } => OpenError::Corrupt { why },
            ReadError::Truncated { needed, got, .. } => OpenError::Truncated { needed, got },
            ReadError::Io { source, .. } => OpenError::Io(source),
            ReadError::Decompress { source, .. } => OpenError::Decompress(source),
        })
    }

    fn section<R: Read>(
        &mut self,
        buffer: &mut Buffer<R>,
        interfaces: usize,
    ) -> Result<(), ReadError> {
        if !buffer.has(FRAMING) {
            return Err(end(buffer, FRAMING));
        }
        let offset = buffer.offset();
        let Some(order) = section_order(buffer.ready()) else {
            return Err(ReadError::Corrupt { offset, why: "section header without a byte order" });
        };
        let length = order.u32(buffer.ready(), 4);
        if length < 28 || !length.is_multiple_of(4) || length > SNAP_SLACK {
            return Err(ReadError::Corrupt { offset, why: "section header of impossible length" });
        }
        buffer.skip(length as usize)?;
        self.order = order;
        self.base = interfaces;
        Ok(())
    }

    #[inline]
    pub(crate) fn next<R: Read>(
        &mut self,
        buffer: &mut Buffer<R>,
        interfaces: &mut Vec<Interface>,
        skipped: &mut u64,
    ) -> Result<Option<Record>, ReadError> {
        loop {
            if !buffer.has(FRAMING) {
                return match buffer.at_end(FRAMING) {
                    Some(error) => Err(error),
                    None => Ok(None),
                };
            }
            let order = self.order;
            let kind = order.u32(buffer.ready(), 0);
            if kind == SECTION {
                self.section(buffer, interfaces.len())?;
                continue;
            }
            let length = order.u32(buffer.ready(), 4);
            if length < FRAMING as u32 || !length.is_multiple_of(4) {
                return Err(ReadError::Corrupt {
                    offset: buffer.offset(),
                    why: "block of impossible length",
                });
            }
            if !matches!(kind, INTERFACE | PACKET | SIMPLE | STATISTICS | ENHANCED) {
                if length > MAX_RECORD {
                    let why = "block length exceeds the maximum";
                    return Err(ReadError::Corrupt { offset: buffer.offset(), why });
                }
                buffer.skip(length as usize)?;
                continue;
            }
            // Options may follow the packet, hence twice the longest record.
            if length > self.max_block.saturating_mul(2) {
                let why = "block length exceeds the maximum";
                return Err(ReadError::Corrupt { offset: buffer.offset(), why });
            }
            let size = length as usize;
            if !buffer.has(size) {
                return Err(end(buffer, size));
            }
            let block = &buffer.ready()[..size];
            if order.u32(block, size - 4) != length {
                let why = "block lengths at its two ends differ";
                return Err(ReadError::Corrupt { offset: buffer.offset(), why });
            }
            let body = &block[8..size - 4];
            let found = match kind {
                ENHANCED => self.enhanced(body, interfaces),
                PACKET => self.old_packet(body, interfaces),
                SIMPLE => self.simple(body, interfaces),
                _ => {
                    if kind == STATISTICS {
                        self.statistics(body, interfaces);
                    } else if interfaces.len() < MAX_INTERFACES && body.len() >= 8 {
                        self.interface(body, interfaces);
                    } else {
                        let why = "interface description too short or one too many";
                        return Err(ReadError::Corrupt { offset: buffer.offset(), why });
                    }
                    buffer.consume(size);
                    continue;
                }
            };
            let body_at = buffer.start + 8;
            buffer.consume(size);
            match found {
                Some(mut found) => {
                    self.last_time = found.time;
                    found.from += body_at;
                    return Ok(Some(found));
                }
                None => *skipped += 1,
            }
        }
    }

    #[inline]
    fn enhanced(&self, body: &[u8], interfaces: &[Interface]) -> Option<Record> {
        let head = body.first_chunk::<20>()?;
        let order = self.order;
        let ticks = u64::from(order.u32(head, 4)) << 32 | u64::from(order.u32(head, 8));
        let lengths = (order.u32(head, 12), order.u32(head, 16));
        self.packet(body, 20, order.u32(head, 0), ticks, lengths, interfaces)
    }

    /// The obsolete Packet Block: 16 bits of interface, 16 of drop count.
    fn old_packet(&self, body: &[u8], interfaces: &[Interface]) -> Option<Record> {
        let head = body.first_chunk::<20>()?;
        let order = self.order;
        let ticks = u64::from(order.u32(head, 4)) << 32 | u64::from(order.u32(head, 8));
        let lengths = (order.u32(head, 12), order.u32(head, 16));
        self.packet(body, 20, u32::from(order.u16(head, 0)), ticks, lengths, interfaces)
    }

    #[inline]
    fn packet(
        &self,
        body: &[u8],
        from: usize,
        id: u32,
        ticks: u64,
        (captured, original): (u32, u32),
        interfaces: &[Interface],
    ) -> Option<Record> {
        let index = self.base.checked_add(id as usize)?;
        let interface = interfaces.get(index)?;
        let clock = self.clocks.get(index)?;
        let len = captured as usize;
        if len > body.len() - from {
            return None;
        }
        Some(Record {
            time: clock.time(ticks),
            interface: index as u32,
            linktype: interface.linktype,
            wire_len: original.max(captured),
            from,
            len,
        })
    }

    fn simple(&self, body: &[u8], interfaces: &[Interface]) -> Option<Record> {
        if body.len() < 4 {
            return None;
        }
        let interface = interfaces.get(self.base)?;
        let original = self.order.u32(body, 0);
        let snaplen = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
        let len = (original.min(snaplen) as usize).min(body.len() - 4);
        Some(Record {
            time: self.last_time,
            interface: self.base as u32,
            linktype: interface.linktype,
            wire_len: original,
            from: 4,
            len,
        })
    }

    fn interface(&mut self, body: &[u8], interfaces: &mut Vec<Interface>) {
        let order = self.order;
        let snaplen = order.u32(body, 4);
        let mut described = Interface {
            name: String::new(),
            linktype: order.u16(body, 0),
            snaplen,
            reported_drops: None,
            ended: None,
        };
        // Microseconds is the default of `if_tsresol`.
        let mut clock = Clock { scale: Scale::Times(1_000), offset: 0 };
        each_option(order, body.get(8..).unwrap_or_default(), |code, value| {
            match (code, value.len()) {
                (2, _) => {
                    described.name =
                        String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
                }
                (9, 1..) => clock.scale = Scale::from_option(value[0]),
                (14, 8..) => clock.offset = order.u64(value, 0).cast_signed(),
                _ => {}
            }
        });
        self.max_block = self.max_block.max(max_record(snaplen));
        self.clocks.push(clock);
        interfaces.push(described);
    }

    fn statistics(&self, body: &[u8], interfaces: &mut [Interface]) {
        if body.len() < 12 {
            return;
        }
        let order = self.order;
        let clock = order.u32(body, 0) as usize;
        let index = self.base.saturating_add(clock);
        let Some(interface) = interfaces.get_mut(index) else { return };
        each_option(order, &body[12..], |code, value| {
            match (code, value.len()) {
                // A time is two words of 32 bits, the high one first in either byte order.
                (3, 8..) => {
                    let ticks =
                        u64::from(order.u32(value, 0)) << 32 | u64::from(order.u32(value, 4));
                    interface.ended = self.clocks.get(clock).map(|c| Instant(c.time(ticks)));
                }
                (5, 8..) => interface.reported_drops = Some(order.u64(value, 0)),
                _ => {}
            }
        });
    }
}

fn section_order(head: &[u8]) -> Option<Order> {
    match head.get(8..12)? {
        [0x1a, 0x2b, 0x3c, 0x4d] => Some(Order::Big),
        [0x4d, 0x3c, 0x2b, 0x1a] => Some(Order::Little),
        _ => None,
    }
}

fn end<R: Read>(buffer: &mut Buffer<R>, needed: usize) -> ReadError {
    let offset = buffer.offset();
    buffer.at_end(needed).unwrap_or(ReadError::Truncated { offset, needed: needed as u64, got: 0 })
}

/// Calls `each` with code and value until the options end or contradict themselves.
fn each_option(order: Order, mut rest: &[u8], mut each: impl FnMut(u16, &[u8])) {
    while rest.len() >= 4 {
        let (code, len) = (order.u16(rest, 0), usize::from(order.u16(rest, 2)));
        let Some(value) = rest.get(4..4 + len) else { return };
        if code == 0 {
            return;
        }
        each(code, value);
        rest = rest.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use crate::error::ReadError;
    use crate::reader::Reader;

    /// Writes blocks in a byte order of choice.
    struct Blocks {
        big: bool,
        out: Vec<u8>,
    }

    impl Blocks {
        fn two(&self, v: u16) -> [u8; 2] {
            if self.big { v.to_be_bytes() } else { v.to_le_bytes() }
        }
        fn four(&self, v: u32) -> [u8; 4] {
            if self.big { v.to_be_bytes() } else { v.to_le_bytes() }
        }
        fn eight(&self, v: u64) -> [u8; 8] {
            if self.big { v.to_be_bytes() } else { v.to_le_bytes() }
        }
        fn block(&mut self, kind: u32, body: &[u8]) {
            let total = (body.len().next_multiple_of(4) + 12) as u32;
            let (kind, total) = (self.four(kind), self.four(total));
            self.out.extend(kind);
            self.out.extend(total);
            self.out.extend(body);
            self.out.resize(self.out.len().next_multiple_of(4), 0);
            self.out.extend(total);
        }
        fn section(&mut self) {
            let body =
                [&self.four(0x1a2b_3c4d)[..], &self.two(1), &self.two(0), &[0xff; 8]].concat();
            self.block(0x0a0d_0d0a, &body);
        }
        fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
            let mut out = [&self.two(code)[..], &self.two(value.len() as u16), value].concat();
            out.resize(out.len().next_multiple_of(4), 0);
            out
        }
        fn interface(&mut self, linktype: u16, options: &[(u16, &[u8])]) {
            let mut body = [&self.two(linktype)[..], &[0, 0], &self.four(0)].concat();
            for (code, value) in options {
                body.extend(self.option(*code, value));
            }
            body.extend(self.option(0, &[]));
            self.block(1, &body);
        }
        fn enhanced(&mut self, interface: u32, ticks: u64, captured: u32, data: &[u8]) {
            let fields = [interface, (ticks >> 32) as u32, ticks as u32, captured, 1500];
            let mut body: Vec<u8> = fields.iter().flat_map(|f| self.four(*f)).collect();
            body.extend(data);
            self.block(6, &body);
        }
    }

    fn begun(big: bool) -> Blocks {
        let mut b = Blocks { big, out: Vec::new() };
        b.section();
        b
    }

    type Seen = Vec<(u64, u32, u16, u32, Vec<u8>)>;

    fn read(bytes: &[u8]) -> (Seen, Reader<&[u8]>, Option<ReadError>) {
        let mut reader = Reader::new(bytes).expect("opens");
        let mut frames = Vec::new();
        loop {
            match reader.next_frame() {
                Ok(Some(f)) => {
                    frames.push((f.time.0, f.interface, f.linktype, f.wire_len, f.data.to_vec()))
                }
                Ok(None) => return (frames, reader, None),
                Err(e) => return (frames, reader, Some(e)),
            }
        }
    }

    #[test]
    fn every_resolution_and_offset_gives_nanoseconds_in_both_byte_orders() {
        for big in [false, true] {
            let mut b = begun(big);
            let offset = b.eight(100);
            let before = b.eight((-2_i64) as u64);
            b.interface(1, &[]);
            b.interface(1, &[(2, b"eth0"), (9, &[9])]);
            b.interface(101, &[(9, &[3]), (14, &offset)]);
            b.interface(113, &[(9, &[0x80 | 10])]);
            b.interface(276, &[(9, &[12])]);
            b.interface(276, &[(9, &[0]), (14, &before)]);
            for (i, ticks) in [5_000_000, 5_000_000_001, 5_000, 5 * 1024, 5_000_000_000_000, 7]
                .into_iter()
                .enumerate()
            {
                b.enhanced(i as u32, ticks, 3, b"abc");
            }
            let (frames, reader, end) = read(&b.out);
            assert!(end.is_none());
            let times: Vec<_> = frames.iter().map(|f| f.0).collect();
            let s = 1_000_000_000;
            assert_eq!(times, [5 * s, 5 * s + 1, 105 * s, 5 * s, 5 * s, 5 * s]);
            assert_eq!(frames[2], (105 * s, 2, 101, 1500, b"abc".to_vec()));
            assert_eq!(reader.interfaces()[1].name, "eth0");
        }
    }

    #[test]
    fn a_later_section_has_its_own_byte_order_and_interfaces() {
        let mut first = begun(false);
        first.interface(1, &[(2, b"eth0")]);
        first.enhanced(0, 1, 1, b"a");
        let mut second = begun(true);
        second.interface(101, &[(2, b"tun0")]);
        second.enhanced(0, 2, 1, b"b");
        let both = [first.out, second.out].concat();
        let (frames, reader, end) = read(&both);
        assert!(end.is_none());
        assert_eq!(frames[0], (1_000, 0, 1, 1500, b"a".to_vec()));
        assert_eq!(frames[1], (2_000, 1, 101, 1500, b"b".to_vec()));
        assert_eq!(reader.interfaces().len(), 2);
    }

    #[test]
    fn simple_and_obsolete_packets_and_unknown_blocks_are_read_or_skipped() {
        let mut b = begun(true);
        b.interface(1, &[]);
        b.block(0x0000_0bad, &[1; 5000]);
        b.block(4, &[0; 4]);
        b.enhanced(0, 7, 2, b"ab");
        let old = [
            &[0, 0, 0, 9][..],
            &[0; 4],
            &8_u32.to_be_bytes(),
            &2_u32.to_be_bytes(),
            &60_u32.to_be_bytes(),
            b"cd",
        ];
        b.block(2, &old.concat());
        b.block(3, &[&[0, 0, 0, 3][..], b"efg"].concat());
        let (frames, _, end) = read(&b.out);
        assert!(end.is_none());
        assert_eq!(frames[1], (8_000, 0, 1, 60, b"cd".to_vec()));
        assert_eq!(frames[2], (8_000, 0, 1, 3, b"efg".to_vec()));
    }

    #[test]
    fn packets_of_an_undescribed_interface_or_with_a_false_length_are_skipped_and_counted() {
        let mut b = begun(false);
        b.enhanced(0, 1, 1, b"a");
        b.interface(1, &[]);
        b.enhanced(1, 1, 1, b"a");
        b.enhanced(0, 1, 100, b"a");
        b.enhanced(0, 1, 1, b"a");
        let (frames, reader, end) = read(&b.out);
        assert!(end.is_none());
        assert_eq!((frames.len(), reader.skipped()), (1, 3));
    }

    #[test]
    fn blocks_that_contradict_themselves_stop_the_reading() {
        for (at, value) in [(4, 0), (4, 13), (7, 0x7f), (32, 99)] {
            let mut b = begun(false);
            b.interface(1, &[]);
            b.enhanced(0, 1, 1, b"a");
            let last = b.out.len();
            b.enhanced(0, 1, 1, b"a");
            b.out[last + at] = value;
            let (frames, _, end) = read(&b.out);
            assert_eq!(frames.len(), 1);
            assert!(
                matches!(end, Some(ReadError::Corrupt { offset, .. }) if offset == last as u64),
                "{end:?}"
            );
        }
    }

    #[test]
    fn more_interfaces_than_any_machine_has_are_corrupt() {
        let mut b = begun(false);
        for _ in 0..70_000 {
            b.interface(1, &[]);
        }
        assert!(matches!(read(&b.out).2, Some(ReadError::Corrupt { .. })));
    }
}
