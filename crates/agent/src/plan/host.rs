//! Properties of this host that a cure depends on. Nothing is changed, and no rights are needed,
//! except to try the kernel's features.
//!
//! Sources: netlink, sysfs, /proc/sys, and whether a modem's reports come. What could not be read
//! is one line each.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netlink::route::Default as Route;
use netlink::{Attributes, Netlink, Qdisc, Request, attribute, kind};
use serde_json::{Value, json};

use crate::cures;
use crate::kernel::{self, FeatureId, Tried};
use crate::telemetry::Source;
use crate::telemetry::socket::Socket;

/// Time to wait for a modem's report: they are 100 ms apart at most (QCUT section 6).
const REPORT_TIMEOUT: Duration = Duration::from_millis(400);
/// Queue disciplines that keep queues short or separate flows.
const SMART: [&str; 10] =
    ["fq_codel", "cake", "cake_mq", "fq", "fq_pie", "codel", "pie", "sfq", "dualpi2", "hhf"];
/// TCP settings that a cure depends on, with their keys for `--json`.
const SYSCTLS: [(&str, &str); 12] = [
    ("net.ipv4.tcp_rmem", "tcp_rmem_bytes"),
    ("net.ipv4.tcp_wmem", "tcp_wmem_bytes"),
    ("net.ipv4.tcp_congestion_control", "tcp_congestion_control"),
    ("net.ipv4.tcp_available_congestion_control", "tcp_available_congestion_control"),
    ("net.ipv4.tcp_window_scaling", "tcp_window_scaling"),
    ("net.ipv4.tcp_timestamps", "tcp_timestamps"),
    ("net.ipv4.tcp_moderate_rcvbuf", "tcp_moderate_rcvbuf"),
    ("net.ipv4.tcp_shrink_window", "tcp_shrink_window"),
    ("net.ipv4.tcp_limit_output_bytes", "tcp_limit_output_bytes"),
    ("net.core.default_qdisc", "default_qdisc"),
    ("net.ipv4.ip_forward", "ip_forward"),
    ("net.ipv6.conf.all.forwarding", "ipv6_forwarding"),
];

/// Kind of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// A cellular modem (WWAN).
    Wwan,
    /// Wi-Fi, a wireless LAN.
    Wlan,
    /// A phone or modem that looks like Ethernet over USB.
    Usb,
    /// Ethernet over a cable.
    Ethernet,
    /// TUN, WireGuard and the like: the real link is below.
    Tunnel,
    /// A virtual device made by software.
    Virtual,
    /// The kind is unknown.
    Unknown,
}

impl Link {
    /// The value in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Link::Wwan => "wwan",
            Link::Wlan => "wlan",
            Link::Usb => "usb_tether",
            Link::Ethernet => "ethernet",
            Link::Tunnel => "tunnel",
            Link::Virtual => "virtual",
            Link::Unknown => "unknown",
        }
    }

    /// The name in messages.
    pub const fn words(self) -> &'static str {
        match self {
            Link::Wwan => "cellular modem",
            Link::Wlan => "Wi-Fi",
            Link::Usb => "USB tether",
            Link::Ethernet => "Ethernet",
            Link::Tunnel => "tunnel",
            Link::Virtual => "virtual",
            Link::Unknown => "link of unknown kind",
        }
    }

    /// Classifies a device by `DEVTYPE` and driver of sysfs, and by kind and name.
    fn of(
        devtype: &str,
        driver: Option<&str>,
        virtual_kind: Option<&str>,
        name: &str,
        ethernet: bool,
    ) -> Link {
        let modem = ["rmnet", "ccmni", "wwan"].iter().any(|begin| name.starts_with(begin));
        match (devtype, driver, virtual_kind) {
            ("wlan", ..) => Link::Wlan,
            ("wwan", ..)
            | (_, Some("qmi_wwan" | "cdc_mbim" | "mhi_net" | "iosm" | "mtk_t7xx"), _) => Link::Wwan,
            (.., Some("rmnet")) => Link::Wwan,
            _ if modem => Link::Wwan,
            (_, Some("rndis_host" | "cdc_ether" | "cdc_ncm" | "ipheth" | "cdc_eem"), _) => {
                Link::Usb
            }
            (
                ..,
                Some("tun" | "wireguard" | "ipip" | "sit" | "gre" | "ip6tnl" | "xfrm" | "vti"),
            ) => Link::Tunnel,
            (.., Some(_)) => Link::Virtual,
            (_, Some(_), None) if ethernet => Link::Ethernet,
            _ => Link::Unknown,
        }
    }
}

/// The device of the uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name of the device.
    pub name: String,
    /// Its interface index in the kernel.
    pub index: u32,
    /// Largest packet (MTU), bytes.
    pub mtu: u32,
    /// Kind of its link.
    pub link: Link,
    /// Its driver, if any.
    pub driver: Option<String>,
    /// Queue disciplines at its root; several where it has several queues.
    pub qdiscs: Vec<Qdisc>,
    /// Whether its driver uses byte queue limits; `None` where sysfs does not show it.
    pub bql: Option<bool>,
}

impl Device {
    /// Whether a discipline keeps queues short, or separates flows.
    pub fn smart(&self) -> bool {
        self.qdiscs.iter().any(|qdisc| SMART.contains(&qdisc.kind.as_str()))
    }

    /// The name of the discipline at its root.
    pub fn qdisc(&self) -> &str {
        // Under mq, its children do the queueing.
        let of = |root| self.qdiscs.iter().find(move |q| q.is_root() == root && q.kind != "mq");
        of(true).or_else(|| of(false)).map_or("noqueue", |qdisc| &qdisc.kind)
    }

    fn to_json(&self) -> Value {
        let qdiscs: Vec<Value> = self
            .qdiscs
            .iter()
            .map(|q| json!({"kind": q.kind, "root": q.is_root(), "backlog_bytes": q.backlog}))
            .collect();
        json!({
            "name": self.name, "link": self.link.name(), "driver": self.driver, "mtu_bytes": self.mtu,
            "qdiscs": qdiscs, "smart_queue": self.smart(), "byte_queue_limits": self.bql,
        })
    }
}

/// Properties of this host that a cure depends on. Nothing is changed, and no rights are needed,
/// except to try the kernel's features.
///
/// Sources: netlink, sysfs, /proc/sys, and whether a modem's reports come. What could not be read
/// is one line each.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Device of the uplink.
    pub device: Option<Device>,
    /// Addresses of this host.
    pub addresses: Vec<IpAddr>,
    /// Names and values of settings that the kernel has.
    pub sysctls: Vec<(&'static str, String)>,
    /// Features of the kernel; `None` where they could not be tried.
    pub features: Option<Vec<Tried>>,
    /// Root of cgroup v2, which contains all sockets of the host.
    pub cgroup: Option<PathBuf>,
    /// Socket from which a modem's reports come.
    pub modem: Option<PathBuf>,
    /// What could not be read, a line each.
    pub missing: Vec<String>,
}

impl Host {
    /// Reads the properties. `device`: instead of that of the default route, an error if it cannot
    /// be read; `modem`: socket with a modem's reports.
    pub fn look(device: Option<&str>, modem: &Path) -> Result<Host, DeviceError> {
        let mut host = Host { sysctls: sysctls(), ..Host::default() };
        let uplink = Netlink::open().map_err(DeviceError::NoSocket).and_then(|mut netlink| {
            host.addresses = netlink.addresses().unwrap_or_default();
            uplink(&mut netlink, device)
        });
        match uplink {
            Ok(found) => host.device = Some(found),
            Err(e) if device.is_some() => return Err(e),
            Err(e) => host.missing.push(e.to_string()),
        }
        match kernel::cgroup_root() {
            Ok(path) => host.cgroup = Some(path),
            Err(e) => host.missing.push(e.to_string()),
        }
        host.modem = reports(modem).then(|| modem.to_owned());
        Ok(host)
    }

    /// Stores the kernel's features, or why they could not be tried.
    pub fn learn(&mut self, features: cures::Result<Vec<Tried>>) {
        match features {
            Ok(features) => self.features = Some(features),
            Err(e) => self.missing.push(format!("what this kernel can do: {e}")),
        }
    }

    /// A setting by its name.
    pub fn sysctl(&self, name: &str) -> Option<&str> {
        self.sysctls.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Third value of `tcp_rmem` or `tcp_wmem`.
    pub fn largest(&self, name: &str) -> Option<u64> {
        self.sysctl(name)?.split_whitespace().nth(2)?.parse().ok()
    }

    /// Whether it forwards packets.
    pub fn forwards(&self) -> bool {
        ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"]
            .iter()
            .any(|name| self.sysctl(name) == Some("1"))
    }

    /// Whether the kernel has this congestion control.
    pub fn has_congestion(&self, name: &str) -> bool {
        self.sysctl("net.ipv4.tcp_available_congestion_control")
            .is_some_and(|names| names.split_whitespace().any(|known| known == name))
    }

    /// Why a feature is not available, if that is known.
    pub fn lacks(&self, feature: FeatureId) -> Option<&str> {
        let mut tried = self.features.as_ref()?.iter();
        let found = tried.find(|tried| tried.feature.id == feature)?;
        found.missing.as_deref()
    }

    /// Whether it has this address.
    pub fn owns(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// The value in `--json`.
    pub fn to_json(&self) -> Value {
        let sysctls: serde_json::Map<String, Value> = SYSCTLS
            .iter()
            .filter_map(|(name, key)| Some(((*key).to_owned(), json!(self.sysctl(name)?))))
            .collect();
        let features =
            self.features.as_ref().map(|all| all.iter().map(Tried::to_json).collect::<Vec<_>>());
        json!({
            "device": self.device.as_ref().map(Device::to_json), "sysctls": sysctls, "features": features,
            "forwards": self.forwards(), "cgroup": self.cgroup, "modem": self.modem, "missing": self.missing,
        })
    }
}

/// Tries the kernel's features; that takes a moment.
pub fn features() -> cures::Result<Vec<Tried>> {
    kernel::rights().map(|()| cures::features())
}

fn sysctls() -> Vec<(&'static str, String)> {
    let read = |name: &'static str| {
        let text = fs::read_to_string(Path::new("/proc/sys").join(name.replace('.', "/"))).ok()?;
        Some((name, text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    SYSCTLS.iter().filter_map(|(name, _)| read(name)).collect()
}

/// Why the uplink's device is unknown.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No netlink socket.
    #[error("routes and devices: no routing socket ({0})")]
    NoSocket(io::Error),
    /// The kernel does not list its routes.
    #[error("routes: {0}")]
    Routes(io::Error),
    /// There is no route from which the device follows.
    #[error("uplink: no default route (--device names one without it)")]
    NoDefaultRoute,
    /// A device, by name or index, cannot be read.
    #[error("device {0}: {1}")]
    Unreadable(String, io::Error),
}

fn uplink(netlink: &mut Netlink, name: Option<&str>) -> Result<Device, DeviceError> {
    let index = match name {
        Some(name) => {
            let unreadable = |e| DeviceError::Unreadable(name.to_owned(), e);
            netlink.device(name).map_err(unreadable)?.index as u32
        }
        None => {
            let routes: Vec<Route> = netlink.defaults().map_err(DeviceError::Routes)?;
            routes.first().ok_or(DeviceError::NoDefaultRoute)?.device
        }
    };
    device(netlink, index).map_err(|e| DeviceError::Unreadable(index.to_string(), e))
}

/// A device by its index. Sysfs may show another network namespace's: it is used only where the
/// index agrees.
fn device(netlink: &mut Netlink, index: u32) -> io::Result<Device> {
    const IFLA_IFNAME: u16 = 3;
    const IFLA_MTU: u16 = 4;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    const HEADER: usize = 16;
    const ETHERNET: u16 = 1;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
    let mut fixed = [0; HEADER];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    let answers = netlink.ask(kind::GET_LINK, Request::Get, &fixed, &Attributes::default())?;
    let body = answers.first().ok_or(io::ErrorKind::NotFound)?;
    let attributes = body.get(HEADER..).unwrap_or_default();
    let name = attribute(attributes, IFLA_IFNAME).map(text).ok_or(io::ErrorKind::NotFound)?;
    let mtu = attribute(attributes, IFLA_MTU)
        .and_then(|mtu| mtu.try_into().ok())
        .map_or(0, u32::from_ne_bytes);
    let virtual_kind = attribute(attributes, IFLA_LINKINFO)
        .and_then(|info| attribute(info, IFLA_INFO_KIND))
        .map(text);
    let folder = Path::new("/sys/class/net").join(&name);
    let same = fs::read_to_string(folder.join("ifindex"))
        .is_ok_and(|text| text.trim() == index.to_string());
    let driver = fs::read_link(folder.join("device/driver")).ok().filter(|_| same);
    let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let uevent = if same {
        fs::read_to_string(folder.join("uevent")).unwrap_or_default()
    } else {
        String::new()
    };
    let devtype = uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=")).unwrap_or_default();
    let ethernet = body.get(2..4).is_some_and(|kind| kind == ETHERNET.to_ne_bytes());
    let link = Link::of(devtype, driver.as_deref(), virtual_kind.as_deref(), &name, ethernet);
    let qdiscs = netlink.qdiscs(index as i32).unwrap_or_default();
    let bql = if same { byte_queue_limits(&folder) } else { None };
    Ok(Device { name, index, mtu, link, driver: driver.or(virtual_kind), qdiscs, bql })
}

/// Whether any transmit queue has a limit. The files exist without a driver that uses them, too,
/// and then stay zero.
fn byte_queue_limits(device: &Path) -> Option<bool> {
    let queues = fs::read_dir(device.join("queues")).ok()?;
    let limits = queues.flatten().filter_map(|queue| {
        let text = fs::read_to_string(queue.path().join("byte_queue_limits/limit")).ok()?;
        text.trim().parse::<u64>().ok()
    });
    limits.fold(None, |any, limit| Some(any.unwrap_or(false) || limit > 0))
}

/// Bytes that a device received and sent since it was made.
pub fn carried(netlink: &mut Netlink, index: u32) -> Option<(u64, u64)> {
    const IFLA_STATS64: u16 = 23;
    const HEADER: usize = 16;
    let mut fixed = [0; HEADER];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    let answers = netlink.ask(kind::GET_LINK, Request::Get, &fixed, &Attributes::default()).ok()?;
    let stats = attribute(answers.first()?.get(HEADER..)?, IFLA_STATS64)?;
    // struct rtnl_link_stats64: packets received and sent, bytes received and sent.
    let at = |at: usize| Some(u64::from_ne_bytes(stats.get(at..at + 8)?.try_into().ok()?));
    Some((at(16)?, at(24)?))
}

/// Whether a report of a modem comes.
fn reports(path: &Path) -> bool {
    path.exists() && matches!(Socket::new(path).next(REPORT_TIMEOUT), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Feature;

    #[test]
    fn a_link_is_classified_by_its_driver_kind_and_name() {
        for (devtype, driver, kind, name, ethernet, link) in [
            ("wlan", Some("iwlwifi"), None, "wlp2s0", true, Link::Wlan),
            ("wwan", Some("qmi_wwan"), None, "wwan0", false, Link::Wwan),
            ("", None, Some("rmnet"), "rmnet_data0", false, Link::Wwan),
            ("", Some("cdc_ether"), None, "enx0", true, Link::Usb),
            ("", Some("e1000e"), None, "eno1", true, Link::Ethernet),
            ("", None, Some("wireguard"), "wg0", false, Link::Tunnel),
            ("", None, Some("veth"), "veth0", true, Link::Virtual),
            ("", None, None, "what", true, Link::Unknown),
        ] {
            assert_eq!(Link::of(devtype, driver, kind, name, ethernet), link, "{name}");
        }
    }

    #[test]
    fn loopback_can_be_looked_at_and_a_device_that_is_not_there_is_one_line() {
        let nowhere = Path::new("/nowhere/modem.sock");
        let host = Host::look(Some("lo"), nowhere).unwrap();
        let device = host.device.clone().unwrap();
        assert_eq!((device.index, device.smart()), (1, false));
        assert!(host.largest("net.ipv4.tcp_rmem").unwrap() > 10_000);
        assert!(host.owns("127.0.0.1".parse().unwrap()) && host.modem.is_none());
        let (received, sent) = carried(&mut Netlink::open().unwrap(), 1).unwrap();
        assert_eq!(received, sent, "what leaves loopback comes back");
        let refused = Host::look(Some("no-such"), nowhere).unwrap_err();
        assert!(matches!(&refused, DeviceError::Unreadable(name, _) if name == "no-such"));
        assert!(refused.to_string().starts_with("device no-such: "), "{refused}");
    }

    #[test]
    fn a_feature_is_missing_by_its_id_whatever_its_name() {
        let tried = |id, missing: Option<&str>| {
            let probe = || Ok(());
            let feature =
                Box::leak(Box::new(Feature { id, name: "one name", since: "5.0", probe }));
            Tried { feature, missing: missing.map(str::to_owned) }
        };
        let features =
            vec![tried(FeatureId::Gate, None), tried(FeatureId::AckWindows, Some("too old"))];
        let host = Host { features: Some(features), ..Host::default() };
        assert_eq!(host.lacks(FeatureId::Gate), None);
        assert_eq!(host.lacks(FeatureId::AckWindows), Some("too old"));
        assert_eq!(host.lacks(FeatureId::Htb), None, "it was not tried");
    }
}
