//! TUN devices in network namespaces.
//!
//! A thread of its own enters the namespace and makes the device there, so that program and other
//! threads stay in theirs. The device lives as long as its descriptors. It is up and has no
//! address.
//!
//! The only file with `unsafe` code but for the scheduling class in `worker`: ioctl takes raw
//! structs.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::sched::{CloneFlags, setns};

/// Packets that the kernel keeps for us while we are busy: half a second of full packets at a fifth
/// of a gigabit, or of 20,000 small ones a second. Beyond it the kernel drops, and counts.
const QUEUE_LENGTH: i32 = 10_000;
/// Ethernet's MTU, which the scenario's default segments of 1,448 bytes fill.
pub const MTU: i32 = 1_500;

/// Options of a device.
#[derive(Clone, Debug)]
pub struct TunOptions<'a> {
    /// Path of the namespace (`/run/netns/NAME`).
    pub namespace: &'a Path,
    /// Name of the device, at most 15 bytes.
    pub name: &'a str,
    /// Queues (IFF_MULTI_QUEUE), at least one.
    pub queues: usize,
    /// Whether it takes large segments and partial checksums.
    pub offload: bool,
}

/// An open TUN device.
#[derive(Debug)]
pub struct Tun {
    /// One descriptor per queue, each non-blocking.
    pub queues: Vec<OwnedFd>,
    /// Name of the device.
    pub name: String,
    statistics: File,
}

/// Counters of a device: the kernel's view, in which *received* is what we wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets dropped because its queue to this program was full.
    pub dropped: u64,
    /// Packets from this program that it did not accept.
    pub refused: u64,
}

impl Tun {
    /// Makes the device and brings it up.
    pub fn open(options: &TunOptions<'_>) -> io::Result<Tun> {
        std::thread::scope(|scope| {
            let made = scope.spawn(|| make(options)).join();
            made.unwrap_or_else(|_| {
                Err(io::Error::other("the thread that made the device panicked"))
            })
        })
    }

    /// A socket in its place, which carries packets with their virtio headers as a device does.
    #[cfg(test)]
    pub(crate) fn stand_in(socket: OwnedFd) -> io::Result<Tun> {
        let statistics = File::open("/proc/net/dev")?;
        Ok(Tun { queues: vec![socket], name: "stand-in".to_owned(), statistics })
    }

    /// The kernel's counters of it.
    pub fn counters(&self) -> io::Result<Counters> {
        let mut text = String::new();
        let mut statistics = &self.statistics;
        statistics.rewind()?;
        statistics.read_to_string(&mut text)?;
        Ok(parse_counters(&text, &self.name).unwrap_or_default())
    }
}

/// The line of a device in `/proc/net/dev`: received bytes, packets, errors, drops, …, then the
/// same for transmitted.
fn parse_counters(text: &str, name: &str) -> Option<Counters> {
    let fields = text.lines().find_map(|line| {
        let (device, rest) = line.split_once(':')?;
        (device.trim() == name).then_some(rest)
    })?;
    let fields: Vec<u64> =
        fields.split_whitespace().map_while(|field| field.parse().ok()).collect();
    Some(Counters { dropped: *fields.get(11)?, refused: fields.get(2)? + fields.get(3)? })
}

fn make(options: &TunOptions<'_>) -> io::Result<Tun> {
    let namespace = File::open(options.namespace)?;
    setns(&namespace, CloneFlags::CLONE_NEWNET)?;
    let queues =
        (0..options.queues.max(1)).map(|_| attach(options)).collect::<io::Result<Vec<_>>>()?;
    bring_up(options.name)?;
    // Opened here, it shows this namespace's devices from then on.
    let statistics = File::open("/proc/thread-self/net/dev")?;
    Ok(Tun { queues, name: options.name.to_owned(), statistics })
}

fn attach(options: &TunOptions<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the path is a C string; the descriptor is checked and owned at once.
    let fd = unsafe {
        let fd = libc::open(c"/dev/net/tun".as_ptr(), flags);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let mut request = request(options.name);
    let mut kind = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if options.queues > 1 {
        kind |= libc::IFF_MULTI_QUEUE;
    }
    request.ifr_ifru.ifru_flags = kind as libc::c_short;
    control(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request)?;
    let offloads = match options.offload {
        true => libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN,
        false => 0,
    };
    // SAFETY: TUNSETOFFLOAD takes its flags as the argument itself.
    if unsafe {
        libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(offloads))
    } < 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

fn bring_up(name: &str) -> io::Result<()> {
    // SAFETY: no pointers; the descriptor is checked and owned at once.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let socket = socket.as_raw_fd();
    let mut request = request(name);
    request.ifr_ifru.ifru_mtu = MTU;
    control(socket, libc::SIOCSIFMTU, &raw mut request)?;
    request.ifr_ifru.ifru_metric = QUEUE_LENGTH;
    control(socket, libc::SIOCSIFTXQLEN, &raw mut request)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    control(socket, libc::SIOCSIFFLAGS, &raw mut request)
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: ifreq is plain old data; all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn control(fd: RawFd, what: libc::c_ulong, request: *mut libc::ifreq) -> io::Result<()> {
    // SAFETY: all requests here take a pointer to an ifreq, which outlives the call.
    match unsafe { libc::ioctl(fd, what as _, request) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_the_line_of_the_device() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n\
                    up: 10 2 1 3 0 0 0 0 20 4 0 77 0 0 0 0\n upper: 1 1 1 1 0 0 0 0 1 1 1 1 0 0 0 0\n";
        assert_eq!(parse_counters(text, "up"), Some(Counters { dropped: 77, refused: 4 }));
        assert_eq!(parse_counters(text, "gone"), None);
    }
}
