//! Default routes and this host's addresses, from the routing socket (rtnetlink(7)).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Attributes, Netlink, Request, attribute, word};

const RTM_GETADDR: u16 = 22;
const RTM_GETROUTE: u16 = 26;
/// Bytes of `struct rtmsg`, `struct ifaddrmsg`.
const RTMSG: usize = 12;
const IFADDRMSG: usize = 8;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TABLE_MAIN: u8 = 254;
const TYPE_UNICAST: u8 = 1;

/// A default route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Default {
    /// Index of its device; of the first one of a multipath route.
    pub device: u32,
    /// Priority: the route with the smallest metric is used.
    pub metric: u32,
    /// An IPv6 route, else IPv4.
    pub ipv6: bool,
}

impl Netlink {
    /// Default routes of the main table: IPv4's before IPv6's, the smallest metric first.
    pub fn defaults(&mut self) -> io::Result<Vec<Default>> {
        let answers = self.ask(RTM_GETROUTE, Request::Dump, &[0; RTMSG], &Attributes::default())?;
        let mut found: Vec<Default> = answers.iter().filter_map(|body| default(body)).collect();
        found.sort_by_key(|route| (route.ipv6, route.metric));
        Ok(found)
    }

    /// The addresses of this host.
    pub fn addresses(&mut self) -> io::Result<Vec<IpAddr>> {
        let answers =
            self.ask(RTM_GETADDR, Request::Dump, &[0; IFADDRMSG], &Attributes::default())?;
        Ok(answers.iter().filter_map(|body| address(body)).collect())
    }
}

/// The default route of a message's body, if it is one. `struct rtmsg`: family, bits of destination
/// and source, tos, table, protocol, scope, type, flags.
pub fn default(body: &[u8]) -> Option<Default> {
    const RTA_OIF: u16 = 4;
    const RTA_PRIORITY: u16 = 6;
    const RTA_MULTIPATH: u16 = 9;
    let fixed = body.get(..RTMSG)?;
    if fixed[1] != 0 || fixed[4] != TABLE_MAIN || fixed[7] != TYPE_UNICAST {
        return None;
    }
    let attributes = body.get(RTMSG..)?;
    let device = match attribute(attributes, RTA_OIF) {
        Some(device) => word(device, 0)?,
        // struct rtnexthop: length, flags, hops, device.
        None => word(attribute(attributes, RTA_MULTIPATH)?, 4)?,
    };
    let metric =
        attribute(attributes, RTA_PRIORITY).and_then(|metric| word(metric, 0)).unwrap_or(0);
    matches!(fixed[0], AF_INET | AF_INET6).then_some(Default {
        device,
        metric,
        ipv6: fixed[0] == AF_INET6,
    })
}

/// The address of a message's body.
pub fn address(body: &[u8]) -> Option<IpAddr> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    let attributes = body.get(IFADDRMSG..)?;
    // On a point-to-point device the first is the other end's.
    let bytes = attribute(attributes, IFA_LOCAL).or_else(|| attribute(attributes, IFA_ADDRESS))?;
    match *body.first()? {
        AF_INET => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?))),
        AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(table: u8, bits: u8, attributes: &Attributes) -> Vec<u8> {
        let mut body = vec![AF_INET, bits, 0, 0, table, 3, 0, TYPE_UNICAST, 0, 0, 0, 0];
        body.extend(&attributes.0);
        body
    }

    #[test]
    fn the_main_tables_default_routes_are_read_and_no_others() {
        let over =
            Attributes::default().with(4, &3u32.to_ne_bytes()).with(6, &100u32.to_ne_bytes());
        let found = default(&route(TABLE_MAIN, 0, &over));
        assert_eq!(found, Some(Default { device: 3, metric: 100, ipv6: false }));
        assert_eq!(default(&route(255, 0, &over)), None, "another table");
        assert_eq!(default(&route(TABLE_MAIN, 24, &over)), None, "a prefix");
        let several = Attributes::default().with(9, &[16, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(default(&route(TABLE_MAIN, 0, &several)).unwrap().device, 7);
        let whole = route(TABLE_MAIN, 0, &over);
        for cut in 0..whole.len() {
            let _ = (default(&whole[..cut]), address(&whole[..cut]));
        }
    }

    #[test]
    fn loopback_has_its_address() {
        let mut netlink = Netlink::open().unwrap();
        assert!(netlink.addresses().unwrap().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        netlink.defaults().unwrap();
    }
}
