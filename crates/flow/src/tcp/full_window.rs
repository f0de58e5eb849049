//! Whether the window is full.
//!
//! signal: the highest byte sent and the right edge, as the sender saw it or can have seen it (`window_bound`) · model: less
//! than a send unit is left: an MSS, or the bytes of a millisecond, see `stream` · action: the state of that time, for
//! [`crate::series::limits`].

use units::Duration;

use crate::identity::sequence::Pos;
use crate::series::rows::Vantage;
use crate::tcp::state::{Context, Measured};
use crate::tcp::stream::Stream;

/// Maximum size of a GSO segment in Linux (GSO_LEGACY_MAX_SIZE).
const MAX_SEND_UNIT: u64 = 65_536;

impl Stream {
    /// Whether the window is full by the largest right edge that the sender can have known.
    pub(super) fn is_full_at_least(
        &mut self,
        end: Pos,
        m: &mut Measured,
        cx: &Context<'_>,
    ) -> bool {
        if self.vantage != Vantage::Receiver || self.timestamps {
            return false;
        }
        if end < self.max {
            return m.bins.state().window_full;
        }
        let path = self.path_min.map(Duration);
        let edge = m.window_bound.known_at_most(end, cx.now, path);
        let full = edge.is_some_and(|edge| self.is_full(m, edge, self.mss()));
        self.counts.window_full += u64::from(full && m.silence.is_none());
        full
    }

    /// Whether less than one send unit is left between the highest byte sent and `right_edge`.
    #[inline]
    pub fn is_full(&self, m: &Measured, right_edge: Pos, mss: u32) -> bool {
        let unit = m.bins.bytes_per_ms().min(MAX_SEND_UNIT).max(u64::from(mss));
        self.scale.certain() && self.acked_any && right_edge - self.max < unit as i64
    }

    /// Without the SYN the scale is unknown; the bytes in flight give a lower bound.
    #[inline(never)]
    pub(super) fn infer_scale(&mut self, plain: u64) {
        let raw = u64::from(self.last_window);
        while self.acked_any
            && raw > 0
            && self.scale.inferred < 14
            && plain > raw << self.scale.inferred
        {
            self.scale.inferred += 1;
            let window = raw << self.scale.inferred;
            self.rwnd = Some(window);
            self.rwnd_max = self.rwnd_max.max(window);
            self.right_edge = self.right_edge.max(self.una + window as i64);
        }
    }
}
