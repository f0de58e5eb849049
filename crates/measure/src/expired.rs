//! Probes that expire on the way: sent with a small hop limit, answered by a router with an ICMP error.
//!
//! The kernel queues these errors at the socket that sent the probe (`IP_RECVERR`), so no right is needed. An answer holds
//! as much of the probe as the router quotes, which may be nothing behind the UDP header (RFC 792).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
};
use nix::sys::time::TimeSpec;

use crate::wire::probe::LENGTH;

/// `SO_EE_ORIGIN_ICMP` and `SO_EE_ORIGIN_ICMP6`, of linux/errqueue.h.
const ICMP: u8 = 2;
const ICMP6: u8 = 3;
/// Time exceeded: RFC 792, RFC 4443 section 3.3.
const EXCEEDED: u8 = 11;
const EXCEEDED6: u8 = 3;

/// A router's answer.
pub struct Expired {
    /// The router.
    pub from: IpAddr,
    /// What it quoted of the probe's payload.
    pub quoted: Vec<u8>,
    /// When the answer came, on CLOCK_REALTIME.
    pub stamp: Option<Duration>,
}

/// Has the kernel queue routers' answers at this socket.
pub fn listen(socket: &UdpSocket) -> io::Result<()> {
    match socket.local_addr()?.is_ipv4() {
        true => setsockopt(socket, Ipv4RecvErr, &true)?,
        false => setsockopt(socket, Ipv6RecvErr, &true)?,
    }
    Ok(())
}

/// Sends a datagram that expires at this hop.
pub fn send(socket: &UdpSocket, bytes: &[u8], hop: u8) -> io::Result<()> {
    let limit = i32::from(hop);
    let control = match socket.local_addr()?.is_ipv4() {
        true => ControlMessage::Ipv4Ttl(&limit),
        false => ControlMessage::Ipv6HopLimit(&limit),
    };
    let parts = [IoSlice::new(bytes)];
    let flags = MsgFlags::empty();
    sendmsg::<()>(socket.as_raw_fd(), &parts, &[control], flags, None)?;
    Ok(())
}

/// The next queued answer, without waiting. `None`: there is none; `Some(None)`: an error that is no answer.
pub fn next(socket: &UdpSocket) -> Option<Option<Expired>> {
    let mut buffer = [0; LENGTH];
    let mut control = nix::cmsg_space!(TimeSpec, libc::sock_extended_err, libc::sockaddr_in6);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)
            .ok()?;
    let (mut from, mut stamp) = (None, None);
    for part in message.cmsgs().into_iter().flatten() {
        match part {
            ControlMessageOwned::ScmTimestampns(at) => stamp = Some(Duration::from(at)),
            ControlMessageOwned::Ipv4RecvErr(e, Some(at))
                if (e.ee_origin, e.ee_type) == (ICMP, EXCEEDED) =>
            {
                from = Some(IpAddr::from(at.sin_addr.s_addr.to_ne_bytes()));
            }
            ControlMessageOwned::Ipv6RecvErr(e, Some(at))
                if (e.ee_origin, e.ee_type) == (ICMP6, EXCEEDED6) =>
            {
                from = Some(IpAddr::from(at.sin6_addr.s6_addr));
            }
            _ => {}
        }
    }
    let length = message.bytes;
    Some(from.map(|from| Expired { from, quoted: buffer[..length].to_vec(), stamp }))
}
