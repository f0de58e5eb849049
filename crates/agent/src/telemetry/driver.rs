//! The driver as a source of reports: the bytes in the driver and in the device's queue discipline.
//!
//! signal: `byte_queue_limits/inflight` of each transmit queue; backlog and bytes of the root queue
//! discipline (by netlink) · model: the occupancy below the gate is the sum of both; what moved is
//! what the discipline dequeued minus the growth of the driver's ring · action: a report every 5
//! ms.
//!
//! It cannot see a buffer inside the device. It helps where the device is the bottleneck (Ethernet,
//! Wi-Fi and modems whose drivers have byte queue limits). Elsewhere it reports an empty ring, and
//! the gate stays open.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::{Grade, Report, Source};
use crate::kernel::netlink::Netlink;
use crate::kernel::now_ns;

/// Sampling interval: an interval of QCUT's average contains four samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// All ones: a queue discipline that is the device's root (TC_H_ROOT).
const ROOT: u32 = u32::MAX;

/// Reports from the driver and the queue disciplines of a device.
#[derive(Debug)]
pub struct Driver {
    device: String,
    netlink: Option<(Netlink, i32)>,
    /// Bytes that had left the discipline, and bytes in the ring, at the last sample.
    before: Option<(u64, u64)>,
}

impl Driver {
    /// Reads a device by name.
    pub fn new(device: impl Into<String>) -> Driver {
        Driver { device: device.into(), netlink: None, before: None }
    }

    /// Bytes in the driver's rings; `None` without byte queue limits.
    fn in_flight(&self) -> Option<u64> {
        let queues =
            fs::read_dir(PathBuf::from("/sys/class/net").join(&self.device).join("queues")).ok()?;
        let found = queues.flatten().filter_map(|queue| {
            let path = queue.path().join("byte_queue_limits/inflight");
            fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
        });
        found.fold(None, |sum, bytes| Some(sum.unwrap_or(0) + bytes))
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
        let roots = netlink.qdiscs(device)?.into_iter().filter(|qdisc| qdisc.parent == ROOT);
        Ok(roots.fold((0, 0), |sum, qdisc| (sum.0 + qdisc.backlog, sum.1 + qdisc.bytes)))
    }
}

/// Makes a report of two samples: bytes that had left the discipline and bytes in the ring, before
/// and now.
fn report(at_ns: u64, backlog: u64, before: (u64, u64), now: (u64, u64)) -> Report {
    let occupancy = backlog.saturating_add(now.1);
    let moved = (now.0.saturating_sub(before.0)).saturating_add(before.1).saturating_sub(now.1);
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
        std::thread::sleep(SAMPLE_INTERVAL.min(timeout));
        let (backlog, left) = self.queued().inspect_err(|_| self.netlink = None)?;
        let now = (left, self.in_flight().unwrap_or(0));
        let before = self.before.replace(now);
        Ok(before.map(|before| report(now_ns(), backlog, before, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_the_discipline_and_is_not_in_the_ring_has_moved() {
        let busy = report(1, 3_000, (10_000, 2_000), (16_000, 4_500));
        assert_eq!(busy, Report { at_ns: 1, occupancy: 7_500, granted: 3_500, padding: 0 });
        let idle = report(2, 0, (16_000, 500), (16_000, 0));
        assert_eq!(idle, Report { at_ns: 2, occupancy: 0, granted: 500, padding: 0 });
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        assert!(Driver::new("no-such-device").next(Duration::from_millis(1)).is_err());
    }
}
