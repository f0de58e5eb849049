//! What Linux passes to the device at once, of data that is paced.
//!
//! signal: the pacing rate · model: the data of a millisecond (`tcp_tso_autosize`, `bbr_tso_segs_goal`), at most one buffer of the kernel ·
//! action: a number of segments

use units::Rate;

/// A burst has the bytes per second of the rate shifted by this: about a millisecond (`sk_pacing_shift`).
const SHIFT: u32 = 10;
/// The largest burst: 64 KiB minus headers (`GSO_LEGACY_MAX_SIZE`).
pub const MAX_BURST: u64 = 65_536 - 1 - 320;
/// Segments of the shortest burst (`tcp_min_tso_segs`).
pub const MIN_SEGMENTS: u64 = 2;
/// Below this rate BBR sends segments one by one (`bbr_min_tso_rate`).
const SINGLE_BELOW: Rate = Rate(1_200_000);

/// Segments of a burst at this rate, with so many bytes more than the millisecond has, and so many segments at least.
#[inline]
pub fn segments(rate: Rate, more: u64, mss: u64, least: u64) -> u64 {
    let bytes = ((rate.bps() / 8) >> SHIFT) + more;
    (bytes.min(MAX_BURST) / mss.max(1)).max(least)
}

/// The least that BBR has at this rate (`bbr_min_tso_segs`).
#[inline]
pub fn least_of_bbr(rate: Rate) -> u64 {
    if rate < SINGLE_BELOW { 1 } else { MIN_SEGMENTS }
}
