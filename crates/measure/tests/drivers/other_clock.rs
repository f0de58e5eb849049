//! A server whose clock is ten seconds ahead and gains 100 ppm. Driver of tests/measure: its results have to be those of
//! a server with the client's own clock.

use measure::clock::Clock;
use measure::server::{Server, Settings};
use measure::wire::PORT;
use measure::wire::message::Limits;

fn main() -> std::io::Result<()> {
    let token = std::env::args().nth(1).unwrap_or_default();
    let limits = Limits { seconds: 60, bytes: 1_000_000_000, streams: 32, pps: 200 };
    let clock = Clock { ahead_ns: 10_000_000_000, fast_ppm: 100.0 };
    Server::bind(([0, 0, 0, 0], PORT).into(), Settings { token, limits, clock })?.run()
}
