//! The pcapng format: sections of blocks, each section with its own byte order and interfaces.
//!
//! Source: draft-ietf-opsawg-pcapng. Block types that carry no packets and no interface are skipped by their
//! length. The interfaces of a later section get indices behind those of the sections before it.

use std::io::Read;

use crate::buffer::Buffer;
use crate::order::Order;
use crate::reader::{Found, Interface, MAX_RECORD, OpenError, ReadError, SNAP_SLACK, longest_record};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED: u32 = 6;

/// Block type, length and the length's repetition.
const FRAMING: usize = 12;
/// A file that describes more interfaces than this is broken, and its descriptions would fill the memory.
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
    /// Seconds to add.
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
    longest_block: u32,
}

impl Pcapng {
    pub(crate) fn recognise(head: &[u8]) -> bool {
        head.starts_with(&SECTION.to_be_bytes())
    }

    pub(crate) fn new() -> Pcapng {
        Pcapng { order: Order::Little, base: 0, clocks: Vec::new(), last_time: 0, longest_block: SNAP_SLACK }
    }

    /// Consumes the first section header.
    pub(crate) fn open<R: Read>(&mut self, buffer: &mut Buffer<R>) -> Result<(), OpenError> {
        // A whole section header: framing, magic, version, section length.
        const NEEDED: usize = 28;
        if !buffer.has(NEEDED) {
            return Err(match buffer.at_end(NEEDED) {
                Some(ReadError::Io { source, .. }) => OpenError::Io(source),
                Some(ReadError::Decompress { source, .. }) => OpenError::Decompress(source),
                _ => OpenError::Truncated { needed: NEEDED as u64, got: buffer.ready().len() as u64 },
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

    fn section<R: Read>(&mut self, buffer: &mut Buffer<R>, interfaces: usize) -> Result<(), ReadError> {
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
    ) -> Result<Option<Found>, ReadError> {
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
                    let why = "block length is beyond belief";
                    return Err(ReadError::Corrupt { offset: buffer.offset(), why });
                }
                buffer.skip(length as usize)?;
                continue;
            }
            // Options may follow the packet, hence twice the longest record.
            if length > self.longest_block.saturating_mul(2) {
                let why = "block length is beyond belief";
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
    fn enhanced(&self, body: &[u8], interfaces: &[Interface]) -> Option<Found> {
        let head = body.first_chunk::<20>()?;
        let order = self.order;
        let ticks = u64::from(order.u32(head, 4)) << 32 | u64::from(order.u32(head, 8));
        let lengths = (order.u32(head, 12), order.u32(head, 16));
        self.packet(body, 20, order.u32(head, 0), ticks, lengths, interfaces)
    }

    /// The obsolete Packet Block: 16 bits of interface, 16 of drop count.
    fn old_packet(&self, body: &[u8], interfaces: &[Interface]) -> Option<Found> {
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
    ) -> Option<Found> {
        let index = self.base.checked_add(id as usize)?;
        let interface = interfaces.get(index)?;
        let clock = self.clocks.get(index)?;
        let len = captured as usize;
        if len > body.len() - from {
            return None;
        }
        Some(Found {
            time: clock.time(ticks),
            interface: index as u32,
            linktype: interface.linktype,
            wire_len: original.max(captured),
            from,
            len,
        })
    }

    fn simple(&self, body: &[u8], interfaces: &[Interface]) -> Option<Found> {
        if body.len() < 4 {
            return None;
        }
        let interface = interfaces.get(self.base)?;
        let original = self.order.u32(body, 0);
        let snaplen = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
        let len = (original.min(snaplen) as usize).min(body.len() - 4);
        Some(Found {
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
        let mut described =
            Interface { name: String::new(), linktype: order.u16(body, 0), snaplen, reported_drops: None };
        // Microseconds unless told otherwise.
        let mut clock = Clock { scale: Scale::Times(1_000), offset: 0 };
        each_option(order, body.get(8..).unwrap_or_default(), |code, value| match (code, value.len()) {
            (2, _) => described.name = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned(),
            (9, 1..) => clock.scale = Scale::from_option(value[0]),
            (14, 8..) => clock.offset = order.u64(value, 0).cast_signed(),
            _ => {}
        });
        self.longest_block = self.longest_block.max(longest_record(snaplen));
        self.clocks.push(clock);
        interfaces.push(described);
    }

    fn statistics(&self, body: &[u8], interfaces: &mut [Interface]) {
        if body.len() < 12 {
            return;
        }
        let order = self.order;
        let index = self.base.saturating_add(order.u32(body, 0) as usize);
        let Some(interface) = interfaces.get_mut(index) else { return };
        each_option(order, &body[12..], |code, value| {
            if code == 5 && value.len() >= 8 {
                interface.reported_drops = Some(order.u64(value, 0));
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
