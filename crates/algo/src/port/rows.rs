//! Result rows of a port's stages, per bin and for the whole run: the tables `queues` and `stages` of
//! docs/format.md. A stage without waiting packets has no rows.

use alloc::vec::Vec;
use core::mem;

use units::{Bytes, Duration, Histogram, Instant, Quantiles, Rate};

use super::Port;

/// One bin of one stage of one port.
#[derive(Clone, Copy, Debug)]
pub struct QueueRow {
    /// Index of the link behind it.
    pub link: usize,
    /// `queue`, `qdisc` or `firmware`.
    pub stage: &'static str,
    /// Begin of the bin.
    pub t: Instant,
    /// Packets in the stage at the end of the bin.
    pub packets: u64,
    /// Bytes in the stage at the end of the bin.
    pub bytes: u64,
    /// Mean time in the stage of packets that left it.
    pub delay: Option<Duration>,
    /// Longest time of a packet that left it.
    pub delay_max: Duration,
    /// Packets dropped since the beginning.
    pub drops: u64,
}

/// A stage of a port over the whole run.
#[derive(Clone, Debug)]
pub struct StageRow {
    /// Index of the link behind it.
    pub link: usize,
    /// `queue`, `qdisc` or `firmware`; `qdisc_acks` and `firmware_acks` are the ACKs without data among the packets
    /// of a device, where there were any.
    pub stage: &'static str,
    /// Time of packets in the stage, ms, after the warm-up.
    pub delay_ms: Option<Quantiles>,
    /// Mean of that time, ms.
    pub delay_ms_mean: Option<f64>,
    /// Packets offered to the port.
    pub packets: u64,
    /// Packets dropped because a queue was full.
    pub overflowed: u64,
    /// Packets dropped by AQM.
    pub dropped_by_aqm: u64,
    /// Packets lost on the link.
    pub lost_on_link: u64,
    /// IP bytes that arrived after the warm-up, per second.
    pub throughput: Option<Rate>,
}

impl Port {
    /// Rows of the bin that began at `t` and ends now. A stage without waiting packets has one row when
    /// that begins, then none.
    pub fn take_bin(&mut self, link: usize, t: Instant, mut put: impl FnMut(QueueRow)) {
        let drops = self.counters.overflowed + self.counters.chosen;
        let silent = |packets: usize, bin: (u64, u64, u64)| packets == 0 && bin.2 == 0;
        let mut push = |stage, packets: usize, bytes: u64, bin: (u64, u64, u64), was: &mut bool| {
            let now = silent(packets, bin);
            if mem::replace(was, now) && now {
                return;
            }
            put(QueueRow {
                link,
                stage,
                t,
                packets: packets as u64,
                bytes,
                delay: bin.0.checked_div(bin.1).map(Duration),
                delay_max: Duration(bin.2),
                drops,
            });
        };
        let bin = mem::take(&mut self.queued.bin);
        let first = self.first_stage();
        push(first, self.queue.len(), self.queue.backlog().0, bin, &mut self.queued.silent);
        if let Some(device) = &self.device {
            let bin = mem::take(&mut self.firmware.bin);
            push(
                "firmware",
                device.firmware_len(),
                device.firmware_bytes(),
                bin,
                &mut self.firmware.silent,
            );
        }
    }

    /// Each stage over the whole run, of which `span` was measured.
    pub fn stages(&self, link: usize, span: Duration) -> Vec<StageRow> {
        let c = &self.counters;
        let row = |stage, delays: &Histogram, sum: (u128, u64)| StageRow {
            link,
            stage,
            delay_ms: delays.quantiles(1e-6),
            delay_ms_mean: (sum.1 > 0).then(|| sum.0 as f64 / sum.1 as f64 / 1e6),
            packets: c.offered,
            overflowed: c.overflowed,
            dropped_by_aqm: c.chosen,
            lost_on_link: c.lost,
            throughput: Bytes(c.measured_bytes).over(span),
        };
        let mut rows = alloc::vec![row(self.first_stage(), &self.queued.delays, self.queued.sum)];
        if let Some(device) = &self.device {
            rows.push(row("firmware", &self.firmware.delays, self.firmware.sum));
            for (stage, acks) in ["qdisc_acks", "firmware_acks"].into_iter().zip(&device.acks) {
                if acks.sum.1 > 0 {
                    rows.push(row(stage, &acks.delays, acks.sum));
                }
            }
        }
        rows
    }

    fn first_stage(&self) -> &'static str {
        if self.device.is_some() { "qdisc" } else { "queue" }
    }
}
