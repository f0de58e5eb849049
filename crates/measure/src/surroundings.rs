//! What this host is attached by: part of the result, so that measurements of other days can be compared.
//!
//! Read from /proc and /sys; what is absent is null. Nothing here names a person, a network or a place: no SSID, no
//! hardware address.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::metered::is_modem;

/// Of this host and its device towards the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
    /// Signal of Wi-Fi, dBm.
    pub signal_dbm: Option<i32>,
}

impl Surroundings {
    /// As the files below `root` say, which is `/` outside tests.
    pub fn of(root: &Path, device: Option<&str>) -> Surroundings {
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
        found.signal_dbm = read("proc/net/wireless").and_then(|text| signal(&text, device));
        found
    }
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

/// The level of a device in /proc/net/wireless: `wlan0: 0000   54.  -56.  -256 …`.
fn signal(text: &str, device: &str) -> Option<i32> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'))?;
    let level = line.split_whitespace().nth(2)?.trim_end_matches('.').parse().ok()?;
    // Positive levels are in a unit of the driver's own.
    (level < 0).then_some(level)
}

#[cfg(test)]
mod tests {
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
    fn a_wifi_device_has_its_kind_and_signal() {
        let root = tree(&[
            ("proc/sys/kernel/osrelease", "6.12.1\n"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
            ("sys/class/net/wlan0/phy80211/name", "phy0\n"),
            ("sys/class/net/wlan0/mtu", "1500\n"),
            ("sys/class/net/wlan0/tx_queue_len", "1000\n"),
            ("sys/class/net/wlan0/speed", "-1\n"),
            (
                "proc/net/wireless",
                "Inter-| sta-|   Quality\n wlan0: 0000   54.  -56.  -256        0\n",
            ),
        ]);
        let found = Surroundings::of(&root, Some("wlan0"));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found.kernel.as_deref(), Some("6.12.1"));
        assert_eq!(found.congestion_control.as_deref(), Some("cubic"));
        assert_eq!((found.kind, found.mtu_bytes), (Some("wifi"), Some(1500)));
        assert_eq!((found.speed_mbps, found.tx_queue_packets), (None, Some(1000)));
        assert_eq!(found.signal_dbm, Some(-56));
    }

    #[test]
    fn what_is_absent_is_null() {
        let found = Surroundings::of(Path::new("/nonexistent"), Some("eth0"));
        assert_eq!(found, Surroundings { device: Some("eth0".to_owned()), ..Default::default() });
        assert_eq!(Surroundings::of(Path::new("/nonexistent"), None), Surroundings::default());
    }

    #[test]
    fn kinds_differ_and_levels_that_are_no_dbm_are_left_out() {
        let root = tree(&[
            ("sys/class/net/tun0/tun_flags", "0x1\n"),
            ("sys/class/net/usb0/uevent", "DEVTYPE=wwan\n"),
            ("sys/class/net/eth0/mtu", "9000\n"),
            ("proc/net/wireless", "eth0: 0000 54. 56. 0\n"),
        ]);
        let kinds = ["tun0", "usb0", "eth0"].map(|name| Surroundings::of(&root, Some(name)).kind);
        let signal = Surroundings::of(&root, Some("eth0")).signal_dbm;
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(kinds, [Some("tunnel"), Some("modem"), Some("wired")]);
        assert_eq!(signal, None);
    }
}
