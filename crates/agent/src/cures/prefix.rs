//! Prefixes of addresses, as the configuration and the kernel's tables have them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::kernel::layouts::Place;

/// A text that is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no address or prefix, as 192.0.2.0/24 or 2001:db8::/32")]
pub struct PrefixError(pub String);

/// A prefix of addresses: `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address; bits beyond the prefix do not count.
    pub address: IpAddr,
    /// Length of the prefix in bits, from the left.
    pub bits: u8,
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let wrong = || PrefixError(text.to_owned());
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
    /// Whether an address lies in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let beyond = 128 - self.place().prefix;
        // A shift by all bits is none.
        let first = |address| bits(address).checked_shr(beyond).unwrap_or(0);
        first(self.address) == first(address)
    }

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
            assert_eq!(text.parse::<Prefix>().map(|p| p.to_string()).ok().as_deref(), Some(text));
        }
        assert_eq!("192.0.2.1".parse::<Prefix>().map(|p| p.bits).ok(), Some(32));
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

    #[test]
    fn an_address_lies_in_the_prefixes_that_the_configuration_selects() {
        let contains = |prefix: &str, address: &str| {
            prefix.parse::<Prefix>().unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("192.0.2.0/24", "192.0.2.9") && !contains("192.0.2.0/24", "192.0.3.9"));
        assert!(contains("::/0", "192.0.2.9") && contains("0.0.0.0/0", "192.0.2.9"));
        assert!(!contains("0.0.0.0/0", "2001:db8::1") && contains("2001:db8::/32", "2001:db8::1"));
        assert!(contains("192.0.2.9", "192.0.2.9") && !contains("192.0.2.9", "192.0.2.8"));
    }
}
