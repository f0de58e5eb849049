//! Measuring traffic.

use settings::{Problem, Result, Section};
use units::Duration;

use super::{Run, each, once};
use crate::keys::{self, INTERVAL_RANGE};
use crate::types::{Probe, ProbeKind};

/// Largest number of probes, of packets of one probe, and of intervals in a list.
const MAX_PROBES: u64 = 1_000;
const MAX_PACKETS: u64 = 10_000_000;
const MAX_INTERVALS: u64 = 1_000;

/// All probes of the file, in order.
pub(super) fn probes(root: &Section<'_>, run: &Run<'_>) -> Result<Vec<Probe>> {
    let mut probes = Vec::new();
    let mut places = Vec::new();
    for (i, (tree, path)) in each(root, "probe", MAX_PROBES)?.into_iter().enumerate() {
        let section = Section::open(tree, path, &[keys::PROBE], &[])?;
        let from = run.node(&section, "from", Some("client"))?;
        let to = run.node(
            &section,
            "to",
            Some(if run.nodes[from].name == "server" { "client" } else { "server" }),
        )?;
        if from == to {
            let text = format!("from {} to itself", run.nodes[from].name);
            return section.wrong("to", Problem::Contradiction(text));
        }
        run.connected(&section, from, to)?;
        let kind =
            if section.choice("kind")? == 1 { ProbeKind::Isochronous } else { ProbeKind::Ping };
        if kind == ProbeKind::Ping {
            run.connected(&section, to, from)?;
        }
        let ttl =
            section.has("ttl").then(|| section.count("ttl")).transpose()?.map(|ttl| ttl as u8);
        if ttl.is_some() && kind != ProbeKind::Ping {
            let text = "an isochronous probe has no answer: only pings expire".to_owned();
            return section.wrong("ttl", Problem::Contradiction(text));
        }
        let start = section.duration("start")?;
        run.within(&section, "start", start)?;
        let every = every(&section, run.duration)?;
        let name = section.text("name")?.map_or_else(|| format!("probe{i}"), str::to_owned);
        let (bytes, class) = (section.bytes("bytes")?, section.class("class")?);
        places.push((section.place, section.full("name")));
        probes.push(Probe { name, kind, from, to, start, every, bytes, class, ttl });
    }
    once(
        "probe",
        probes.iter().zip(places).map(|(p, (place, path))| (p.name.as_str(), place, path)),
    )?;
    Ok(probes)
}

fn every(section: &Section<'_>, duration: Duration) -> Result<Vec<Duration>> {
    // Ten a second follow a queue that builds up within a second.
    let every: Vec<Duration> = if section.has("every") {
        section.list("every", INTERVAL_RANGE, MAX_INTERVALS)?
    } else {
        section.defaults("every")
    };
    let lap: Duration = every.iter().fold(Duration::ZERO, |sum, d| sum + *d);
    let packets = u128::from(duration.0) * every.len() as u128 / u128::from(lap.0.max(1));
    let found = u64::try_from(packets).unwrap_or(u64::MAX);
    if found > MAX_PACKETS {
        return section
            .wrong("every", Problem::TooMany { what: "packets", found, max: MAX_PACKETS });
    }
    Ok(every)
}
