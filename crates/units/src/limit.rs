//! What limited a flow: one word per interval, the same in captures, simulations and measurements.
//!
//! The idea is that of T-RAT (Zhang, Breslau, Paxson, Shenker: "On the characteristics and origins of
//! Internet flow rates", SIGCOMM 2002). Shares of time over the limits sum to 1.

use crate::Duration;

/// What limited a flow, in order of precedence where several limits apply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Limit {
    /// The receiver advertised no window at all.
    ZeroWindow = 0,
    /// No answer: from a retransmission timeout to the next new acknowledgement.
    Timeout = 1,
    /// Less than one segment of the receive window was left.
    ReceiveWindow = 2,
    /// The sender had nothing to send.
    Application = 3,
    /// The sender was still doubling its rate.
    SlowStart = 4,
    /// Rate-limited behind a standing queue: at least 30 ms in the last second.
    Bufferbloat = 5,
    /// Rate-limited, and the queue is shorter than that.
    Bottleneck = 6,
    /// The congestion window after loss or ECN.
    CongestionWindow = 7,
    /// No limit could be shown.
    Unknown = 8,
}

impl Limit {
    /// Queueing delay above which a flow counts as bloated, if it lasts for a second: the upper end
    /// of grade A (DSLReports).
    pub const BLOAT: Duration = Duration::from_millis(30);
    /// Number of limits.
    pub const COUNT: usize = 9;
    /// Every limit, in order of precedence.
    pub const ALL: [Limit; Limit::COUNT] = [
        Limit::ZeroWindow,
        Limit::Timeout,
        Limit::ReceiveWindow,
        Limit::Application,
        Limit::SlowStart,
        Limit::Bufferbloat,
        Limit::Bottleneck,
        Limit::CongestionWindow,
        Limit::Unknown,
    ];
    /// The name in tables and on the terminal.
    pub const fn name(self) -> &'static str {
        match self {
            Limit::ZeroWindow => "zero_window",
            Limit::Timeout => "timeout",
            Limit::ReceiveWindow => "receive_window",
            Limit::Application => "application",
            Limit::SlowStart => "slow_start",
            Limit::Bufferbloat => "bufferbloat",
            Limit::Bottleneck => "bottleneck",
            Limit::CongestionWindow => "congestion_window",
            Limit::Unknown => "unknown",
        }
    }
}
