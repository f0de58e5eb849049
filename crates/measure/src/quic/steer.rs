//! Two sockets of one UDP port: the one takes probes, the other one all else, which is QUIC of a load.
//!
//! signal: the first five bytes · model: the kernel's choice among sockets of one port (SO_REUSEPORT) by a program of classic BPF,
//! which needs no right · action: a second socket beside one that is bound.
//!
//! So a load never waits in the receive buffer of the probes, nor does it drop them there, and only one port has to be open. quinn
//! could read from one socket for both (`AsyncUdpSocket`), but then probes would wait behind the load in this program.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::libc::{sock_filter, sock_fprog};
use nix::sys::socket::sockopt::{AttachReusePortCbpf, ReusePort};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket,
};

use crate::wire::quic_probe::VERSION_1;

/// Of classic BPF (linux/filter.h): load a word of the payload at a fixed place.
const LOAD_WORD: u16 = 0x20;
/// Load a byte.
const LOAD_BYTE: u16 = 0x30;
/// Skip `jt` or `jf` instructions, as the word equals a constant.
const JUMP_EQUAL: u16 = 0x15;
/// Likewise, as the word has a bit of a constant.
const JUMP_SET: u16 = 0x45;
/// Return a constant: the number of the socket, in the order in which they joined.
const RETURN: u16 = 0x06;
/// A long header of QUIC, in which the version follows (RFC 8999 section 5.1).
const LONG: u32 = 0x80;

/// A second socket at the address of one that is bound, for what does not begin with `first`, and is no QUIC of a version other
/// than the first one. So no server of QUIC answers strangers with the versions that it has.
///
/// Only now the first one shares its port: one of a session that has not ended yet would keep it from being bound.
pub fn beside(probes: &UdpSocket, first: [u8; 4]) -> io::Result<UdpSocket> {
    let at: SocketAddr = probes.local_addr()?;
    setsockopt(probes, ReusePort, &true)?;
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let other = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&other, ReusePort, &true)?;
    bind(other.as_raw_fd(), &SockaddrStorage::from(at))?;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut program = [
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_EQUAL, 4, 0, u32::from_be_bytes(first)),
        step(LOAD_BYTE, 0, 0, 0),
        step(JUMP_SET, 0, 3, LONG),
        step(LOAD_WORD, 0, 0, 1),
        step(JUMP_EQUAL, 1, 0, VERSION_1),
        step(RETURN, 0, 0, 0),
        step(RETURN, 0, 0, 1),
    ];
    let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    setsockopt(&other, AttachReusePortCbpf, &program)?;
    Ok(other.into())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_socket_has_its_own_datagrams() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(probes) = UdpSocket::bind(any) else { continue };
            let quic = beside(&probes, *b"UBP1").unwrap();
            assert_eq!(quic.local_addr().unwrap(), probes.local_addr().unwrap());
            for socket in [&probes, &quic] {
                socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            }
            // Many ports, so that a choice by their hash would show.
            for n in 0..32_u8 {
                let client = UdpSocket::bind(any).unwrap();
                client.connect(probes.local_addr().unwrap()).unwrap();
                client.send(&[b'U', b'B', b'P', b'1', n]).unwrap();
                client.send(&[b'U', b'B', b'P', b'2', n]).unwrap();
                let mut buffer = [0; 8];
                assert_eq!(probes.recv(&mut buffer).unwrap(), 5);
                assert_eq!(buffer[3..5], [b'1', n]);
                assert_eq!(quic.recv(&mut buffer).unwrap(), 5);
                assert_eq!(buffer[3..5], [b'2', n]);
                // Long headers: of the version of a load, and of one that is reserved.
                client.send(&[0xc0, 0, 0, 0, 1, n]).unwrap();
                client.send(&[0xc0, 0xa, 0xa, 0xa, 0xa, n]).unwrap();
                assert_eq!(quic.recv(&mut buffer).unwrap(), 6);
                assert_eq!(buffer[4..6], [1, n]);
                assert_eq!(probes.recv(&mut buffer).unwrap(), 6);
                assert_eq!(buffer[4..6], [0xa, n]);
            }
        }
    }

    #[test]
    fn a_port_that_is_not_shared_yet_is_not_taken_twice() {
        let one = UdpSocket::bind("127.0.0.1:0").unwrap();
        let _quic = beside(&one, *b"UBP1").unwrap();
        let again = UdpSocket::bind(one.local_addr().unwrap());
        assert_eq!(again.unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
