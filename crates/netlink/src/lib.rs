//! Netlink sockets of Linux (netlink(7), rtnetlink(7)): devices, queue disciplines, routes, TCP sockets, and the generic
//! families of kernel subsystems. Reads them all; requests that set something are the caller's.
//!
//! A message is `struct nlmsghdr`, a fixed part, and attributes of type, length and value. The
//! answers are returned, or the kernel's errno.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendmsg, socket,
};

pub mod diag;
pub mod generic;
pub mod route;

/// Message types of linux/rtnetlink.h: `RTM_GETLINK` and others.
pub mod kind {
    #![allow(missing_docs)]
    pub const GET_LINK: u16 = 18;
    pub const GET_ROUTE: u16 = 26;
    pub const NEW_QDISC: u16 = 36;
    pub const DEL_QDISC: u16 = 37;
    pub const GET_QDISC: u16 = 38;
    pub const NEW_CLASS: u16 = 40;
}

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Bytes of `struct nlmsghdr`, `struct ifinfomsg`, `struct tcmsg`.
const HEADER: usize = 16;
const IFINFO: usize = 16;
/// Bytes of `struct tcmsg`.
pub const TCMSG: usize = 20;

/// The kind of a request, which sets its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Asks for one object.
    Get,
    /// Asks for all objects of a type.
    Dump,
    /// Creates an object, or replaces the one that exists.
    Put,
    /// Removes an object that exists.
    Remove,
}

/// A sequence of attributes.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Appends one attribute and its padding.
    #[must_use]
    pub fn with(mut self, kind: u16, value: &[u8]) -> Attributes {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// As they are sent.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends an attribute that contains attributes.
    #[must_use]
    pub fn with_nested(self, kind: u16, inner: &Attributes) -> Attributes {
        self.with(kind, &inner.0)
    }
}

/// The value of the first attribute of a kind.
pub fn attribute(mut from: &[u8], wanted: u16) -> Option<&[u8]> {
    while from.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([from[0], from[1]]));
        // The two upper bits are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
        let kind = u16::from_ne_bytes([from[2], from[3]]) & 0x3fff;
        let value = from.get(4..length)?;
        if kind == wanted {
            return Some(value);
        }
        from = from.get(length.next_multiple_of(4)..)?;
    }
    None
}

/// The word of four bytes at an offset.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A network device, as netlink describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number in the kernel: index or handle.
    pub index: i32,
    /// Largest packet (MTU), bytes.
    pub mtu: u32,
    /// Bytes of its link-layer header: 14 with Ethernet, 0 without a link layer.
    pub header: u32,
}

/// `TC_H_ROOT`, the parent of a device's root discipline.
pub const ROOT: u32 = u32::MAX;

/// A queue discipline of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// Name of the kind, as in `tc qdisc`.
    pub kind: String,
    /// Its number in the kernel: index or handle.
    pub handle: u32,
    /// Handle of its parent, or [`ROOT`].
    pub parent: u32,
    /// Bytes queued in it.
    pub backlog: u64,
    /// Bytes that have left it since it was made.
    pub bytes: u64,
}

impl Qdisc {
    /// Whether it is the first discipline that a packet of the device meets.
    pub fn is_root(&self) -> bool {
        self.parent == ROOT
    }
}

/// The routing socket of the namespace in which it was opened.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    number: u32,
}

impl Netlink {
    /// Opens the routing socket.
    pub fn open() -> io::Result<Netlink> {
        Netlink::open_for(SockProtocol::NetlinkRoute)
    }

    /// Opens a socket of another netlink family.
    pub fn open_for(protocol: SockProtocol) -> io::Result<Netlink> {
        let socket =
            socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        Ok(Netlink { socket, number: 0 })
    }

    /// Sends a request and returns the bodies of its answers.
    pub fn ask(
        &mut self,
        kind: u16,
        request: Request,
        fixed: &[u8],
        attributes: &Attributes,
    ) -> io::Result<Vec<Vec<u8>>> {
        self.number = self.number.wrapping_add(1);
        let flags = REQUEST
            | match request {
                Request::Get => ACK,
                Request::Dump => DUMP,
                Request::Put => ACK | CREATE | REPLACE,
                Request::Remove => ACK,
            };
        let length = HEADER + fixed.len() + attributes.0.len();
        let length = u32::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut header = Vec::with_capacity(HEADER);
        header.extend(length.to_ne_bytes());
        header.extend(kind.to_ne_bytes());
        header.extend(flags.to_ne_bytes());
        header.extend(self.number.to_ne_bytes());
        header.extend([0; 4]);
        let parts = [IoSlice::new(&header), IoSlice::new(fixed), IoSlice::new(&attributes.0)];
        let kernel = NetlinkAddr::new(0, 0);
        sendmsg(self.socket.as_raw_fd(), &parts, &[], MsgFlags::empty(), Some(&kernel))?;
        self.answers()
    }

    fn answers(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut found = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            if bodies(&buffer[..length], self.number, &mut found)? {
                return Ok(found);
            }
        }
    }

    /// A device by its name.
    pub fn device(&mut self, name: &str) -> io::Result<Device> {
        const IFLA_IFNAME: u16 = 3;
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        let wanted = Attributes::default().with(IFLA_IFNAME, &text);
        let answers = self.ask(kind::GET_LINK, Request::Get, &[0; IFINFO], &wanted)?;
        answers.iter().find_map(|body| device(body)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The name of a device by its number.
    pub fn name(&mut self, index: i32) -> io::Result<String> {
        const IFLA_IFNAME: u16 = 3;
        let mut message = [0; IFINFO];
        message[4..8].copy_from_slice(&index.to_ne_bytes());
        let answers = self.ask(kind::GET_LINK, Request::Get, &message, &Attributes::default())?;
        let name = answers.iter().find_map(|body| attribute(body.get(IFINFO..)?, IFLA_IFNAME));
        let name = name.ok_or(io::ErrorKind::NotFound)?;
        Ok(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned())
    }

    /// The queue disciplines of a device.
    pub fn qdiscs(&mut self, device: i32) -> io::Result<Vec<Qdisc>> {
        let answers =
            self.ask(kind::GET_QDISC, Request::Dump, &tcmsg(device, 0, 0), &Attributes::default())?;
        Ok(answers
            .iter()
            .filter(|body| word(body, 4) == Some(device as u32))
            .filter_map(|body| qdisc(body))
            .collect())
    }
}

/// Appends the bodies of a request's answers to `found`. Returns whether they are complete, or the
/// kernel's errno.
pub fn bodies(mut received: &[u8], number: u32, found: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while let Some(size) = word(received, 0).map(|size| size as usize) {
        let Some(message) = received.get(..size).filter(|_| size >= HEADER) else { break };
        received = received.get(size.next_multiple_of(4)..).unwrap_or_default();
        if word(message, 8) != Some(number) {
            continue;
        }
        match u16::from_ne_bytes([message[4], message[5]]) {
            ERROR => match word(message, HEADER).unwrap_or(0) as i32 {
                0 => return Ok(true),
                error => return Err(io::Error::from_raw_os_error(error.saturating_neg())),
            },
            DONE => return Ok(true),
            _ => found.push(message[HEADER..].to_vec()),
        }
    }
    Ok(false)
}

/// Encodes `struct tcmsg` of linux/rtnetlink.h.
pub fn tcmsg(device: i32, handle: u32, parent: u32) -> [u8; TCMSG] {
    let mut message = [0; TCMSG];
    message[4..8].copy_from_slice(&device.to_ne_bytes());
    message[8..12].copy_from_slice(&handle.to_ne_bytes());
    message[12..16].copy_from_slice(&parent.to_ne_bytes());
    message
}

/// The device of a message's body.
pub fn device(body: &[u8]) -> Option<Device> {
    const IFLA_MTU: u16 = 4;
    const ETHERNET: u16 = 1;
    Some(Device {
        index: word(body, 4)? as i32,
        mtu: word(attribute(body.get(IFINFO..)?, IFLA_MTU)?, 0)?,
        header: if u16::from_ne_bytes([*body.get(2)?, *body.get(3)?]) == ETHERNET { 14 } else { 0 },
    })
}

/// The queue discipline of a message's body.
pub fn qdisc(body: &[u8]) -> Option<Qdisc> {
    const TCA_KIND: u16 = 1;
    const TCA_STATS: u16 = 3;
    const TCA_STATS2: u16 = 7;
    const TCA_STATS_BASIC: u16 = 1;
    let attributes = body.get(TCMSG..)?;
    let name = attribute(attributes, TCA_KIND)?;
    // struct tc_stats: bytes, packets, drops, overlimits, bps, pps, qlen, backlog.
    let backlog = attribute(attributes, TCA_STATS).and_then(|stats| word(stats, 32)).unwrap_or(0);
    let basic =
        attribute(attributes, TCA_STATS2).and_then(|stats| attribute(stats, TCA_STATS_BASIC));
    let bytes = basic.and_then(|basic| Some(u64::from_ne_bytes(basic.get(..8)?.try_into().ok()?)));
    Some(Qdisc {
        kind: String::from_utf8_lossy(name).trim_end_matches('\0').to_owned(),
        handle: word(body, 8)?,
        parent: word(body, 12)?,
        backlog: u64::from(backlog),
        bytes: bytes.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_were_written_and_rubbish_is_no_panic() {
        let inner = Attributes::default().with(2, &[9; 5]);
        let all = Attributes::default().with(7, b"one").with_nested(8, &inner);
        assert_eq!(attribute(&all.0, 7), Some(&b"one"[..]));
        assert_eq!(attribute(attribute(&all.0, 8).unwrap(), 2), Some(&[9; 5][..]));
        assert_eq!(attribute(&all.0, 9), None);
        for cut in 0..all.0.len() {
            let _ = attribute(&all.0[..cut], 9);
        }
        assert_eq!(attribute(&[0; 64], 1), None);
        assert_eq!(attribute(&[255; 64], 1), None);
    }

    #[test]
    fn the_loopback_device_is_found() {
        let mut netlink = Netlink::open().unwrap();
        let device = netlink.device("lo").unwrap();
        assert_eq!(device.index, 1);
        assert!(device.mtu >= 1_500);
        assert!(netlink.device("no-such-device").is_err());
        for qdisc in netlink.qdiscs(device.index).unwrap() {
            assert!(!qdisc.kind.is_empty());
        }
    }
}
