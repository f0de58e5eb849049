//! The receiver's RTT without timestamps: the DRWA paper's second estimator.
//!
//! signal: right edge offered, bytes received · model: data beyond the right edge that was offered at some moment can
//! only have been sent after that offer arrived, so it takes at least one RTT to come (DRWA section 5, Linux
//! `tcp_rcv_rtt_measure`) · action: one sample per window. An upper bound where the window does not limit the sender.

use units::{Bytes, Duration, Instant};

/// Measures window by window; see the module text.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowRtt {
    /// The edge that has to be passed, and since when it has been on offer.
    pending: Option<(Bytes, Instant)>,
}

impl WindowRtt {
    /// Data up to `received` is here and the sender may send up to `right_edge`: the time that passed since the edge
    /// then on offer was first offered, when it is reached.
    pub fn on_data(
        &mut self,
        now: Instant,
        received: Bytes,
        right_edge: Bytes,
    ) -> Option<Duration> {
        match self.pending {
            Some((edge, _)) if received < edge => None,
            Some((_, since)) => {
                self.pending = Some((right_edge, now));
                Some(now.since(since))
            }
            None => {
                self.pending = Some((right_edge, now));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_limited_sender_shows_its_rtt() {
        let mut rtt = WindowRtt::default();
        let ms = |n: u64| Instant(n * 1_000_000);
        assert_eq!(rtt.on_data(ms(0), Bytes(0), Bytes(10_000)), None);
        assert_eq!(rtt.on_data(ms(50), Bytes(5_000), Bytes(15_000)), None);
        assert_eq!(
            rtt.on_data(ms(100), Bytes(10_000), Bytes(20_000)),
            Some(Duration::from_millis(100))
        );
    }
}
