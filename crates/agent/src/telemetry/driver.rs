//! The driver as a source of reports: the bytes in the driver and in the device's queue discipline.
//!
//! signal: `byte_queue_limits/{inflight,limit}` of each transmit queue; backlog and bytes of the root
//! queue discipline (by netlink) · model: a link is busy while a driver's queue is at its limit and
//! packets wait in the discipline. Then the occupancy below the gate is the sum of both, and what
//! moved is what the discipline dequeued minus the growth of the driver's ring. Otherwise nothing
//! waits, and what moved is what was sent, a lower bound of the rate · action: a report every 5 ms,
//! once the link was busy for four reports in a row.
//!
//! Without byte queue limits a driver accepts packets at once (TUN, veth, most tunnels and bridges).
//! Its ring says nothing about the link, so there are no reports, and the gate stays open. The
//! directory `byte_queue_limits` also exists for drivers that never use it; their limit stays 0.
//! A backlog alone is no sign either: fq holds packets back to pace them.
//!
//! The source cannot see a buffer inside the device. It helps where the device is the bottleneck:
//! Ethernet, Wi-Fi and modems whose drivers have byte queue limits.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netlink::{Netlink, Qdisc};

use super::{Grade, Report, Source};
use crate::kernel::now_ns;

/// Sampling interval: an interval of QCUT's average contains four samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// Reports in a row that show a busy link before the gate gets the first one: an interval of QCUT's
/// average. A shorter time can be one burst on a link that is not busy.
const LEARN: u32 = 4;

/// Reports from the driver and the queue disciplines of a device.
#[derive(Debug)]
pub struct Driver {
    device: String,
    netlink: Option<(Netlink, i32)>,
    /// The last sample.
    before: Option<Sample>,
    /// Reports of a busy link in a row, up to [`LEARN`]; from then on every report is delivered.
    busy: u32,
}

/// Counters of the device at one time, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    /// Waiting in the queue discipline.
    backlog: u64,
    /// Left the queue discipline so far.
    left: u64,
    ring: Ring,
}

/// The driver's transmit queues together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ring {
    /// Bytes in them.
    in_flight: u64,
    /// One of them is at its limit, so that it takes no packet.
    full: bool,
}

impl Driver {
    /// Reads a device by name.
    pub fn new(device: impl Into<String>) -> Driver {
        Driver { device: device.into(), netlink: None, before: None, busy: 0 }
    }

    /// Backlog of the root queue disciplines, and bytes that have left them.
    fn queued(&mut self) -> io::Result<(u64, u64)> {
        let (netlink, device) = match &mut self.netlink {
            Some(open) => (&mut open.0, open.1),
            None => {
                let mut netlink = Netlink::open()?;
                let index = netlink.device(&self.device)?.index;
                let open = self.netlink.insert((netlink, index));
                (&mut open.0, open.1)
            }
        };
        let roots = netlink.qdiscs(device)?.into_iter().filter(Qdisc::is_root);
        Ok(roots.fold((0, 0), |sum, qdisc| (sum.0 + qdisc.backlog, sum.1 + qdisc.bytes)))
    }

    /// Takes a sample; the report that it makes, if the link has been busy.
    fn sampled(&mut self, at_ns: u64, now: Sample) -> Option<Report> {
        let before = self.before.replace(now)?;
        if self.busy < LEARN {
            self.busy = if before.busy() && now.busy() { self.busy + 1 } else { 0 };
            if self.busy < LEARN {
                return None;
            }
        }
        Some(report(at_ns, before, now))
    }
}

impl Sample {
    fn busy(&self) -> bool {
        self.backlog > 0 && self.ring.full
    }
}

/// The transmit queues of a device below `folder`, a sysfs; `None` without byte queue limits.
fn ring(folder: &Path) -> Option<Ring> {
    let queues = fs::read_dir(folder.join("queues")).ok()?;
    let found = queues.flatten().filter_map(|queue| {
        let read = |name: &str| -> Option<u64> {
            let path = queue.path().join("byte_queue_limits").join(name);
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        let (in_flight, limit) = (read("inflight")?, read("limit")?);
        Some(Ring { in_flight, full: limit > 0 && in_flight >= limit })
    });
    found.fold(None, |sum, one| {
        let sum = sum.unwrap_or(Ring::default());
        Some(Ring { in_flight: sum.in_flight + one.in_flight, full: sum.full || one.full })
    })
}

/// Makes a report of two samples.
fn report(at_ns: u64, before: Sample, now: Sample) -> Report {
    let occupancy = if now.busy() { now.backlog.saturating_add(now.ring.in_flight) } else { 0 };
    let moved = (now.left.saturating_sub(before.left))
        .saturating_add(before.ring.in_flight)
        .saturating_sub(now.ring.in_flight);
    Report { at_ns, occupancy, granted: moved, padding: 0 }
}

impl Source for Driver {
    fn name(&self) -> String {
        format!("driver of {}", self.device)
    }
    fn grade(&self) -> Grade {
        Grade::Driver
    }

    fn next(&mut self, timeout: Duration) -> io::Result<Option<Report>> {
        let Some(ring) = ring(&PathBuf::from("/sys/class/net").join(&self.device)) else {
            self.before = None;
            std::thread::sleep(timeout);
            let text = "it has no byte queue limits, so it does not show when the link is busy";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        };
        std::thread::sleep(SAMPLE_INTERVAL.min(timeout));
        let (backlog, left) = self.queued().inspect_err(|_| self.netlink = None)?;
        match self.sampled(now_ns(), Sample { backlog, left, ring }) {
            Some(report) => Ok(Some(report)),
            None => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "the link has not been busy yet, so that its rate is unknown",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(backlog: u64, left: u64, in_flight: u64, full: bool) -> Sample {
        Sample { backlog, left, ring: Ring { in_flight, full } }
    }

    #[test]
    fn what_left_the_discipline_and_is_not_in_the_ring_has_moved() {
        let busy = report(1, sample(0, 10_000, 2_000, false), sample(3_000, 16_000, 4_500, true));
        assert_eq!(busy, Report { at_ns: 1, occupancy: 7_500, granted: 3_500, padding: 0 });
        let idle = report(2, sample(0, 16_000, 500, false), sample(0, 16_000, 0, false));
        assert_eq!(idle, Report { at_ns: 2, occupancy: 0, granted: 500, padding: 0 });
    }

    #[test]
    fn nothing_waits_where_the_ring_is_not_full_or_the_discipline_is_empty() {
        let paced = report(1, sample(0, 0, 0, false), sample(9_000, 6_000, 1_500, false));
        assert_eq!((paced.occupancy, paced.granted), (0, 4_500));
        let alone = report(1, sample(0, 0, 0, false), sample(0, 6_000, 3_000, true));
        assert_eq!((alone.occupancy, alone.granted), (0, 3_000));
    }

    #[test]
    fn a_report_comes_once_the_link_was_busy_and_then_each_time() {
        let mut driver = Driver::new("eth0");
        let busy = |n: u64| sample(3_000, 1_500 * n, 3_000, true);
        // An application that sends at its own rate never fills the ring.
        assert!(
            (0..1_000).all(|n| driver.sampled(n, sample(0, 1_500 * n, 1_500, false)).is_none())
        );
        // A burst of three samples is no busy link; the first sample has none before it.
        assert!((0..u64::from(LEARN)).all(|n| driver.sampled(n, busy(n)).is_none()));
        assert_eq!(driver.sampled(5, sample(0, 0, 0, false)), None);
        assert!((0..u64::from(LEARN)).all(|n| driver.sampled(n, busy(n)).is_none()));
        assert!(driver.sampled(9, busy(9)).is_some());
        assert!(driver.sampled(10, sample(0, 0, 0, false)).is_some());
    }

    #[test]
    fn a_ring_is_full_at_its_limit_and_a_limit_of_zero_is_not_in_use() {
        let folder = std::env::temp_dir().join(format!("ub-ring-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let queue = |n: u32, in_flight: u64, limit: u64| {
            let path = folder.join(format!("queues/tx-{n}/byte_queue_limits"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("inflight"), format!("{in_flight}\n")).unwrap();
            fs::write(path.join("limit"), format!("{limit}\n")).unwrap();
            ring(&folder).unwrap()
        };
        assert_eq!(ring(&folder), None);
        fs::create_dir_all(folder.join("queues/tx-9")).unwrap();
        assert_eq!(ring(&folder), None, "veth and TUN have queues without limits");
        assert_eq!(queue(0, 0, 0), Ring { in_flight: 0, full: false });
        assert_eq!(queue(1, 3_000, 3_028), Ring { in_flight: 3_000, full: false });
        assert_eq!(queue(2, 3_100, 3_028), Ring { in_flight: 6_100, full: true });
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_device_without_byte_queue_limits_or_that_is_not_there_is_an_error() {
        for device in ["lo", "no-such-device"] {
            let error = Driver::new(device).next(Duration::from_millis(1)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        }
    }
}
