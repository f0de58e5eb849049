//! Trace files: any text is read or refused with its line, and what is read can be replayed.
//!
//! signal: text · model: the two parsers of `algo::link`, then the media that replay what they gave
//! · action: panics where an opportunity goes backwards, a rate is not in order, or a medium does
//! not move on.

use algo::Rng;
use algo::link::parse::{opportunities_from_text, rates_from_text};
use algo::link::{Head, Medium, Setup, Slot, TABLE};
use units::{Bytes, Instant};

/// Both kinds of trace.
pub fn trace(text: &str) {
    if let Ok(ms) = opportunities_from_text(text) {
        assert!(ms.windows(2).all(|w| w[0] <= w[1]), "opportunities are in order");
        replay("trace", &Setup { opportunities: ms, ..Setup::default() });
    }
    if let Ok(steps) = rates_from_text(text) {
        assert!(steps.windows(2).all(|w| w[0].0 <= w[1].0), "rates are in order");
        replay("rates", &Setup { rates: steps, ..Setup::default() });
    }
}

/// A saturating sender for a hundred packets.
fn replay(name: &str, setup: &Setup) {
    let Some(entry) = TABLE.iter().find(|e| e.name == name) else { return };
    let mut medium = entry.default(setup);
    let mut rng = Rng::new(1, "fuzz");
    let mut now = Instant::ZERO;
    let head = Head { bytes: Bytes(1_500), backlog: Bytes(15_000) };
    for _ in 0..100 {
        // Thirty years on, the clock's own end comes near, and nothing can move on for ever.
        if now.0 > 1_000_000_000_000_000_000 {
            return;
        }
        match medium.offer(now, &head, &mut rng) {
            Slot::Leaves(at) => {
                assert!(at >= now, "a packet leaves after it was offered");
                now = at;
            }
            Slot::WaitUntil(at) => {
                assert!(at > now, "waiting moves on");
                now = at;
            }
        }
    }
}
