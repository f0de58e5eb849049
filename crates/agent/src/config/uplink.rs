//! Settings of the uplink's device: the gate, the shaper, windows on passing ACKs.
//!
//! signal: sections [uplink], [forward], [shaper] and the scope's device · model: who may act beside whom · action: the uplink's settings, or
//! a complaint.

use algo::rwnd::drwa::Config as Law;

use super::Result;
use super::section::Section;
use crate::cures::gate::From;
use crate::uplink::{Forward, Mode, Uplink};

pub(super) fn uplink(
    at: &Section<'_>,
    forward: &Section<'_>,
    shaper: &Section<'_>,
    device: Option<String>,
) -> Result<Uplink> {
    let mut found = Uplink { device, ..Uplink::default() };
    found.mode = match at.text("mode")?.as_deref() {
        None | Some("auto") => Mode::Auto,
        Some("gate") => Mode::Gate,
        Some("acks") => Mode::Acks,
        Some("off") => Mode::Off,
        Some(other) => {
            return Err(at.wrong(
                "mode",
                &format!("\"{other}\" is none of \"auto\", \"gate\", \"acks\", \"off\""),
            ));
        }
    };
    if let Some(path) = at.text("telemetry")? {
        found.telemetry = (!path.is_empty()).then(|| path.into());
    }
    found.driver = at.flag("driver")?.unwrap_or(found.driver);
    let gate = &mut found.law;
    gate.target = at.between("target", "1 ms", "4000 ms")?.unwrap_or(gate.target);
    gate.slack = at.between("slack", "0 ms", "4000 ms")?.unwrap_or(gate.slack);
    gate.floor = at.whole("floor", 1, 1_000)?.unwrap_or(gate.floor);
    gate.patience = at.between("patience", "1 ms", "60 s")?.unwrap_or(gate.patience);
    gate.hold = at.flag("hold")?.unwrap_or(gate.hold);
    law(at, &mut found.up)?;
    found.clsact = at.flag("clsact")?.unwrap_or(found.clsact);
    found.start = at.parsed("start")?.unwrap_or(found.start);
    found.forward = match forward.flag("enabled")? {
        Some(true) => {
            let mut wanted = Forward::default();
            law(forward, &mut wanted.down)?;
            wanted.start = forward.parsed("start")?.unwrap_or(wanted.start);
            wanted.flows =
                forward.whole("flows", 16, 1_000_000)?.map_or(wanted.flows, |flows| flows as u32);
            Some(wanted)
        }
        _ => None,
    };
    found.shaper = shaper.flag("enabled")?.unwrap_or(false);
    if found.shaper && found.telemetry.is_none() {
        return Err(
            shaper.wrong("enabled", "a shaper needs a modem's reports: set uplink.telemetry")
        );
    }
    if found.shaper && matches!(found.mode, Mode::Acks | Mode::Off) {
        return Err(shaper.wrong(
            "enabled",
            "the shaper stands for the gate: uplink.mode has to be \"auto\" or \"gate\"",
        ));
    }
    if found.mode == Mode::Gate && found.sources().is_empty() {
        return Err(
            at.wrong("mode", "a gate needs reports: set uplink.telemetry, or uplink.driver = true")
        );
    }
    Ok(found)
}

/// λ and the average of windows on passing ACKs.
fn law(at: &Section<'_>, law: &mut Law) -> Result<()> {
    if let Some(lambda) = at.number("lambda", 1.0, 16.0)? {
        law.lambda = (lambda * 16.0).round() as u64;
    }
    if let Some(average) = at.number("average", 0.0, 0.9375)? {
        law.alpha = (average * 16.0).round() as u64;
    }
    law.quick = at.flag("quick")?.unwrap_or(law.quick);
    Ok(())
}

impl Uplink {
    /// Where reports come from, in the order of trust.
    pub fn sources(&self) -> Vec<From> {
        let modem = self.telemetry.clone().map(From::Socket);
        modem.into_iter().chain(self.driver.then_some(From::Driver)).collect()
    }
}
