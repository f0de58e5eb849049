//! How the scenario is run on the kernel's own TCP.

use settings::{Result, Section};

use crate::keys;
use crate::types::{Bulk, Capture, GateBy, Lab, Offload};

/// `[lab]`; the words in the order in which `keys` has them.
pub(super) fn lab(root: &Section<'_>) -> Result<Lab> {
    let section = root.below("lab", &[keys::LAB])?;
    Ok(Lab {
        offload: [Offload::Auto, Offload::On, Offload::Off][section.choice("offload")?],
        bulk: [Bulk::Own, Bulk::Iperf3][section.choice("bulk")?],
        capture: [Capture::Ends, Capture::All, Capture::None][section.choice("capture")?],
        gate: [GateBy::Emulator, GateBy::Agent][section.choice("gate")?],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Tree;

    fn read(text: &str) -> Result<Lab> {
        lab(&crate::resolve::root(&Tree::parse(text)?)?)
    }

    #[test]
    fn every_word_means_what_it_says() {
        for (word, offload) in [("auto", Offload::Auto), ("on", Offload::On), ("off", Offload::Off)]
        {
            assert_eq!(read(&format!("lab.offload = \"{word}\"")).map(|l| l.offload), Ok(offload));
        }
        for (word, bulk) in [("own", Bulk::Own), ("iperf3", Bulk::Iperf3)] {
            assert_eq!(read(&format!("lab.bulk = \"{word}\"")).map(|l| l.bulk), Ok(bulk));
        }
        for (word, capture) in
            [("ends", Capture::Ends), ("all", Capture::All), ("none", Capture::None)]
        {
            assert_eq!(read(&format!("lab.capture = \"{word}\"")).map(|l| l.capture), Ok(capture));
        }
        for (word, gate) in [("emulator", GateBy::Emulator), ("agent", GateBy::Agent)] {
            assert_eq!(read(&format!("lab.gate = \"{word}\"")).map(|l| l.gate), Ok(gate));
        }
        assert_eq!(read(""), Ok(Lab::default()));
    }

    #[test]
    fn another_word_is_refused_by_the_nearest() {
        let error = read("lab.capture = \"end\"").expect_err("no such word").to_string();
        assert!(error.contains("lab.capture") && error.contains("ends"), "{error}");
    }
}
