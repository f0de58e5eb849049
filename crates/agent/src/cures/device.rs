//! What the cures on the uplink's device share in the configuration: the sections `[uplink]` and
//! `[shaper]`.

use std::path::PathBuf;

use algo::Unit;
use algo::gate::qcut_d;
use settings::form::{FLAG, choice, count, duration};
use settings::{Form, Group, Result, group};

use super::{AVERAGE, LAMBDA, Lambda, MIN_LAMBDA_TEXT};
use crate::section::Document;

/// What controls uploads, and how.
pub const SECTION: Group = group! {
    /// Uploads, of this host and of hosts behind it, on the uplink's device.
    [uplink]
    /// "auto": the gate while a modem reports its buffer, ACK-window rewriting while none does. Or
    /// "gate", "acks", "off".
    mode = "auto", choice(&["auto", "gate", "acks", "off"]);
    /// The Unix socket of a modem's reports; empty: none.
    telemetry = "/run/unbloat/modem.sock", Form::Text;
    /// Reports of the device's driver and queue discipline, too: weaker, since a modem's buffer
    /// lies behind them.
    driver = "true", FLAG;
    /// The gate: longest time that the bytes in the modem may take to drain.
    target = "20 ms", duration("1 ms", "4000 ms");
    /// ... and up to so much longer while the link runs dry behind the gate, as links do whose rate
    /// jumps.
    slack = "150 ms", duration("0 ms", "4000 ms");
    /// Packets that may always be there.
    floor = "2", count("1", "1000");
    /// Without a report for so long the gate opens.
    patience = "1000 ms", duration("1 ms", "60 s");
    /// Intervals in which there was nothing to send do not lower the rate.
    hold = "true", FLAG;
    /// The gate: beside a download, connections of this host are paced at the link's rate while it is
    /// steady, so that the gate need not refuse their packets.
    pace = "true", FLAG;
    /// ACK-window rewriting: RTT that is allowed, in RTTmin; weight of the old rate; at once up;
    /// payload before anything is done.
    lambda = Lambda::AGENT.text, LAMBDA;
    lambda_min = MIN_LAMBDA_TEXT, LAMBDA;
    average = "0.5", AVERAGE;
    quick = "true", FLAG;
    /// Flows of this host in one direction get equal rates, whatever their RTTs.
    fair = "true", FLAG;
    start = "20 KB", Form::Plain(Unit::Bytes, None);
    /// By the clsact discipline, where `tc filter` shows the programs, also on kernels that have TCX.
    clsact = "false", FLAG;
};

/// Whether the shaper stands for the gate.
pub(crate) const SHAPER: Group = group! {
    /// HTB in place of the gate, where the kernel takes no BPF program on the device. Only while a
    /// modem reports.
    [shaper]
    enabled = "false", FLAG;
};

/// The most that the target grows. Recorded LTE uplinks lose less than a tenth of their throughput so; more adds delay and hardly
/// anything else (docs/agent-uplink.md).
pub const SLACK: units::Duration = units::Duration::from_millis(150);

/// The gate's law: as published, but for the slack, for a rate that intervals without data do not lower, and for
/// connections that are paced beside a download.
pub fn law() -> qcut_d::Config {
    qcut_d::Config {
        slack: SLACK,
        hold: true,
        pace: true,
        refuse: true,
        ..qcut_d::Config::default()
    }
}

/// A source of reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// A Unix socket, most trusted.
    Socket(PathBuf),
    /// The counters of the device's driver.
    Driver,
}

/// Which cure controls uploads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The gate while a modem reports, ACK-window rewriting while it does not.
    #[default]
    Auto,
    /// The gate; no cure while no report comes.
    Gate,
    /// ACK-window rewriting.
    Acks,
    /// No cure.
    Off,
}

impl Mode {
    pub(crate) fn read(document: &Document<'_>) -> Result<Mode> {
        // In the order of the words in the table.
        const MODES: [Mode; 4] = [Mode::Auto, Mode::Gate, Mode::Acks, Mode::Off];
        Ok(MODES[document.section(&SECTION)?.choice("mode")?])
    }
}

/// The keys of `[uplink]` and `[shaper]` that more than one cure depends on.
pub(crate) struct Shared {
    pub(crate) mode: Mode,
    pub(crate) telemetry: Option<PathBuf>,
    driver: bool,
    pub(crate) shaper: bool,
    pub(crate) clsact: bool,
    /// Law of the gate and of the shaper.
    pub(crate) law: qcut_d::Config,
}

impl Shared {
    pub(crate) fn read(document: &Document<'_>) -> Result<Shared> {
        let at = document.section(&SECTION)?;
        let telemetry = at.text("telemetry")?.unwrap_or(at.default_of("telemetry"));
        let law = qcut_d::Config {
            target: at.duration("target")?,
            slack: at.duration("slack")?,
            floor: at.count("floor")?,
            patience: at.duration("patience")?,
            hold: at.flag("hold")?,
            pace: at.flag("pace")?,
            ..law()
        };
        let shared = Shared {
            mode: Mode::read(document)?,
            telemetry: (!telemetry.is_empty()).then(|| telemetry.into()),
            driver: at.flag("driver")?,
            shaper: document.section(&SHAPER)?.flag("enabled")?,
            clsact: at.flag("clsact")?,
            law,
        };
        if shared.mode == Mode::Gate && shared.sources().is_empty() {
            let text = "a gate needs reports: set uplink.telemetry, or uplink.driver = true";
            return at.refuse("mode", text);
        }
        Ok(shared)
    }

    /// Sources of reports, the most trusted first.
    pub(crate) fn sources(&self) -> Vec<From> {
        let modem = self.telemetry.clone().map(From::Socket);
        modem.into_iter().chain(self.driver.then_some(From::Driver)).collect()
    }

    /// Whether uploads are to be controlled by reports, by the gate or the shaper.
    pub(crate) fn by_reports(&self) -> bool {
        matches!(self.mode, Mode::Auto | Mode::Gate) && !self.sources().is_empty()
    }
}
