//! Whether a test would cost money: the device that leads to the server, and what is known of it.
//!
//! signal: the route, the device's name and type, NetworkManager's word where it runs · model: mobile modems and what
//! NetworkManager calls metered are metered · action: the caller asks first.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::process::{Command, Stdio};

use nix::ifaddrs::getifaddrs;

use crate::wire::PORT;

/// Beginnings of the names that Linux, Android and pppd give to mobile modems.
const MODEMS: [&str; 4] = ["wwan", "wwp", "rmnet", "ppp"];

/// The device that leads to a host, as far as the routes show.
pub fn device_towards(host: &str) -> Option<String> {
    let mut addresses = host
        .to_socket_addrs()
        .or_else(|_| (host.trim_matches(['[', ']']), PORT).to_socket_addrs())
        .ok()?;
    let to: SocketAddr = addresses.next()?;
    let any: SocketAddr =
        if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    // A connected UDP socket has the route's source address; no packet is sent.
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    let own = socket.local_addr().ok()?.ip();
    getifaddrs().ok()?.find_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|a| a.ip().into());
        let v6 = address.as_sockaddr_in6().map(|a| a.ip().into());
        (v4.or(v6) == Some(own)).then_some(interface.interface_name)
    })
}

/// Why a device counts as metered; `None` where nothing says so.
pub fn metered(device: &str) -> Option<&'static str> {
    let kind = fs::read_to_string(format!("/sys/class/net/{device}/uevent")).unwrap_or_default();
    if is_modem(device, &kind) {
        return Some("a mobile modem");
    }
    let said = Command::new("nmcli")
        .args(["-g", "GENERAL.METERED", "device", "show", device])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    said.is_ok_and(|said| said.stdout.starts_with(b"yes")).then_some("metered, says NetworkManager")
}

/// Whether a device is a mobile modem, by its name or its type.
pub(crate) fn is_modem(device: &str, uevent: &str) -> bool {
    MODEMS.iter().any(|name| device.starts_with(name))
        || uevent.lines().any(|line| line == "DEVTYPE=wwan")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modems_are_known_by_name_and_type() {
        assert!(is_modem("wwan0", "") && is_modem("usb0", "INTERFACE=usb0\nDEVTYPE=wwan\n"));
        assert!(!is_modem("eth0", "INTERFACE=eth0\n") && !is_modem("wlan0", "DEVTYPE=wlan\n"));
    }

    #[test]
    fn the_device_towards_this_host_is_lo() {
        assert_eq!(device_towards("127.0.0.1").as_deref(), Some("lo"));
        assert_eq!(device_towards("127.0.0.1:5").as_deref(), Some("lo"));
        assert_eq!(device_towards("none.invalid"), None);
    }
}
