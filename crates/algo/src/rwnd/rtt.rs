//! The receiver's RTT without timestamps: the DRWA paper's second estimator.
//!
//! signal: right edge advertised, bytes received · model: the sender can send data beyond an
//! advertised right edge only after a later ACK moved that edge, so such data arrives at least one
//! RTT after the edge was advertised · action: one sample per window.
//!
//! Source: DRWA section 5, Linux `tcp_rcv_rtt_measure`. The sample is an upper bound of the RTT if
//! the window does not limit the sender.

use units::{Bytes, Duration, Instant};

/// Measures the RTT window by window.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowRtt {
    /// The edge that data has to pass, and when it was advertised.
    pending: Option<(Bytes, Instant)>,
}

impl WindowRtt {
    /// Takes the data received and the current right edge. If the data passes the pending edge:
    /// the time since that edge was advertised.
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
