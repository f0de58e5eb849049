//! A server whose clock is ten seconds ahead and gains 100 ppm. Driver of tests/measure: its results have to be those of
//! a server with the client's own clock.

use std::error::Error;

use measure::clock::Clock;
use measure::server::{Server, Settings};
use measure::tls::Identity;
use measure::wire::PORT;
use measure::wire::message::Limits;

fn main() -> Result<(), Box<dyn Error>> {
    let token = std::env::args().nth(1).unwrap_or_default();
    let limits = Limits { seconds: 60, bytes: 1_000_000_000, streams: 32, pps: 200 };
    let clock = Clock { ahead_ns: 10_000_000_000, fast_ppm: 100.0 };
    let Identity { config: tls, pin } = Identity::new()?;
    let settings = Settings { token, limits, clock, tls };
    let server = Server::bind(([0, 0, 0, 0], PORT).into(), settings)?;
    println!("--pin {}", pin.ok_or("no pin")?);
    Ok(server.run()?)
}
