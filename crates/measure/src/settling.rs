//! A load whose other end is a server of another program: from when on it is measured, and when it has to end.
//!
//! signal: bytes that came through · model: goodput is steady ([`crate::saturation`]), at the latest after a given time · action:
//! measure from now on; end where nothing comes through, or the limit of data is reached.

use std::time::{Duration, Instant};

use crate::saturation::{Advice, Saturation};

/// Between two looks at such a load, and two samples of this end's RTT.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Of the rule for steady goodput.
const INTERVAL: Duration = Duration::from_millis(500);
/// Without a byte for so long, the path or the server is gone: the dead-man timer of our own protocol.
const DEAD: Duration = Duration::from_secs(3);

/// A load that is followed.
pub(crate) struct Settling {
    rule: Saturation,
    begun: Instant,
    latest: Duration,
    /// When it was last judged, and the bytes then.
    judged: (Instant, u64),
    /// The most bytes so far, and since when.
    alive: (u64, Instant),
}

impl Settling {
    /// A load of so many streams, which is measured after `latest` even if it is not steady.
    pub fn new(streams: usize, begun: Instant, latest: Duration) -> Settling {
        Settling {
            rule: Saturation::new(streams, false),
            begun,
            latest,
            judged: (begun, 0),
            alive: (0, Instant::now()),
        }
    }

    /// Why it has to end now. `bytes`: of this load; `before`: of those before it.
    pub fn ended(&mut self, bytes: u64, before: u64, max_bytes: u64) -> Option<String> {
        if bytes > self.alive.0 {
            self.alive = (bytes, Instant::now());
        } else if self.alive.1.elapsed() > DEAD {
            return Some(format!("nothing came through for {} s", DEAD.as_secs()));
        }
        limit_of_data(before + bytes, max_bytes)
    }

    /// Whether it is measured from now on, and if so, whether its goodput is steady.
    pub fn measures(&mut self, bytes: u64) -> Option<bool> {
        let (at, had) = self.judged;
        if at.elapsed() < INTERVAL {
            return None;
        }
        let goodput_bps = bytes.saturating_sub(had) as f64 * 8.0 / at.elapsed().as_secs_f64();
        let steady = self.rule.interval(goodput_bps) == Advice::Measure;
        self.judged = (Instant::now(), bytes);
        (steady || self.begun.elapsed() >= self.latest).then_some(steady)
    }
}

/// Why a test has to end that transferred so many bytes.
pub(crate) fn limit_of_data(bytes: u64, max_bytes: u64) -> Option<String> {
    (bytes >= max_bytes).then(|| "the limit of data (--max-data) was reached".to_owned())
}
