//! Hosts and flows for the tests of rules.

use std::path::Path;

use netlink::{Qdisc, ROOT};

use super::View;
use crate::plan::host::{Device, Host, Link};
use crate::plan::observation::{Flow, Observation, Way};

/// A host and its traffic.
pub struct Case {
    pub host: Host,
    pub seen: Observation,
}

impl Case {
    /// A typical notebook on Ethernet.
    pub fn new(flows: Vec<Flow>) -> Case {
        let qdisc =
            Qdisc { kind: "pfifo_fast".to_owned(), handle: 0, parent: ROOT, backlog: 0, bytes: 0 };
        let host = Host {
            device: Some(Device {
                name: "eth0".to_owned(),
                index: 2,
                mtu: 1_500,
                link: Link::Ethernet,
                driver: Some("e1000e".to_owned()),
                qdiscs: vec![qdisc],
                bql: None,
            }),
            sysctls: vec![
                ("net.ipv4.tcp_rmem", "4096 131072 6291456".to_owned()),
                ("net.ipv4.tcp_congestion_control", "cubic".to_owned()),
                ("net.ipv4.tcp_available_congestion_control", "reno bbr cubic".to_owned()),
                ("net.ipv4.tcp_window_scaling", "1".to_owned()),
                ("net.ipv4.tcp_timestamps", "1".to_owned()),
            ],
            ..Host::default()
        };
        Case {
            host,
            seen: Observation {
                source: "live",
                connections: flows.len(),
                flows,
                ..Observation::default()
            },
        }
    }

    pub fn view(&self) -> View<'_> {
        View { host: &self.host, seen: &self.seen, pins: Path::new("/pins") }
    }

    /// With another value of a setting.
    pub fn sysctl(mut self, name: &'static str, value: &str) -> Case {
        self.host.sysctls.retain(|(known, _)| *known != name);
        self.host.sysctls.push((name, value.to_owned()));
        self
    }
}

/// 8 Mbit/s for 10 s, with a smallest RTT, and a median and p95 under load.
pub fn flow(way: Way, min: f64, median: f64, p95: f64) -> Flow {
    let (local, remote) = ("192.0.2.1".parse().unwrap(), "198.51.100.9".parse().unwrap());
    Flow {
        bytes: 10_000_000,
        lasted_s: 10.0,
        rate_bps: 8e6,
        swing: Some(1.1),
        rtt_min_ms: Some(min),
        rtt_ms: Some((median, p95)),
        samples: 50,
        window_bytes: Some(3_000_000),
        congestion: (way == Way::Upload).then(|| "cubic".to_owned()),
        ..Flow::new(way, (local, 50_000), (remote, 443))
    }
}
