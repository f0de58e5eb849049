//! Congestion control by destination or cgroup: new connections as they begin, those that exist by a walk.
//!
//! signal: settings · model: the deepest cgroup with a name, else the longest prefix that holds the remote address, says the name · action: TCP_CONGESTION on the socket. It is the
//! sender's matter, so it helps uploads; what a socket had before is kept beside it, and given back.

use std::path::{Path, PathBuf};

use aya::maps::lpm_trie::Key;
use aya::maps::{HashMap, LpmTrie, MapData, PerCpuArray};
use aya::programs::links::PinnedLink;

use crate::cures::receive::taken;
use crate::cures::{CureError, Prefix, Result};
use crate::kernel;
use crate::kernel::layouts::{CongestionConfig, CongestionCounters, Route};
use crate::kernel::objects;
use crate::kernel::socket_walk::{self, Action, Walker};
use crate::undo::journal::{Change, Journal};
use crate::undo::lease::{Held, Leased};

/// What the kernel has; modules that are not loaded are not listed.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Which congestion control to where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Prefix and name; the longest prefix that fits counts.
    pub routes: Vec<(Prefix, String)>,
    /// Directory of a cgroup and name, for the connections that were made in it or below it; counts more than a prefix.
    pub groups: Vec<(PathBuf, String)>,
    /// Connections that exist already, too.
    pub live: bool,
    /// The cgroup whose sockets are ours; the root, everybody's, without one.
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

/// The choice at work.
pub struct Congestion {
    choice: Held<CongestionConfig>,
    tally: PerCpuArray<MapData, CongestionCounters>,
    routes: LpmTrie<MapData, [u32; 4], Route>,
    groups: HashMap<MapData, u64, Route>,
    link: PinnedLink,
    settings: Settings,
    /// Connections that existed, changed by walks.
    live: u64,
}

impl Congestion {
    /// Begins.
    pub fn attach(
        settings: &Settings,
        journal: &mut Journal,
        lease_until_ns: u64,
    ) -> Result<Congestion> {
        settings.check(&available()?)?;
        kernel::able()?;
        socket_walk::pinnable(&settings.pins)?;
        let change = Change::Sockets { pins: settings.pins.clone() };
        journal.write(&change).map_err(CureError::file(journal.path()))?;
        let folder = socket_walk::made(&settings.pins)?;
        let mut ebpf = kernel::load_sock_ops(objects::CONGESTION, "congestion", Some(&folder))?;
        let scope = settings.cgroup.clone().map_or_else(kernel::cgroup_root, Ok)?;
        let link = socket_walk::attach(&mut ebpf, "congestion", &scope, &settings.pins)?;
        let mut congestion = Congestion {
            choice: Held::new("choice", taken(&mut ebpf, "choice")?)?,
            tally: taken(&mut ebpf, "tally")?,
            routes: taken(&mut ebpf, "routes")?,
            groups: taken(&mut ebpf, "groups")?,
            link,
            settings: settings.clone(),
            live: 0,
        };
        congestion.write_routes()?;
        congestion.write_groups()?;
        congestion.renew(lease_until_ns)?;
        Ok(congestion)
    }

    /// Live connections change now: how many.
    pub fn switch_live(&mut self) -> Result<u32> {
        if !self.settings.live {
            return Ok(0);
        }
        let scope = self.settings.cgroup.clone().map_or_else(kernel::cgroup_root, Ok)?;
        let changed = Walker::load(&self.settings.pins)?.walk(Action::Switch, &scope)?.task.changed;
        self.live += u64::from(changed);
        Ok(changed)
    }

    /// Live connections get back what they had, where there is a walk.
    pub fn switch_back(&mut self) -> Result<()> {
        let walker = Walker::find(&self.settings.pins)?;
        walker.map_or(Ok(()), |mut walker| walker.walk(Action::SwitchBack, Path::new("")).map(drop))
    }

    /// Other routes, for connections that begin from now on, and for live ones at the next [`Congestion::switch_live`].
    pub fn set(&mut self, settings: &Settings) -> Result<()> {
        settings.check(&available()?)?;
        self.settings = settings.clone();
        self.write_routes()?;
        self.write_groups()
    }

    /// The lease holds until then, and is renewed.
    pub fn renew(&mut self, lease_until_ns: u64) -> Result<()> {
        self.choice.grant(lease_until_ns)
    }

    /// What it did: to new connections since the pins were made, to those that existed since this began.
    pub fn counters(&self) -> Result<CongestionCounters> {
        let values = self.tally.get(&0, 0).map_err(|e| CureError::Map("tally", e.to_string()))?;
        let live = CongestionCounters { switched: self.live, refused: 0 };
        Ok(values.iter().fold(live, |a, b| CongestionCounters {
            switched: a.switched + b.switched,
            refused: a.refused + b.refused,
        }))
    }

    /// Ends: live connections get back what they had.
    pub fn detach(mut self, journal: &mut Journal) -> Result<()> {
        self.renew(0)?;
        let pins = self.settings.pins.clone();
        self.switch_back()?;
        let path = socket_walk::folder(&pins).join("congestion");
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(CureError::file(path)(e));
            }
            _ => drop(self.link),
        }
        socket_walk::tidy(&pins, journal)
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
