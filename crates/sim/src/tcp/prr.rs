//! Proportional rate reduction: how much may be sent during recovery.
//!
//! signal: data delivered per ACK, data in flight · model: RFC 6937 with the conservative bound,
//! and one segment more per ACK that moves the left edge without showing new loss (RFC 9937's safe
//! ACK) · action: the bytes that may be in flight until the next ACK.

/// State of one recovery episode, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prr {
    delivered: u64,
    out: u64,
    flight: u64,
    threshold: u64,
}

impl Prr {
    /// Recovery begins with `flight` bytes outstanding and shall end with a window of `threshold`.
    pub fn begin(flight: u64, threshold: u64) -> Prr {
        Prr { delivered: 0, out: 0, flight: flight.max(1), threshold }
    }

    /// A segment left during recovery.
    #[inline]
    pub fn on_sent(&mut self, bytes: u64) {
        self.out += bytes;
    }

    /// An ACK delivered `delivered` bytes, and `in_flight` are left; what may be in flight now (RFC
    /// 6937 section 3).
    pub fn on_ack(&mut self, delivered: u64, in_flight: u64, safe: bool, mss: u64) -> u64 {
        self.delivered += delivered;
        let send = if in_flight > self.threshold {
            let share = (u128::from(self.delivered) * u128::from(self.threshold))
                .div_ceil(u128::from(self.flight)) as u64;
            share.saturating_sub(self.out)
        } else {
            let mut limit = self.delivered.saturating_sub(self.out).max(delivered);
            if safe {
                limit += mss;
            }
            limit.min(self.threshold - in_flight)
        };
        // The first ACK of an episode always lets the fast retransmission go.
        let send = if self.out == 0 { send.max(mss) } else { send };
        in_flight + send
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reduction_by_thirty_percent_sends_seven_segments_for_ten_delivered() {
        // RFC 6937 section 4, CUBIC's figures: 20 in flight, one lost, threshold 14.
        let mss = 1_000;
        let mut prr = Prr::begin(20 * mss, 14 * mss);
        let mut in_flight = 19 * mss;
        let mut sent = 0;
        for _ in 0..19 {
            in_flight -= mss;
            let allowed = prr.on_ack(mss, in_flight, false, mss);
            while in_flight + mss <= allowed {
                in_flight += mss;
                sent += 1;
                prr.on_sent(mss);
            }
        }
        assert!((13..=14).contains(&sent), "{sent}");
        assert!((13 * mss..=14 * mss).contains(&in_flight), "{in_flight}");
    }
}
