//! What this host is attached by: part of the result, so that measurements of other days can be compared.
//!
//! From /proc, /sys, netlink, and ModemManager for a modem; what is absent is null. Nothing here names a person, a
//! network or a place: no SSID, no hardware address, no number of a modem.

use std::fs;
use std::path::Path;

use netlink::{Netlink, Qdisc};
use serde::Serialize;

use self::modem::Modem;
use self::wifi::{Reading, Wifi};
use crate::metered::is_modem;
use crate::screen::percent;

pub mod modem;
pub mod wifi;

/// Of this host and its device towards the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Surroundings {
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Congestion control of new connections.
    pub congestion_control: Option<String>,
    /// Name of the device.
    pub device: Option<String>,
    /// `wifi`, `modem`, `tunnel` or `wired`.
    pub kind: Option<&'static str>,
    /// Its largest packet, bytes.
    pub mtu_bytes: Option<u32>,
    /// Rate that its driver reports, Mbit/s.
    pub speed_mbps: Option<u32>,
    /// Packets that its queue may hold.
    pub tx_queue_packets: Option<u32>,
    /// Its queue discipline, and those within: `mq: fq_codel`.
    pub qdisc: Option<String>,
    /// Of Wi-Fi.
    pub wifi: Option<Wifi>,
    /// Of a modem that ModemManager knows.
    pub modem: Option<Modem>,
}

/// Surroundings at the beginning of a measurement.
#[derive(Clone, Debug)]
pub struct Begun {
    found: Surroundings,
    /// Index of the device.
    index: Option<i32>,
    wifi: Option<Reading>,
}

impl Begun {
    /// Towards the server by a device.
    pub fn of(device: Option<&str>) -> Begun {
        let mut found = Surroundings::of(Path::new("/"), device);
        let mut index = None;
        if let (Some(device), Ok(mut netlink)) = (device, Netlink::open()) {
            index = netlink.device(device).ok().map(|device| device.index);
            let all = index.and_then(|index| netlink.qdiscs(index).ok());
            found.qdisc = all.and_then(|all| disciplines(&all));
        }
        if found.kind == Some("modem") {
            found.modem = device.and_then(Modem::of);
        }
        let index = index.filter(|_| found.kind == Some("wifi"));
        Begun { found, wifi: index.and_then(Reading::of), index }
    }

    /// At the end of the measurement.
    pub fn end(self) -> Surroundings {
        let Begun { mut found, index, wifi } = self;
        let last = index.and_then(Reading::of);
        found.wifi = wifi.zip(last).map(|(first, last)| first.until(&last));
        found
    }
}

impl Surroundings {
    /// As the files below `root` say, which is `/` outside tests.
    fn of(root: &Path, device: Option<&str>) -> Surroundings {
        let read = |path: &str| {
            let text = fs::read_to_string(root.join(path)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let mut found = Surroundings {
            kernel: read("proc/sys/kernel/osrelease"),
            congestion_control: read("proc/sys/net/ipv4/tcp_congestion_control"),
            device: device.map(str::to_owned),
            ..Surroundings::default()
        };
        let Some(device) = device else { return found };
        let folder = format!("sys/class/net/{device}");
        if !root.join(&folder).exists() {
            return found;
        }
        let number = |name: &str| read(&format!("{folder}/{name}"))?.parse().ok();
        found.kind = Some(kind(root, &folder, device, &read(&format!("{folder}/uevent"))));
        found.mtu_bytes = number("mtu");
        found.tx_queue_packets = number("tx_queue_len");
        // Drivers without a link write -1, which is no rate.
        found.speed_mbps = number("speed");
        found
    }
}

/// A line on the radio; nothing without one.
pub fn screen(of: &Surroundings) -> String {
    let (Some(device), Some(kind)) = (&of.device, of.kind) else { return String::new() };
    let mut parts: Vec<String> = Vec::new();
    let mut add = |part: Option<String>| parts.extend(part);
    if let Some(wifi) = of.wifi {
        add(wifi.signal_dbm.map(|dbm| format!("{dbm} dBm")));
        add(wifi.sent_mbps.map(|mbps| format!("sends at {mbps:.0} Mbit/s")));
        add(wifi.retries_per_packet.map(|retries| format!("{retries:.2} retries per packet")));
        let lost = wifi.failed_share.filter(|share| *share > 0.0);
        add(lost.map(|share| format!("{} given up", percent(share))));
        add(wifi.channel_busy_share.map(|share| format!("channel busy {}", percent(share))));
    }
    if let Some(modem) = &of.modem {
        add(Some(modem.technologies.join(", ")).filter(|text| !text.is_empty()));
        add(modem.signal_percent.map(|percent| format!("signal {percent:.0} %")));
        for one in &modem.signals {
            let power = one.rsrp_dbm.or(one.rssi_dbm);
            let noise = one.snr_db.map_or_else(String::new, |db| format!(", SNR {db:.0} dB"));
            add(power.map(|dbm| format!("{} {dbm:.0} dBm{noise}", one.technology)));
        }
    }
    if parts.is_empty() {
        return String::new();
    }
    let kind = if kind == "wifi" { "Wi-Fi" } else { "Modem" };
    format!("{kind} {device}: {}.\n", parts.join("; "))
}

fn kind(root: &Path, folder: &str, device: &str, uevent: &Option<String>) -> &'static str {
    let has = |name: &str| root.join(folder).join(name).exists();
    if has("phy80211") || has("wireless") {
        "wifi"
    } else if is_modem(device, uevent.as_deref().unwrap_or_default()) {
        "modem"
    } else if has("tun_flags") || device.starts_with("wg") {
        "tunnel"
    } else {
        "wired"
    }
}

/// The root's kind, and the kinds below it, each once.
fn disciplines(all: &[Qdisc]) -> Option<String> {
    let root = all.iter().find(|one| one.is_root())?;
    let below = all.iter().filter(|one| !one.is_root() && one.parent >> 16 == root.handle >> 16);
    let mut kinds: Vec<_> = below.map(|one| one.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    Some(match kinds.as_slice() {
        [] => root.kind.clone(),
        kinds => format!("{}: {}", root.kind, kinds.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use netlink::ROOT;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> std::path::PathBuf {
        let unique = files.iter().map(|(_, text)| text.len()).sum::<usize>();
        let root =
            std::env::temp_dir().join(format!("unbloat-sur-{}-{unique}", std::process::id()));
        for (path, text) in files {
            let file = root.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    #[test]
    fn a_wifi_device_has_its_kind() {
        let root = tree(&[
            ("proc/sys/kernel/osrelease", "6.12.1\n"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
            ("sys/class/net/wlan0/phy80211/name", "phy0\n"),
            ("sys/class/net/wlan0/mtu", "1500\n"),
            ("sys/class/net/wlan0/tx_queue_len", "1000\n"),
            ("sys/class/net/wlan0/speed", "-1\n"),
        ]);
        let found = Surroundings::of(&root, Some("wlan0"));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.kernel.as_deref(), Some("6.12.1"));
        assert_eq!(found.congestion_control.as_deref(), Some("cubic"));
        assert_eq!((found.kind, found.mtu_bytes), (Some("wifi"), Some(1500)));
        assert_eq!((found.speed_mbps, found.tx_queue_packets), (None, Some(1000)));
    }

    #[test]
    fn what_is_absent_is_null() {
        let found = Surroundings::of(Path::new("/nonexistent"), Some("eth0"));
        assert_eq!(found, Surroundings { device: Some("eth0".to_owned()), ..Default::default() });
        assert_eq!(Surroundings::of(Path::new("/nonexistent"), None), Surroundings::default());
    }

    #[test]
    fn kinds_differ() {
        let root = tree(&[
            ("sys/class/net/tun0/tun_flags", "0x1\n"),
            ("sys/class/net/usb0/uevent", "DEVTYPE=wwan\n"),
            ("sys/class/net/eth0/mtu", "9000\n"),
        ]);
        let kinds = ["tun0", "usb0", "eth0"].map(|name| Surroundings::of(&root, Some(name)).kind);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(kinds, [Some("tunnel"), Some("modem"), Some("wired")]);
    }

    #[test]
    fn disciplines_are_the_roots_and_those_below_it() {
        let one = |kind: &str, handle, parent| Qdisc {
            kind: kind.to_owned(),
            handle,
            parent,
            backlog: 0,
            bytes: 0,
        };
        // A card with two queues; filters of an agent.
        let queues = [
            one("mq", 0, ROOT),
            one("fq_codel", 0, 1),
            one("fq_codel", 0, 2),
            one("clsact", 0xffff_0000, 0xffff_fff1),
        ];
        assert_eq!(disciplines(&queues).as_deref(), Some("mq: fq_codel"));
        let shaped = [one("htb", 1 << 16, ROOT), one("cake", 2 << 16, 1 << 16 | 10)];
        assert_eq!(disciplines(&shaped).as_deref(), Some("htb: cake"));
        assert_eq!(disciplines(&queues[..1]).as_deref(), Some("mq"));
        assert_eq!(disciplines(&[]), None);
    }

    #[test]
    fn a_radio_has_a_line_and_a_cable_has_none() {
        let mut found = Surroundings {
            device: Some("wlan0".to_owned()),
            kind: Some("wifi"),
            ..Surroundings::default()
        };
        assert_eq!(screen(&found), "");
        found.wifi = Some(Wifi {
            signal_dbm: Some(-71),
            sent_mbps: Some(86.6),
            retries_per_packet: Some(0.234),
            failed_share: Some(0.0),
            channel_busy_share: Some(0.61),
            received_mbps: None,
        });
        assert_eq!(
            screen(&found),
            "Wi-Fi wlan0: -71 dBm; sends at 87 Mbit/s; 0.23 retries per packet; channel busy 61 %.\n"
        );
        let lte = modem::Signal {
            technology: "lte".to_owned(),
            rsrp_dbm: Some(-96.0),
            snr_db: Some(12.4),
            ..modem::Signal::default()
        };
        let modem = Modem {
            technologies: vec!["lte".to_owned()],
            signal_percent: Some(70.0),
            signals: vec![lte],
        };
        found = Surroundings {
            device: Some("wwan0".to_owned()),
            kind: Some("modem"),
            modem: Some(modem),
            ..Surroundings::default()
        };
        assert_eq!(screen(&found), "Modem wwan0: lte; signal 70 %; lte -96 dBm, SNR 12 dB.\n");
    }

    #[test]
    fn the_loopback_device_has_no_wifi_and_no_modem() {
        let found = Begun::of(Some("lo")).end();
        assert_eq!((found.kind, found.wifi, found.modem), (Some("wired"), None, None));
    }
}
