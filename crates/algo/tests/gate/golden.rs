//! One curve per gate of the table: a device whose uplink falls from 6 to 1 Mbit/s and recovers. A change of any
//! decision shows as a changed line; `UNBLOAT_BLESS=1` writes the files.

use std::fmt::Write as _;
use std::path::PathBuf;

use algo::gate::{AnyGate, Gate, Limit, Setup, TABLE};
use algo::link::{self, AnyMedium, fixed};
use units::{Bytes, Duration, Instant, Rate};

use crate::testbed::Testbed;

fn medium(rate: Rate) -> AnyMedium {
    AnyMedium::Fixed(fixed::Fixed::new(fixed::Config { rate }, &link::Setup::default()))
}

fn curve(gate: AnyGate) -> String {
    let steps = [(Rate(6_000_000), 2_000), (Rate(1_000_000), 4_000), (Rate(6_000_000), 6_000)];
    let mut testbed = Testbed::new(gate, medium(steps[0].0), Bytes(222_000));
    let mut text =
        String::from("ms below_bytes believed_bytes limit rate_bps left_packets stayed_us\n");
    let every = Duration::from_millis(100);
    for (rate, until_ms) in steps {
        testbed.link = medium(rate);
        while testbed.now < Instant(until_ms * 1_000_000) {
            let seen = testbed.run(testbed.now + every);
            let state = testbed.gate.state(testbed.now);
            let limit = match testbed.gate.limit(testbed.now) {
                Limit::None => String::from("none"),
                Limit::Bytes(bytes) => format!("{}B", bytes.0),
                Limit::Rate(rate) => format!("{}bps", rate.0),
            };
            let number = |x: Option<u64>| x.map_or_else(|| String::from("-"), |x| x.to_string());
            writeln!(
                text,
                "{} {} {} {limit} {} {} {}",
                testbed.now.0 / 1_000_000,
                testbed.buffered().0,
                number(state.occupancy.map(|b| b.0)),
                number(state.rate.map(|r| r.0)),
                seen.packets,
                seen.stayed.0 / seen.packets.max(1) / 1_000,
            )
            .expect("a string takes everything");
        }
    }
    text
}

#[test]
fn every_gate_decides_as_its_golden_curve_says() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let bless = std::env::var_os("UNBLOAT_BLESS").is_some();
    for entry in TABLE {
        let ours = curve(entry.default(&Setup::default()));
        let path = folder.join(format!("gate_{}.txt", entry.name));
        if bless {
            std::fs::create_dir_all(&folder).expect("the folder of golden curves can be made");
            std::fs::write(&path, &ours).expect("a golden curve can be written");
        }
        let theirs = std::fs::read_to_string(&path).unwrap_or_else(|error| {
            panic!("{}: {error}; UNBLOAT_BLESS=1 writes it", path.display())
        });
        for (line, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
            assert_eq!(ours, theirs, "{}, line {}", path.display(), line + 1);
        }
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{}", path.display());
    }
}
