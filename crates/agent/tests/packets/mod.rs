//! TCP segments as they stand on a device: headers, options, checksums, VLAN tags, IPv4 and IPv6.

/// A connection between 10.0.0.1 (inside) and 192.0.2.1, or their like.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub v6: bool,
    pub vlans: usize,
    pub port: u16,
    /// Window Scale options of the inner and the outer end.
    pub scales: [Option<u8>; 2],
    pub stamped: bool,
}

/// A segment of one of both ends.
pub struct Segment<'a> {
    pub out: bool,
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub options: &'a [u8],
    pub payload: usize,
}

fn sum(bytes: &[u8]) -> u32 {
    let pairs =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    pairs.sum()
}

fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

impl Ends {
    /// Where the TCP header begins.
    pub fn tcp(&self) -> usize {
        14 + 4 * self.vlans + if self.v6 { 40 } else { 20 }
    }

    /// Addresses of source and destination.
    pub fn addresses(&self, out: bool) -> (Vec<u8>, Vec<u8>) {
        let (inside, outside) = if self.v6 {
            let far = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            ([&far[..], &[1]].concat(), [&far[..], &[2]].concat())
        } else {
            (vec![10, 0, 0, 1], vec![192, 0, 2, 1])
        };
        if out { (inside, outside) } else { (outside, inside) }
    }

    /// The segment as a packet on the wire.
    pub fn packet(&self, s: &Segment) -> Vec<u8> {
        let mut options = s.options.to_vec();
        options.resize(options.len().next_multiple_of(4), 0);
        let mut tcp = Vec::new();
        let (from, to) = if s.out { (self.port, 443) } else { (443, self.port) };
        tcp.extend(from.to_be_bytes());
        tcp.extend(to.to_be_bytes());
        tcp.extend(s.seq.to_be_bytes());
        tcp.extend(s.ack.to_be_bytes());
        tcp.extend([((20 + options.len()) / 4) as u8 * 16, s.flags]);
        tcp.extend(s.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&options);
        tcp.resize(tcp.len() + s.payload, 0x5a);
        let (source, destination) = self.addresses(s.out);
        let length = tcp.len() as u16;
        let pseudo = sum(&source) + sum(&destination) + 6 + u32::from(length);
        let check = folded(pseudo + sum(&tcp));
        tcp[16..18].copy_from_slice(&check.to_be_bytes());
        let kind: u16 = if self.v6 { 0x86dd } else { 0x0800 };
        let mut packet = vec![2; 12];
        for vlan in 0..self.vlans {
            packet.extend(if vlan + 1 < self.vlans { [0x88, 0xa8] } else { [0x81, 0] });
            packet.extend([0, 7 + vlan as u8]);
        }
        packet.extend(kind.to_be_bytes());
        if self.v6 {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend(length.to_be_bytes());
            packet.extend([6, 64]);
        } else {
            packet.extend([0x45, 0]);
            packet.extend((length + 20).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        }
        packet.extend(source);
        packet.extend(destination);
        packet.extend(tcp);
        packet
    }

    /// Whether the checksum is right.
    pub fn sound(&self, packet: &[u8], out: bool) -> bool {
        let tcp = &packet[self.tcp()..];
        let (source, destination) = self.addresses(out);
        folded(sum(&source) + sum(&destination) + 6 + tcp.len() as u32 + sum(tcp)) == 0
    }

    /// The window field of a packet.
    pub fn window(&self, packet: &[u8]) -> u16 {
        let at = self.tcp() + 14;
        u16::from_be_bytes([packet[at], packet[at + 1]])
    }

    /// The option, or none.
    pub fn stamps(&self, val: u32, echo: u32) -> Vec<u8> {
        match self.stamped {
            true => [&[1, 1, 8, 10][..], &val.to_be_bytes(), &echo.to_be_bytes()].concat(),
            false => Vec::new(),
        }
    }

    /// In force only if both have offered one (RFC 7323 section 2.2).
    pub fn scale(&self, side: usize) -> u32 {
        match self.scales {
            [Some(_), Some(_)] => u32::from(self.scales[side].unwrap_or(0).min(14)),
            _ => 0,
        }
    }
}
