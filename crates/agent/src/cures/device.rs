//! What the cures on the uplink's device share in the configuration: the section `[uplink]`.

use std::path::PathBuf;

use algo::gate::qcut_d;

use crate::section::{Document, Result};

/// Every key of `[uplink]`, with its default.
pub const SECTION: &str = r#"# Uploads, of this host and of hosts behind it, on the uplink's device.
[uplink]
# "auto": the gate while a modem reports its buffer, ACK-window rewriting while none does. Or "gate", "acks", "off".
mode = "auto"
# The Unix socket of a modem's reports; empty: none.
telemetry = "/run/unbloat/modem.sock"
# Reports of the device's driver and queue discipline, too: weaker, since a modem's buffer lies behind them.
driver = true
# The gate: longest time that the bytes in the modem may take to drain.
target = "20 ms"
# ... and up to so much longer while the link runs dry behind the gate, as links do whose rate jumps.
slack = "150 ms"
# Packets that may always be there.
floor = 2
# Without a report for so long the gate opens.
patience = "1000 ms"
# Intervals in which there was nothing to send do not lower the rate.
hold = true
# ACK-window rewriting: RTT that is allowed, in RTTmin; weight of the old rate; at once up; payload before anything is done.
lambda = 1.75
average = 0.5
quick = true
start = "20 KB"
# By the clsact discipline, where `tc filter` shows the programs, also on kernels that have TCX.
clsact = false
"#;

/// The most that the target grows. Recorded LTE uplinks lose less than a tenth of their throughput so; more adds delay and hardly
/// anything else (docs/agent-uplink.md).
pub const SLACK: units::Duration = units::Duration::from_millis(150);

/// The gate's law: as published, but for the slack.
pub fn law() -> qcut_d::Config {
    qcut_d::Config { slack: SLACK, ..qcut_d::Config::default() }
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
        let at = document.section("uplink");
        match at.text("mode")?.as_deref() {
            None | Some("auto") => Ok(Mode::Auto),
            Some("gate") => Ok(Mode::Gate),
            Some("acks") => Ok(Mode::Acks),
            Some("off") => Ok(Mode::Off),
            Some(other) => {
                let text = format!("\"{other}\" is none of \"auto\", \"gate\", \"acks\", \"off\"");
                Err(at.wrong("mode", text))
            }
        }
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
        let at = document.section("uplink");
        let mode = Mode::read(document)?;
        let telemetry = match at.text("telemetry")? {
            None => Some("/run/unbloat/modem.sock".into()),
            Some(path) => (!path.is_empty()).then(|| path.into()),
        };
        let mut law = law();
        law.target = at.between("target", "1 ms", "4000 ms")?.unwrap_or(law.target);
        law.slack = at.between("slack", "0 ms", "4000 ms")?.unwrap_or(law.slack);
        law.floor = at.whole("floor", 1, 1_000)?.unwrap_or(law.floor);
        law.patience = at.between("patience", "1 ms", "60 s")?.unwrap_or(law.patience);
        law.hold = at.flag("hold")?.unwrap_or(law.hold);
        let shared = Shared {
            mode,
            telemetry,
            driver: at.flag("driver")?.unwrap_or(true),
            shaper: document.section("shaper").flag("enabled")?.unwrap_or(false),
            clsact: at.flag("clsact")?.unwrap_or(false),
            law,
        };
        if shared.mode == Mode::Gate && shared.sources().is_empty() {
            let text = "a gate needs reports: set uplink.telemetry, or uplink.driver = true";
            return Err(at.wrong("mode", text));
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
