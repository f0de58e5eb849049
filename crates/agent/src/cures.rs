//! The cures: what each must do, and the table of all of them.
//!
//! A cure is a module with a type that implements [`Cure`]: how it is configured, attached,
//! renewed, lifted and detached, and what it reports. [`TABLE`] is one line per cure; the daemon,
//! the status, the metrics, `features`, the configuration and the documentation derive from it.

pub mod acks;
pub mod attach;
pub mod congestion;
pub mod device;
pub mod figures;
pub mod flow;
pub mod gate;
pub mod prefix;
pub mod receive;
pub mod shaper;
#[macro_use]
mod table;
pub mod trial;

use std::path::Path;

use algo::rwnd::drwa;
use settings::{Form, Group, Section, form};
use units::Bytes;

pub use crate::error::{CureError, Result};
pub use crate::kernel::now_ns;
pub use figures::Figures;
pub use flow::FlowStatus;
pub use prefix::{Prefix, address};

use crate::kernel::{self, Feature, Tried};
use crate::section::Document;
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::{LEASE, lease};

table! {
    receive: receive::Receive,
    acks: acks::Acks,
    gate: gate::Gate,
    shaper: shaper::Fed,
    congestion: congestion::Congestion,
}

/// Where a cure acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On sockets of this host; the daemon drives it.
    Sockets,
    /// On the uplink's device; the controller of `uplink` drives it.
    Device,
}

/// What is fixed about a cure.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its key in the status and the metrics, and the name of its module.
    pub name: &'static str,
    /// Its name in messages.
    pub title: &'static str,
    /// Whether it acts on sockets or on the uplink's device.
    pub place: Place,
    /// It is a BPF program.
    pub program: bool,
    /// The features of the kernel that it needs.
    pub features: &'static [&'static Feature],
    /// Its section of the configuration, if it has one of its own.
    pub section: Option<&'static Group>,
}

/// What a cure is attached with, besides its settings.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Directory of pins, on a bpf file system.
    pub pins: &'a Path,
    /// It begins lifted: it must change nothing before [`Cure::lift`] says so.
    pub lifted: bool,
    /// End of its first lease: CLOCK_MONOTONIC, ns.
    pub until_ns: u64,
}

impl Site<'_> {
    /// The end of a lease that begins now: loading the programs may have taken longer than the
    /// first one.
    pub(crate) fn lease(&self) -> u64 {
        lease(LEASE).max(self.until_ns)
    }
}

/// Directions in which a cure is lifted: it watches and changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifted {
    /// Data that arrives at this host, or at hosts behind it.
    pub down: bool,
    /// Data that leaves this host, or hosts behind it.
    pub up: bool,
}

impl Lifted {
    /// Both directions, or none.
    pub const fn both(lifted: bool) -> Lifted {
        Lifted { down: lifted, up: lifted }
    }
}

/// How far a trial lifts a cure, or its withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// It acts as configured.
    None,
    /// It permits this RTT, µs, and limits beyond.
    Rtt(u64),
    /// It changes nothing.
    Whole,
}

/// Whether a cure could take new settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It acts by them now.
    Now,
    /// It has to be detached and attached again.
    NeedsAttach,
}

/// A cure that is attached.
pub trait Cure: Sized {
    /// What is fixed about it.
    const ABOUT: About;
    /// How it is configured.
    type Settings: Clone + std::fmt::Debug + PartialEq;
    /// What it reports about itself.
    type Figures: Figures + serde::Serialize;

    /// Its settings by the configuration; none if it is not wanted.
    fn settings(document: &Document<'_>) -> settings::Result<Option<Self::Settings>>;

    /// Sets the uplink's device; only for [`Place::Device`].
    fn on_device(_settings: &mut Self::Settings, _device: &str) {}

    /// Attaches it; every change is in the journal before it is made. What another agent left is
    /// taken over where possible.
    fn attach(settings: &Self::Settings, site: &Site<'_>, journal: &mut Journal) -> Result<Self>;

    /// Takes new settings, where that is possible while it is attached.
    fn apply(&mut self, settings: &Self::Settings) -> Result<Applied>;

    /// Renews its lease; `until_ns`: the new end, CLOCK_MONOTONIC, ns.
    fn renew(&mut self, until_ns: u64) -> Result<()>;

    /// Lifts it, or lets it act again. A lifted cure watches, so that it can come back without
    /// retracting an advertised window.
    fn lift(&mut self, lifted: Lifted) -> Result<()>;

    /// Periodic work; called twice a second.
    fn tick(&mut self) -> Result<()> {
        Ok(())
    }

    /// Lines for the log since the last call.
    fn lines(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Its figures, and the flows that it sees.
    fn report(&mut self) -> Result<(Self::Figures, Vec<FlowStatus>)>;

    /// The changes that it has in the journal of its own.
    fn changes(&self) -> Vec<Change> {
        Vec::new()
    }

    /// Leaves it to another agent, pinned below `folder` if it does not stay by itself.
    fn hand_over(self, _folder: &Path) -> Result<()> {
        Ok(())
    }

    /// Ends it: everything is as it was, and the journal knows.
    fn detach(self, journal: &mut Journal) -> Result<()>;
}

/// What a cure on the uplink's device has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Name of the cure, and its name in messages.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Packets that it counts for its work, and packets of any kind; of the shaper, bytes.
    pub(crate) counted: u64,
    pub(crate) packets: u64,
    /// It sees what arrives, too.
    pub(crate) both_ways: bool,
    /// It is a BPF program.
    pub(crate) program: bool,
}

impl Attached {
    /// What each cure on the uplink's device has seen.
    pub(crate) fn seen(&self) -> Result<Vec<Seen>> {
        let acks = self.acks.as_ref().map(acks::Acks::counters).transpose()?;
        let gate = self.gate.as_ref().map(gate::Gate::packets).transpose()?;
        let acks = acks.map(|counters| Seen {
            name: acks::Acks::ABOUT.name,
            title: acks::Acks::ABOUT.title,
            counted: counters.segments,
            packets: counters.packets,
            both_ways: true,
            program: true,
        });
        let gate = gate.map(|packets| Seen {
            name: gate::Gate::ABOUT.name,
            title: gate::Gate::ABOUT.title,
            counted: packets,
            packets,
            both_ways: false,
            program: true,
        });
        // Its rate follows from reports: without them it is taken away, and another cure acts.
        let shaper = self.shaper.as_ref().filter(|shaper| shaper.in_charge());
        let shaper = shaper.map(|shaper| shaper.shaped_bytes()).transpose()?;
        let shaper = shaper.map(|bytes| Seen {
            name: shaper::Fed::ABOUT.name,
            title: shaper::Fed::ABOUT.title,
            counted: bytes,
            packets: bytes,
            both_ways: false,
            program: false,
        });
        Ok(acks.into_iter().chain(gate).chain(shaper).collect())
    }
}

/// Brings a cure to what is wanted: attached, changed, or detached. Lines for the log.
fn bring<C: Cure>(
    slot: &mut Option<C>,
    wanted: Option<&C::Settings>,
    site: &Site<'_>,
    journal: &mut Journal,
) -> Result<Vec<String>> {
    if let (Some(cure), Some(settings)) = (&mut *slot, wanted)
        && cure.apply(settings)? == Applied::Now
    {
        return Ok(cure.lines());
    }
    let before = slot.take();
    let ended = before.is_some() && wanted.is_none();
    before.map_or(Ok(()), |cure| cure.detach(journal))?;
    if let Some(settings) = wanted {
        let cure = slot.insert(C::attach(settings, site, journal)?);
        cure.renew(site.lease())?;
        return Ok(cure.lines());
    }
    Ok(if ended { vec![format!("{}: off", C::ABOUT.title)] } else { Vec::new() })
}

/// Tries every feature that a cure needs: what all programs need, the cures' programs, the hooks
/// for them, and what needs no program.
pub fn features() -> Vec<Tried> {
    needed_features().map(Feature::tried).collect()
}

fn needed_features() -> impl Iterator<Item = &'static Feature> {
    let of = |program: bool| {
        let cures = TABLE.iter().filter(move |about| about.program == program);
        cures.flat_map(|about| about.features.iter().copied())
    };
    let base = kernel::BASE.iter();
    let all = base.chain(of(true)).chain(attach::HOOKS.iter()).chain(of(false));
    all.chain([&kernel::SOCK_DIAG])
}

/// The window law as the agent uses it: λ and the rate adapt (`algo::rwnd::adaptive`), and the flows of a host get equal rates
/// (`algo::rwnd::fair`). The kernel's memory bounds the window, not the law. `alpha` and `quick` count only for the estimate that
/// `rtt_min_age` uses, and with the paper's form.
pub fn window_law() -> drwa::Config {
    drwa::Config {
        form: drwa::Form::Agent,
        lambda: Lambda::AGENT.default,
        lambda_min: Some(MIN_LAMBDA),
        alpha: 8,
        quick: true,
        fair: true,
        max: Bytes(1 << 30),
        ..drwa::Config::default()
    }
}

/// RTT that a window law allows, as a multiple of RTTmin: one definition for
/// the configuration's defaults (so for `on` and `run`) and for `plan`.
#[derive(Clone, Copy, Debug)]
pub struct Lambda {
    /// What the agent uses if the configuration does not give another.
    pub default: f64,
    /// The same, as the configuration writes it.
    pub text: &'static str,
    /// For low delay: what `plan` recommends where the default would save too little.
    pub low_delay: f64,
}

impl Lambda {
    /// The largest λ of either direction. On recorded links more carries no more (docs/window-law.md).
    pub const AGENT: Lambda = Lambda { default: 1.75, text: "1.75", low_delay: 1.5 };
}

/// The smallest λ: the queue of a steady link. With 1.1875 the windows of two of seven recorded links
/// shrank until they carried 80 and 61 % (docs/window-law.md).
pub const MIN_LAMBDA: f64 = 1.25;
/// The same, as the configuration writes it.
const MIN_LAMBDA_TEXT: &str = "1.25";
/// Range of λ in the configuration; a sixteenth is its unit.
const LAMBDA: Form = form::number("1", "16");
/// Weight of the old value in a window law's average; below one, or it would learn nothing.
const AVERAGE: Form = form::number("0", "0.9375");

/// λ and its smallest value, the average, `quick` and `fair` of a window law.
fn read_law(at: &Section<'_>, law: &mut drwa::Config) -> settings::Result<()> {
    law.lambda = at.number("lambda")?;
    law.lambda_min = Some(at.number("lambda_min")?);
    law.alpha = (at.number("average")? * 16.0).round() as u64;
    law.quick = at.flag("quick")?;
    law.fair = at.flag("fair")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_the_ids_by_which_other_programs_ask_for_them() {
        let ids: Vec<_> = needed_features().map(|feature| serde_json::json!(feature.id)).collect();
        assert_eq!(
            ids,
            [
                "kernel-types",
                "cgroup-v2",
                "bpf-file-system",
                "download-windows",
                "live-download-windows",
                "ack-windows",
                "gate",
                "pacing",
                "congestion-control",
                "live-congestion-control",
                "tcx",
                "clsact",
                "htb",
                "fq-codel",
                "sock-diag",
            ]
        );
    }
}

#[cfg(test)]
mod docs;
