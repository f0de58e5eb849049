//! What all cures have in common: why one cannot be had, prefixes of addresses, the clock of leases.

pub mod acks;
pub mod attach;
pub mod congestion;
pub mod gate;
pub mod receive;
pub mod shaper;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use algo::rwnd::drwa;
use units::Bytes;

use crate::kernel::layouts::Place;

/// Why a cure cannot be had here, and what still works without it.
#[derive(Debug, thiserror::Error)]
pub enum CureError {
    /// Not root, or a container that may not use BPF.
    #[error(
        "no rights to change sockets and devices (needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; a container may have to be given \
         them): {0}; what works without: plan, features, defaults"
    )]
    Rights(String),
    /// A kernel without its own types.
    #[error(
        "this kernel has no /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF), so programs cannot find the fields of its sockets and packets; \
         what works without: plan, and the shaper (shaper.enabled) where a modem reports"
    )]
    NoBtf,
    /// No cgroup v2 anywhere.
    #[error(
        "no cgroup v2 is mounted (mount -t cgroup2 none /sys/fs/cgroup/unified), and programs on sockets are attached to one; \
         what works without: the uplink's cures, windows of forwarded downloads, and plan"
    )]
    NoCgroup,
    /// Pins have to lie on a bpf file system.
    #[error(
        "{0} is not on a bpf file system (mount -t bpf bpf /sys/fs/bpf), and programs on sockets are pinned to one; \
         what works without: the uplink's cures, windows of forwarded downloads, and plan"
    )]
    NoPins(PathBuf),
    /// The kernel did not take a program or an operation.
    #[error("the kernel does not take {what} (needs Linux {since}): {why}")]
    Kernel {
        /// What.
        what: &'static str,
        /// First kernel that can.
        since: &'static str,
        /// Its answer.
        why: String,
    },
    /// A file.
    #[error("{path}: {why}")]
    File {
        /// Which.
        path: PathBuf,
        /// What was wrong with it.
        why: std::io::Error,
    },
    /// A map of a program.
    #[error("map {0}: {1}")]
    Map(&'static str, String),
    /// What was asked for is not to be had.
    #[error("{0}")]
    Refused(String),
}

/// A result of a cure.
pub type Result<T> = std::result::Result<T, CureError>;

impl CureError {
    /// For `map_err` on what is done to a file.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> CureError {
        let path = path.into();
        move |why| CureError::File { path, why }
    }
}

/// The window law as the agent uses it. The rate form with an average of one half is back at λ·RTTmin 2 s after a rate step, where the
/// paper's form takes longer; quick fills large paths as fast as autotuning; the kernel's memory bounds the window, not the law. One
/// segment is added to every decision, because a factor alone leaves a window of two segments where it is: 2 · 1.75 · RTTmin/RTT is below
/// three as soon as their own sending takes a tenth of RTTmin.
pub fn window_law() -> drwa::Config {
    drwa::Config {
        form: drwa::Form::Rate,
        alpha: 8,
        quick: true,
        increment: 1,
        max: Bytes(1 << 30),
        ..drwa::Config::default()
    }
}

/// CLOCK_MONOTONIC, as programs in the kernel see it.
pub fn now_ns() -> u64 {
    match nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC) {
        Ok(time) => time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64,
        // It always exists; zero lets every lease look past, which undoes.
        Err(_) => 0,
    }
}

/// A prefix of addresses: `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// Bits that count.
    pub bits: u8,
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Prefix, String> {
        let wrong =
            || format!("\"{text}\" is no address or prefix, as 192.0.2.0/24 or 2001:db8::/32");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(most);
        if bits > most {
            return Err(wrong());
        }
        Ok(Prefix { address, bits })
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Prefix {
    /// As the kernel's tables have it: IPv4 as ::ffff:a.b.c.d.
    pub fn place(&self) -> Place {
        let (octets, bits) = match self.address {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().octets(), u32::from(self.bits) + 96),
            IpAddr::V6(v6) => (v6.octets(), u32::from(self.bits)),
        };
        Place { prefix: bits, address: words(octets) }
    }
}

fn words(octets: [u8; 16]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, four) in words.iter_mut().zip(octets.chunks_exact(4)) {
        *word = u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
    }
    words
}

/// An address as the kernel's tables have it, for people.
pub fn address(words: [u32; 4]) -> IpAddr {
    let mut octets = [0; 16];
    for (four, word) in octets.chunks_exact_mut(4).zip(words) {
        four.copy_from_slice(&word.to_ne_bytes());
    }
    let v6 = Ipv6Addr::from(octets);
    match v6.to_ipv4_mapped() {
        Some(v4) => IpAddr::V4(Ipv4Addr::from(v4.octets())),
        None => IpAddr::V6(v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_read_and_shown_as_it_was() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "2001:db8::/32", "::1/128"] {
            assert_eq!(text.parse::<Prefix>().map(|p| p.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("192.0.2.1".parse::<Prefix>().map(|p| p.bits), Ok(32));
        for text in ["10.0.0.0/33", "ten", "::/129", "1.2.3.4/x", "", "/8"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_ipv4_prefix_lies_below_the_mapped_ones() {
        let place = "10.1.2.0/24".parse::<Prefix>().unwrap().place();
        assert_eq!(place.prefix, 120);
        assert_eq!(address(place.address), "10.1.2.0".parse::<IpAddr>().unwrap());
        let place = "2001:db8::5".parse::<Prefix>().unwrap().place();
        assert_eq!(
            (place.prefix, address(place.address).to_string().as_str()),
            (128, "2001:db8::5")
        );
    }
}
