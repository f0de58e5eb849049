//! Finds the uplink's device: the configured one, or that of the default route.
//!
//! The kernel is asked where a packet to a far host would leave (so policy rules and other tables
//! count, too): IPv4's route, else IPv6's. No packet is sent.

use std::io;
use std::net::IpAddr;

use netlink::{Attributes, Device, Netlink, Request, attribute, kind};

/// Far hosts, one per IP version: the root name servers a and m.
const FAR: [&str; 2] = ["198.41.0.4", "2001:dc3::35"];

/// A device by name, in its present state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UplinkDevice {
    /// Name of the device.
    pub name: String,
    /// The kernel's data of it.
    pub device: Device,
}

/// The uplink's device. `None`: it does not exist, or there is no default route.
pub fn find(netlink: &mut Netlink, wanted: Option<&str>) -> io::Result<Option<UplinkDevice>> {
    let name = match wanted {
        Some(name) => Some(name.to_owned()),
        None => default_device(netlink)?,
    };
    let Some(name) = name else { return Ok(None) };
    match netlink.device(&name) {
        Ok(device) => Ok(Some(UplinkDevice { name, device })),
        Err(e) if gone(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

fn gone(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound
        || e.raw_os_error() == Some(nix::errno::Errno::ENODEV as i32)
}

fn default_device(netlink: &mut Netlink) -> io::Result<Option<String>> {
    for far in FAR.iter().filter_map(|text| text.parse().ok()) {
        // A missing route is an error of the kernel, and so is an IP version without support.
        let Ok(Some(index)) = out_of(netlink, far) else { continue };
        match netlink.name(index) {
            Ok(name) if name != "lo" => return Ok(Some(name)),
            Ok(_) => {}
            Err(e) if gone(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// The device through which a packet to there would leave.
pub(crate) fn out_of(netlink: &mut Netlink, to: IpAddr) -> io::Result<Option<i32>> {
    const RTA_DST: u16 = 1;
    const RTA_OIF: u16 = 4;
    const RTMSG: usize = 12;
    const RTN_UNICAST: u8 = 1;
    let (family, octets) = match to {
        IpAddr::V4(v4) => (nix::libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (nix::libc::AF_INET6, v6.octets().to_vec()),
    };
    // struct rtmsg: family and prefix length of the destination; the rest is zero.
    let mut message = [0; RTMSG];
    message[0] = family as u8;
    message[1] = octets.len() as u8 * 8;
    let wanted = Attributes::default().with(RTA_DST, &octets);
    let answers = netlink.ask(kind::GET_ROUTE, Request::Get, &message, &wanted)?;
    Ok(answers.iter().find_map(|body| {
        let unicast = *body.get(7)? == RTN_UNICAST;
        let index = attribute(body.get(RTMSG..)?, RTA_OIF)?.try_into().ok().map(i32::from_ne_bytes);
        index.filter(|_| unicast)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_device_is_found_and_one_that_is_not_there_is_none() {
        let mut netlink = Netlink::open().unwrap();
        let lo = find(&mut netlink, Some("lo")).unwrap().unwrap();
        assert_eq!((lo.name.as_str(), lo.device.index), ("lo", 1));
        assert_eq!(netlink.name(1).unwrap(), "lo");
        assert_eq!(find(&mut netlink, Some("no-such-device")).unwrap(), None);
    }

    #[test]
    fn no_packet_of_the_default_route_leaves_through_the_loopback_device() {
        let uplink = find(&mut Netlink::open().unwrap(), None).unwrap();
        assert!(uplink.is_none_or(|uplink| uplink.name != "lo"));
    }
}
