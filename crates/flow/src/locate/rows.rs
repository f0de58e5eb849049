//! What comes out: points, stretches, bins, losses, connections. Columns and units: `docs/locate.md`.

use std::path::PathBuf;

use capture::Addr;
use units::Quantiles;

use super::path_order::OrderBy;
use crate::series::rows::Protocol;

/// One capture.
#[derive(Clone, Debug)]
pub struct PointRow {
    /// Its file.
    pub path: PathBuf,
    /// Its place among the files given.
    pub given: usize,
    /// First packet, s since the beginning.
    pub start_s: f64,
    /// First to last packet, s.
    pub duration_s: f64,
    /// IP packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these, packets of flows that no other point saw.
    pub elsewhere: u64,
    /// Packets that other points prove to have passed while this capture ran, and which it does not hold.
    pub drops: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Packets that the capture holds twice, dropped.
    pub duplicates: u64,
    /// Drops that the capture program itself reported.
    pub reported_drops: Option<u64>,
}

/// What two neighbouring captures say about each other.
#[derive(Clone, Debug, Default)]
pub struct ClockRow {
    /// Clock of the further point minus clock of the nearer one at the beginning, ms.
    pub offset_ms: f64,
    /// Half of the smallest round trip: what asymmetric delays could hide, ms; `None` with one direction alone.
    pub uncertainty_ms: Option<f64>,
    /// Drift of that difference, parts per million.
    pub drift_ppm: f64,
    /// Steps of that difference: when (s), by how much (ms).
    pub steps: Vec<(f64, f64)>,
    /// Both may have read one clock: no drift, and an offset within the uncertainty.
    pub one_clock: bool,
    /// Routers between the points, by TTL.
    pub hops: Option<u8>,
    /// Connections whose addresses or ports differ between the points.
    pub renamed: u64,
    /// An MSS that differs between the points: before, behind.
    pub mss: Option<(u16, u16)>,
}

/// A stretch in one direction, or the whole path.
#[derive(Clone, Debug, Default)]
pub struct StretchRow {
    /// Position of the point where it begins, in the direction of travel.
    pub from: usize,
    /// … where it ends.
    pub to: usize,
    /// From the first point to the last.
    pub forward: bool,
    /// All stretches together.
    pub path: bool,
    /// Packets seen at both of its ends.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: u64,
    /// Delay, ms; the clocks' offset is in it.
    pub delay_ms: Option<Quantiles>,
    /// Delay above its smallest, ms.
    pub queue_ms: Option<Quantiles>,
    /// Its mean.
    pub queue_ms_mean: Option<f64>,
    /// Its share of the mean queueing delay of all stretches in this direction.
    pub share: Option<f64>,
    /// Packets that entered and did not come out.
    pub lost: u64,
    /// Their IP bytes.
    pub lost_bytes: u64,
    /// Packets not seen at its end while that capture had not begun or was about to stop.
    pub undecided: u64,
    /// Packets that others of their flow overtook.
    pub reordered: u64,
    /// The latest of them by how much it had set out earlier, ms.
    pub reordered_ms_max: Option<f64>,
    /// Packets that got their CE mark here.
    pub ecn_marked: u64,
    /// Segments whose window field was rewritten here.
    pub windows_rewritten: u64,
}

/// A stretch in one direction during one bin.
#[derive(Clone, Copy, Debug, Default)]
pub struct DelayRow {
    /// Index of its [`StretchRow`].
    pub stretch: usize,
    /// When the bin begins, s; a packet counts when it enters.
    pub t_s: f64,
    /// Packets that came out.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: u64,
    /// Smallest, mean and largest delay, ms.
    pub delay_ms: Option<(f64, f64, f64)>,
    /// Smallest and mean of what lies above the stretch's smallest, ms.
    pub queue_ms: Option<(f64, f64)>,
    /// Packets that did not come out.
    pub lost: u64,
}

/// Where something went missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// On a stretch.
    Stretch,
    /// Only in a point's capture.
    Capture,
}

/// A packet (or neighbouring packets) that went missing.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When it was last seen, reference clock.
    pub(crate) time: i64,
    /// Position before the stretch, or of the point.
    pub place: usize,
    /// From the first point to the last.
    pub forward: bool,
    /// Whose.
    pub connection: u32,
    /// Of what.
    pub kind: LossKind,
    /// How many.
    pub packets: u64,
    /// Their IP bytes.
    pub bytes: u64,
    /// First byte of the stream (relative to the first seen); 0 without data.
    pub from: i64,
}

/// A connection that two points saw at least.
#[derive(Clone, Debug)]
pub struct ConnectionRow {
    /// Number.
    pub id: u32,
    /// TCP, UDP, ICMP …
    pub protocol: Protocol,
    /// The end on the side of the first point, as the first point that saw it names it.
    pub a_addr: Addr,
    /// Its port.
    pub a_port: u16,
    /// The other end.
    pub b_addr: Addr,
    /// Its port.
    pub b_port: u16,
    /// Positions of the points that saw it.
    pub points: Vec<usize>,
    /// IP packets, both directions.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Which end opened it: `Some(true)` that of the first point.
    pub opened_by_a: Option<bool>,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Located {
    /// In the order of the path.
    pub points: Vec<PointRow>,
    /// How that order was found.
    pub order_by: OrderBy,
    /// Between neighbours.
    pub clocks: Vec<ClockRow>,
    /// Forward and backward by turns, the whole path last.
    pub stretches: Vec<StretchRow>,
    /// By stretch, in order of time.
    pub delays: Vec<DelayRow>,
    /// In order of time.
    pub losses: Vec<Loss>,
    /// Losses beyond those listed.
    pub unlisted_losses: u64,
    /// Largest first.
    pub connections: Vec<ConnectionRow>,
    /// Epoch seconds of the beginning, by the clock of the first capture given.
    pub start_s: f64,
    /// To the last packet of any point.
    pub duration_s: f64,
    /// Zero of [`Loss::time`].
    pub(crate) origin: i64,
    /// What a reader should know.
    pub warnings: Vec<String>,
}

impl Located {
    /// When a loss was, s since the beginning.
    pub fn loss_s(&self, loss: &Loss) -> f64 {
        loss.time.saturating_sub(self.origin) as f64 / 1e9
    }
}
