//! The rows of the result: points, path segments, bins, losses, connections. Columns and units: `docs/locate.md`.

use std::path::PathBuf;

use capture::Addr;
use units::Quantiles;

use super::path_order::OrderBy;
use crate::series::rows::Protocol;

/// One point: a capture.
#[derive(Clone, Debug)]
pub struct PointRow {
    /// The capture file.
    pub path: PathBuf,
    /// Its index among the files given.
    pub given: usize,
    /// Time of the first packet, s since the beginning.
    pub start_s: f64,
    /// Time from first to last packet, s.
    pub duration_s: f64,
    /// Number of IP packets.
    pub packets: u64,
    /// Sum of their IP lengths, bytes.
    pub bytes: u64,
    /// Of these, packets of flows that no other point saw.
    pub elsewhere: u64,
    /// Packets that passed this point, as other points show, but are missing in its capture.
    pub drops: u64,
    /// Sum of their IP lengths, bytes.
    pub dropped_bytes: u64,
    /// Packets that the capture contains twice; the copies are dropped.
    pub duplicates: u64,
    /// Drops reported by the capture program.
    pub reported_drops: Option<u64>,
}

/// Differences between two neighbouring points: clocks, hops, NAT, MSS.
#[derive(Clone, Debug, Default)]
pub struct ClockRow {
    /// Clock of the further point minus clock of the nearer one at the beginning, ms.
    pub offset_ms: f64,
    /// Half of the smallest round trip, the error that asymmetric delays may cause, ms; `None` with one direction alone.
    pub uncertainty_ms: Option<f64>,
    /// Drift of that difference, parts per million.
    pub drift_ppm: f64,
    /// Steps of that difference: time (s) and size (ms).
    pub steps: Vec<(f64, f64)>,
    /// Both captures may use one clock: no drift, and an offset within the uncertainty.
    pub one_clock: bool,
    /// Number of routers between the points, by TTL.
    pub hops: Option<u8>,
    /// Connections whose addresses or ports differ between the points.
    pub renamed: u64,
    /// An MSS that was changed between the points: before, after.
    pub mss: Option<(u16, u16)>,
}

/// A path segment in one direction, or the whole path.
#[derive(Clone, Debug, Default)]
pub struct SegmentRow {
    /// Position of the point where it begins in this direction.
    pub from: usize,
    /// Position of the point where it ends.
    pub to: usize,
    /// Direction: true from the first point to the last.
    pub forward: bool,
    /// Whether it is the whole path.
    pub path: bool,
    /// Number of packets seen at both of its ends.
    pub packets: u64,
    /// Sum of their IP lengths, bytes.
    pub bytes: u64,
    /// Delay including the offset of the clocks, ms.
    pub delay_ms: Option<Quantiles>,
    /// Delay above the smallest delay, ms.
    pub queue_ms: Option<Quantiles>,
    /// Mean of `queue_ms`, ms.
    pub queue_ms_mean: Option<f64>,
    /// Its share of the mean queueing delay of all path segments in this direction.
    pub share: Option<f64>,
    /// Packets that entered it and never left it.
    pub lost: u64,
    /// Sum of their IP lengths, bytes.
    pub lost_bytes: u64,
    /// Packets not seen at its end because that capture had not begun or was about to stop.
    pub undecided: u64,
    /// Packets overtaken by others of their flow.
    pub reordered: u64,
    /// Maximum time by which one of them had entered earlier, ms.
    pub reordered_ms_max: Option<f64>,
    /// Packets marked CE in this path segment.
    pub ecn_marked: u64,
    /// TCP segments whose window field was rewritten in this path segment.
    pub windows_rewritten: u64,
}

/// A path segment in one direction during one bin.
#[derive(Clone, Copy, Debug, Default)]
pub struct DelayRow {
    /// Index of its [`SegmentRow`].
    pub segment: usize,
    /// Beginning of the bin, s. A packet belongs to the bin in which it enters.
    pub t_s: f64,
    /// Number of packets that left it.
    pub packets: u64,
    /// Sum of their IP lengths, bytes.
    pub bytes: u64,
    /// Smallest, mean and largest delay, ms.
    pub delay_ms: Option<(f64, f64, f64)>,
    /// Smallest and mean delay above the minimum of the path segment, ms.
    pub queue_ms: Option<(f64, f64)>,
    /// Number of packets that never left it.
    pub lost: u64,
}

/// Where a packet is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// Lost in a path segment.
    Segment,
    /// Missing only in the capture of a point.
    Capture,
}

/// A missing packet, or several consecutive ones.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// Time of its last sighting by the reference clock, ns.
    pub(crate) time: i64,
    /// The path segment, by the lower of its two positions; or the point.
    pub place: usize,
    /// Direction: true from the first point to the last.
    pub forward: bool,
    /// Number of its connection.
    pub connection: u32,
    /// Lost, or missing in a capture.
    pub kind: LossKind,
    /// Number of packets.
    pub packets: u64,
    /// Sum of their IP lengths, bytes.
    pub bytes: u64,
    /// Its first byte relative to the first one seen of the stream; 0 without data.
    pub from: i64,
}

/// A connection seen at two points or more.
#[derive(Clone, Debug)]
pub struct ConnectionRow {
    /// Number of the connection, from 0.
    pub id: u32,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Address of the end on the side of the first point, as seen at the first point with this connection.
    pub a_addr: Addr,
    /// Port of that end.
    pub a_port: u16,
    /// Address of the other end.
    pub b_addr: Addr,
    /// Port of the other end.
    pub b_port: u16,
    /// Positions of the points at which it was seen.
    pub points: Vec<usize>,
    /// Number of IP packets, both directions.
    pub packets: u64,
    /// Sum of their IP lengths, bytes.
    pub bytes: u64,
    /// Which end opened it: `Some(true)` for the end on the side of the first point.
    pub opened_by_a: Option<bool>,
}

/// The result of `locate`.
#[derive(Clone, Debug)]
pub struct Located {
    /// Points in the order of the path.
    pub points: Vec<PointRow>,
    /// How the order of the points was found.
    pub order_by: OrderBy,
    /// Differences between neighbouring points.
    pub clocks: Vec<ClockRow>,
    /// Path segments, forward and backward alternating; the whole path last.
    pub segments: Vec<SegmentRow>,
    /// Bins by path segment, in order of time.
    pub delays: Vec<DelayRow>,
    /// Missing packets in order of time.
    pub losses: Vec<Loss>,
    /// Number of losses that are not listed.
    pub unlisted_losses: u64,
    /// Connections, the largest first.
    pub connections: Vec<ConnectionRow>,
    /// Epoch seconds of the beginning, by the clock of the first capture given.
    pub start_s: f64,
    /// Time to the last packet of any point, s.
    pub duration_s: f64,
    /// Origin of [`Loss::time`].
    pub(crate) origin: i64,
    /// Limits of the result that the user should know.
    pub warnings: Vec<String>,
}

impl Located {
    /// Time of a loss, s since the beginning.
    pub fn loss_s(&self, loss: &Loss) -> f64 {
        loss.time.saturating_sub(self.origin) as f64 / 1e9
    }
}
