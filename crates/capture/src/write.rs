//! Writes capture files: pcapng, or pcap for old readers; both in nanoseconds and little-endian.
//!
//! Source: draft-ietf-opsawg-pcapng, draft-ietf-opsawg-pcap. What [`crate::Reader`] reads back is what was
//! written.

use std::io::{self, Write};

use units::Instant;

/// Snap length that stands for "no limit" in tcpdump.
const SNAPLEN: u32 = 262_144;

enum Format {
    Pcapng,
    Pcap,
}

/// Writes frames of one link type; pcapng may have several interfaces.
pub struct Writer<W: Write> {
    out: W,
    format: Format,
    interfaces: u32,
}

impl<W: Write> Writer<W> {
    /// A pcapng file with one interface for each name (at least one, nameless if need be).
    pub fn new(mut out: W, linktype: u16, names: &[&str]) -> io::Result<Self> {
        // Byte order magic, version 1.0, section length unknown.
        let mut body = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        body.extend([1, 0, 0, 0]);
        body.extend([0xff; 8]);
        block(&mut out, 0x0a0d_0d0a, &[&body])?;
        for name in if names.is_empty() { &[""] } else { names } {
            let mut body = linktype.to_le_bytes().to_vec();
            body.extend([0, 0]);
            body.extend(SNAPLEN.to_le_bytes());
            if !name.is_empty() {
                let name = &name.as_bytes()[..name.len().min(usize::from(u16::MAX))];
                option(&mut body, 2, name);
            }
            // Resolution 10^-9 s.
            option(&mut body, 9, &[9]);
            option(&mut body, 0, &[]);
            block(&mut out, 1, &[&body])?;
        }
        let interfaces = u32::try_from(names.len().max(1)).unwrap_or(u32::MAX);
        Ok(Writer { out, format: Format::Pcapng, interfaces })
    }

    /// A pcap file with nanoseconds.
    pub fn pcap(mut out: W, linktype: u16) -> io::Result<Self> {
        for field in [0xa1b2_3c4d, 0x0004_0002, 0, 0, SNAPLEN, u32::from(linktype)] {
            out.write_all(&field.to_le_bytes())?;
        }
        Ok(Writer { out, format: Format::Pcap, interfaces: 1 })
    }

    /// A frame of the first interface; `orig_len` is its length on the wire.
    pub fn write(&mut self, time: Instant, data: &[u8], orig_len: u32) -> io::Result<()> {
        self.write_on(0, time, data, orig_len)
    }

    /// A frame of the given interface.
    pub fn write_on(
        &mut self,
        interface: u32,
        time: Instant,
        data: &[u8],
        orig_len: u32,
    ) -> io::Result<()> {
        if interface >= self.interfaces {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "interface was not described"));
        }
        let too_long =
            || io::Error::new(io::ErrorKind::InvalidInput, "frame longer than a record can hold");
        let captured = u32::try_from(data.len()).map_err(|_| too_long())?;
        let ns = time.as_nanos();
        match self.format {
            Format::Pcap => {
                let seconds = u32::try_from(ns / 1_000_000_000).map_err(|_| {
                    io::Error::new(io::ErrorKind::InvalidInput, "time after the year 2106")
                })?;
                for field in
                    [seconds, (ns % 1_000_000_000) as u32, captured, orig_len.max(captured)]
                {
                    self.out.write_all(&field.to_le_bytes())?;
                }
                self.out.write_all(data)
            }
            Format::Pcapng => {
                let mut head = [0; 20];
                let fields =
                    [interface, (ns >> 32) as u32, ns as u32, captured, orig_len.max(captured)];
                for (bytes, field) in head.chunks_exact_mut(4).zip(fields) {
                    bytes.copy_from_slice(&field.to_le_bytes());
                }
                block(&mut self.out, 6, &[&head, data])
            }
        }
    }

    /// Records how many packets an interface lost (pcapng only; pcap has no field for it).
    pub fn report_drops(&mut self, interface: u32, drops: u64) -> io::Result<()> {
        if let Format::Pcapng = self.format {
            let mut body = interface.to_le_bytes().to_vec();
            body.extend([0; 8]);
            option(&mut body, 5, &drops.to_le_bytes());
            option(&mut body, 0, &[]);
            block(&mut self.out, 5, &[&body])?;
        }
        Ok(())
    }

    /// Records when the capture on an interface ended (pcapng only).
    pub fn report_end(&mut self, interface: u32, at: Instant) -> io::Result<()> {
        if let Format::Pcapng = self.format {
            let time = [(at.as_nanos() >> 32) as u32, at.as_nanos() as u32].map(u32::to_le_bytes);
            let mut body = interface.to_le_bytes().to_vec();
            body.extend(time.concat());
            option(&mut body, 3, &time.concat());
            option(&mut body, 0, &[]);
            block(&mut self.out, 5, &[&body])?;
        }
        Ok(())
    }

    /// Flushes and returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn block(out: &mut impl Write, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
    let len: usize = parts.iter().map(|p| p.len()).sum();
    let padding = len.next_multiple_of(4) - len;
    let too_long =
        |_| io::Error::new(io::ErrorKind::InvalidInput, "block longer than its length field");
    let total = u32::try_from(len + padding + 12).map_err(too_long)?;
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&total.to_le_bytes())?;
    for part in parts {
        out.write_all(part)?;
    }
    out.write_all(&[0; 3][..padding])?;
    out.write_all(&total.to_le_bytes())
}
