//! Congestion control by destination or cgroup: of new connections as they begin, of existing ones
//! by a walk over the sockets.
//!
//! signal: the configuration · model: the deepest cgroup with a name, else the longest prefix that
//! contains the remote address · action: TCP_CONGESTION of the socket. The sender's congestion
//! control counts, so this helps uploads. What a socket had before is kept beside it, and given
//! back.

use std::path::{Path, PathBuf};

use aya::include_bytes_aligned;
use aya::maps::lpm_trie::Key;
use aya::maps::{Array, HashMap, LpmTrie, MapData, PerCpuArray};
use aya::programs::links::PinnedLink;
use serde::Serialize;
use settings::form::FLAG;
use settings::{Form, Group, Section, Tree, group};

use crate::cures::figures::{Sample, count, counter, families};
use crate::cures::receive::taken;
use crate::cures::{
    About, Applied, Cure, CureError, Figures, FlowStatus, Lifted, Place, Prefix, Result, Site,
    attach,
};
use crate::kernel::layouts::{CongestionConfig, CongestionCounters, Route};
use crate::kernel::socket_walk::{self, Action, Walker};
use crate::kernel::{self, Feature, FeatureId};
use crate::section::{Document, SCOPE};
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::{LEASE, Leased, LeasedMap, lease};

/// The compiled program.
static PROGRAM: &[u8] = include_bytes_aligned!("../../bpf/congestion.bpf.o");
/// What the kernel has; modules that are not loaded are not listed.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Which congestion control to which destination.
const SECTION: Group = group! {
    /// Uploads: which congestion control the kernel uses to which destination.
    [congestion]
    /// Connections that exist already, too.
    live = "true", FLAG;
    /// As routes = { "0.0.0.0/0" = "bbr", "::/0" = "bbr" }
    routes = "{}", Form::Other("prefixes with names");
    /// For what was made in a cgroup or below it, whatever its destination:
    /// cgroups = { "/sys/fs/cgroup/backup.slice" = "bbr" }
    cgroups = "{}", Form::Other("cgroups with names");
};

/// The program that sets the congestion control of new connections.
static NEW_CONNECTIONS: Feature = Feature {
    id: FeatureId::CongestionControl,
    name: "congestion control of new connections",
    since: "5.7",
    probe: || {
        kernel::cgroups()?;
        kernel::load_sock_ops(PROGRAM, "congestion", None).map(drop)
    },
};

/// The walk over connections.
static LIVE_CONNECTIONS: Feature = Feature {
    id: FeatureId::LiveCongestionControl,
    name: "congestion control of connections that exist already",
    since: "5.15",
    probe: || kernel::load_walk(None).map(drop),
};

/// A table of names of congestion controls.
fn named<'a>(
    at: &Section<'a>,
    key: &str,
    example: &str,
) -> settings::Result<Vec<(&'a str, String)>> {
    let Some(tree) = at.get(key) else { return Ok(Vec::new()) };
    let Some(table) = tree.table() else {
        return at.refuse(key, format!("expected names, as {{ \"{example}\" = \"bbr\" }}"));
    };
    let one = |(of, name): &'a (String, Tree)| match name.text() {
        Some(name) if !name.is_empty() && name.len() < 16 => Ok((of.as_str(), name.to_owned())),
        _ => at.refuse(key, format!("{of}: expected the name of a congestion control")),
    };
    table.entries.iter().map(one).collect()
}

/// Which congestion control to which destination.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Prefix and name; the longest prefix that fits counts.
    pub routes: Vec<(Prefix, String)>,
    /// Directory of a cgroup and name, for the connections that were made in it or below it; counts more than a prefix.
    pub groups: Vec<(PathBuf, String)>,
    /// Connections that exist already, too.
    pub live: bool,
    /// The cgroup whose sockets are cured; none: the root, all sockets.
    pub cgroup: Option<PathBuf>,
    /// Where programs and maps are pinned.
    pub pins: PathBuf,
}

impl Settings {
    /// Refuses names that this kernel does not have, in one line.
    pub fn check(&self, available: &[String]) -> Result<()> {
        let routes = self.routes.iter().map(|(prefix, name)| (prefix.to_string(), name));
        let groups = self.groups.iter().map(|(path, name)| (path.display().to_string(), name));
        for (whose, name) in routes.chain(groups) {
            if !available.contains(name) {
                let list = available.join(", ");
                let text = format!(
                    "\"{name}\" for {whose}: this kernel has {list} (modprobe tcp_{name} may bring it)"
                );
                return Err(CureError::Refused(text));
            }
        }
        Ok(())
    }
}

/// What this kernel has.
pub fn available() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(AVAILABLE).map_err(CureError::file(AVAILABLE))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// The attached cure.
pub struct Congestion {
    choice: LeasedMap<CongestionConfig>,
    tally: PerCpuArray<MapData, CongestionCounters>,
    routes: LpmTrie<MapData, [u32; 4], Route>,
    groups: HashMap<MapData, u64, Route>,
    link: PinnedLink,
    program: u32,
    settings: Settings,
    /// Existing connections that walks have changed, or that the kernel did not let change.
    live: CongestionCounters,
    /// Counters of the program when this began: the pins may be older.
    before: CongestionCounters,
    /// Grows when connections may have begun that the program did not see.
    generation: u64,
    lifted: bool,
    /// Lines for the log since the last call of `lines`.
    lines: Vec<String>,
}

/// Counters of this cure.
#[derive(Debug, Default, Serialize)]
pub struct CongestionFigures {
    switched: u64,
    refused: u64,
}

families! {
    SWITCHED = counter("unbloat_congestion_switched", "",
        "Connections whose congestion control was changed.");
    REFUSED = counter("unbloat_congestion_refused", "",
        "Connections whose congestion control the kernel did not let change.");
}

impl Figures for CongestionFigures {
    fn line(&self) -> String {
        format!("{} connections switched, {} refused", self.switched, self.refused)
    }

    fn samples(&self) -> Vec<Sample> {
        vec![count(SWITCHED, &[], self.switched), count(REFUSED, &[], self.refused)]
    }
}

impl Cure for Congestion {
    const ABOUT: About = About {
        name: "congestion",
        title: "congestion control",
        place: Place::Sockets,
        program: true,
        features: &[&NEW_CONNECTIONS, &LIVE_CONNECTIONS],
        section: Some(&SECTION),
    };
    type Settings = Settings;
    type Figures = CongestionFigures;

    fn settings(document: &Document<'_>) -> settings::Result<Option<Settings>> {
        let at = document.section(&SECTION)?;
        let live = at.flag("live")?;
        let routes = named(&at, "routes", "0.0.0.0/0")?;
        let routes = routes.into_iter().map(|(of, name)| Ok((at.parsed("routes", of)?, name)));
        let routes: Vec<(Prefix, String)> = routes.collect::<settings::Result<_>>()?;
        let groups = named(&at, "cgroups", "/sys/fs/cgroup/backup.slice")?;
        let groups: Vec<(PathBuf, String)> =
            groups.into_iter().map(|(path, name)| (path.into(), name)).collect();
        if routes.is_empty() && groups.is_empty() {
            return Ok(None);
        }
        let cgroup = document.section(&SCOPE)?.filled("cgroup")?.map(PathBuf::from);
        Ok(Some(Settings { routes, groups, live, cgroup, pins: document.pins.to_owned() }))
    }

    fn attach(settings: &Settings, site: &Site<'_>, journal: &mut Journal) -> Result<Congestion> {
        settings.check(&available()?)?;
        kernel::able()?;
        kernel::pinnable(&settings.pins)?;
        let change = Change::Sockets { pins: settings.pins.clone() };
        journal.write(&change).map_err(CureError::file(journal.path()))?;
        let folder = socket_walk::made(&settings.pins)?;
        let mut ebpf = kernel::load_sock_ops(PROGRAM, "congestion", Some(&folder))?;
        let scope = settings.cgroup.clone().map_or_else(kernel::cgroup_root, Ok)?;
        // The same for all cures on sockets: both have one scope.
        let mut space: Array<_, u32> = taken(&mut ebpf, "space")?;
        let selected = if settings.cgroup.is_some() { 0 } else { kernel::network_scope() };
        space.set(0, selected, 0).map_err(|e| CureError::Map("space", e.to_string()))?;
        let (link, program) = socket_walk::attach(&mut ebpf, "congestion", &scope, &settings.pins)?;
        let mut congestion = Congestion {
            choice: LeasedMap::new("choice", taken(&mut ebpf, "choice")?)?,
            tally: taken(&mut ebpf, "tally")?,
            routes: taken(&mut ebpf, "routes")?,
            groups: taken(&mut ebpf, "groups")?,
            link,
            program,
            settings: settings.clone(),
            live: CongestionCounters::default(),
            before: CongestionCounters::default(),
            generation: 0,
            lifted: site.lifted,
            lines: Vec::new(),
        };
        congestion.before = congestion.tally()?;
        congestion.write_routes()?;
        congestion.write_groups()?;
        congestion.renew(site.lease())?;
        congestion.switch_live()?;
        Ok(congestion)
    }

    /// For connections that begin from now on, and for live ones.
    fn apply(&mut self, settings: &Settings) -> Result<Applied> {
        settings.check(&available()?)?;
        self.settings = settings.clone();
        self.write_routes()?;
        self.write_groups()?;
        self.switch_live()?;
        Ok(Applied::Now)
    }

    fn renew(&mut self, until_ns: u64) -> Result<()> {
        self.choice.grant(if self.lifted { 0 } else { until_ns })?;
        self.generation += u64::from(self.choice.gap());
        Ok(())
    }

    fn lift(&mut self, lifted: Lifted) -> Result<()> {
        self.lifted = lifted.up;
        self.renew(lease(LEASE))?;
        match self.lifted {
            true => self.switch_back(),
            false => self.switch_live(),
        }
    }

    fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn report(&mut self) -> Result<(CongestionFigures, Vec<FlowStatus>)> {
        // Of new connections since the pins were made, of existing ones since this began.
        let tally = self.tally()?;
        let figures = CongestionFigures {
            switched: self.live.switched + tally.switched,
            refused: self.live.refused + tally.refused,
        };
        Ok((figures, Vec::new()))
    }

    /// Live connections get back what they had.
    fn detach(mut self, journal: &mut Journal) -> Result<()> {
        self.choice.grant(0)?;
        let pins = self.settings.pins.clone();
        self.switch_back()?;
        let path = socket_walk::folder(&pins).join("congestion");
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(CureError::file(path)(e));
            }
            _ => drop(self.link),
        }
        attach::tidy(&pins, journal)
    }
}

impl Congestion {
    /// Number of its program.
    pub(crate) fn program(&self) -> u32 {
        self.program
    }

    fn tally(&self) -> Result<CongestionCounters> {
        let values = self.tally.get(&0, 0).map_err(|e| CureError::Map("tally", e.to_string()))?;
        Ok(CongestionCounters {
            switched: values.iter().map(|each| each.switched).sum(),
            refused: values.iter().map(|each| each.refused).sum(),
        })
    }

    /// Connections that it has changed since it began, and that the kernel did not let change.
    pub(crate) fn counted(&self) -> Result<CongestionCounters> {
        let (tally, before) = (self.tally()?, self.before);
        Ok(CongestionCounters {
            switched: self.live.switched + tally.switched.saturating_sub(before.switched),
            refused: self.live.refused + tally.refused.saturating_sub(before.refused),
        })
    }

    /// How the cure is configured.
    pub(crate) fn now(&self) -> &Settings {
        &self.settings
    }

    /// Grows when connections may have begun that the program did not see.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether it changes nothing because that was requested.
    pub(crate) fn is_lifted(&self) -> bool {
        self.lifted
    }

    /// Changes live connections now.
    fn switch_live(&mut self) -> Result<()> {
        if self.lifted || !self.settings.live {
            return Ok(());
        }
        let scope = self.settings.cgroup.clone().map_or_else(kernel::cgroup_root, Ok)?;
        let task = Walker::load(&self.settings.pins)?.walk(Action::Switch, &scope)?.task;
        let changed = task.changed;
        self.live.switched += u64::from(changed);
        self.live.refused += u64::from(task.refused);
        if changed > 0 {
            self.lines
                .push(format!("congestion control: changed for {changed} existing connections"));
        }
        Ok(())
    }

    /// Gives live connections back what they had, where there is a walk.
    fn switch_back(&mut self) -> Result<()> {
        let walker = Walker::find(&self.settings.pins)?;
        walker.map_or(Ok(()), |mut walker| walker.walk(Action::SwitchBack, Path::new("")).map(drop))
    }

    fn write_routes(&mut self) -> Result<()> {
        let failed = |e: aya::maps::MapError| CureError::Map("routes", e.to_string());
        let mut wanted = Vec::new();
        for (prefix, name) in &self.settings.routes {
            let place = prefix.place();
            let key = Key::new(place.prefix, place.address);
            self.routes.insert(&key, route(name), 0).map_err(failed)?;
            wanted.push((place.prefix, place.address));
        }
        let there: Vec<Key<[u32; 4]>> = self.routes.keys().filter_map(|key| key.ok()).collect();
        for key in there {
            if !wanted.contains(&(key.prefix_len(), key.data())) {
                let _ = self.routes.remove(&key);
            }
        }
        Ok(())
    }

    fn write_groups(&mut self) -> Result<()> {
        let failed = |e: aya::maps::MapError| CureError::Map("groups", e.to_string());
        let mut wanted = Vec::new();
        for (path, name) in &self.settings.groups {
            let (number, _) = kernel::cgroup(path)?;
            self.groups.insert(number, route(name), 0).map_err(failed)?;
            wanted.push(number);
        }
        let there: Vec<u64> = self.groups.keys().filter_map(|key| key.ok()).collect();
        for key in there.iter().filter(|key| !wanted.contains(key)) {
            let _ = self.groups.remove(key);
        }
        Ok(())
    }
}

impl Leased for CongestionConfig {
    fn until_ns(&mut self) -> &mut u64 {
        &mut self.lease_until_ns
    }
}

/// A name as the kernel has it: at most 15 letters and a zero.
fn route(name: &str) -> Route {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    Route { name: bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lacks_is_refused_in_one_line_with_what_it_has() {
        let settings = Settings {
            routes: vec![("0.0.0.0/0".parse().unwrap(), "bbr3".to_owned())],
            groups: vec![("/sys/fs/cgroup/video".into(), "cubic".to_owned())],
            live: true,
            cgroup: None,
            pins: "/nowhere".into(),
        };
        let have = ["reno".to_owned(), "cubic".to_owned()];
        let text = settings.check(&have).unwrap_err().to_string();
        assert!(
            text.contains("\"bbr3\"") && text.contains("reno, cubic") && !text.contains('\n'),
            "{text}"
        );
        assert_eq!(&route("cubic").name[..6], b"cubic\0");
        assert_eq!(route("a name that is far too long").name[15], 0);
    }
}
