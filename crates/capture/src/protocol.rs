//! Protocol numbers of IPv4 and next-header numbers of IPv6 (IANA, "Assigned Internet Protocol Numbers").

pub(crate) const HOP_BY_HOP: u8 = 0;
/// ICMP for IPv4 (RFC 792).
pub const ICMP: u8 = 1;
pub(crate) const IPV4: u8 = 4;
/// TCP (RFC 9293).
pub const TCP: u8 = 6;
/// UDP (RFC 768).
pub const UDP: u8 = 17;
pub(crate) const DCCP: u8 = 33;
pub(crate) const IPV6: u8 = 41;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const GRE: u8 = 47;
/// IPsec authentication header; the packet behind it is readable.
pub(crate) const AUTHENTICATION: u8 = 51;
/// ICMP for IPv6 (RFC 4443).
pub const ICMPV6: u8 = 58;
pub(crate) const NO_NEXT_HEADER: u8 = 59;
pub(crate) const DESTINATION_OPTIONS: u8 = 60;
pub(crate) const ETHERIP: u8 = 97;
pub(crate) const SCTP: u8 = 132;
pub(crate) const MOBILITY: u8 = 135;
pub(crate) const UDP_LITE: u8 = 136;
pub(crate) const MPLS_IN_IP: u8 = 137;
pub(crate) const HIP: u8 = 139;
pub(crate) const SHIM6: u8 = 140;
