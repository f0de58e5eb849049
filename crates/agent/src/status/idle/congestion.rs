//! The watch over the choice of congestion controls: what the cure counts, against what the sockets
//! of new connections use.
//!
//! A connection that should have got another congestion control than its namespace's default, and
//! carries data with that default, is evidence while the cure counts none: its program counts each
//! connection that it changes as it begins. A connection with any other congestion control is none,
//! since its application may have chosen that. Nor is one that was there before the cure.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use netlink::diag::Socket;

use super::device::bytes_out;
use super::judge::ENOUGH;
use super::{Key, Verdict, Work, cgroups};
use crate::cures::congestion::{Congestion, Settings};
use crate::kernel::layouts::CongestionCounters;

/// A cure that chooses congestion controls.
pub(super) struct Choice {
    pub(super) generation: u64,
    /// Connections that the cure had changed when this watch began.
    begun: u64,
    last: CongestionCounters,
    /// Connections that were there at the begin of the present window; none until the next look
    /// after the cure has counted any.
    window: Option<HashSet<Key>>,
    names: Names,
    /// A new connection has what it should have, without any change.
    right: bool,
    problem: Option<String>,
}

impl Choice {
    pub(super) fn new(cure: &Congestion, counters: CongestionCounters) -> Choice {
        Choice {
            generation: cure.generation(),
            begun: counters.switched,
            last: counters,
            window: None,
            names: Names::new(cure.now()),
            right: false,
            problem: None,
        }
    }

    /// After the sockets in its scope were read: the counters are newer than they are. `defaults`:
    /// the default congestion control of each namespace.
    pub(super) fn look(
        &mut self,
        settings: &Settings,
        counters: CongestionCounters,
        sockets: &[(Key, Socket)],
        defaults: &HashMap<u64, String>,
    ) {
        let counts = std::mem::replace(&mut self.last, counters) != counters;
        if counts {
            (self.window, self.problem) = (None, None);
        }
        if counters.refused > 0 && counters.switched == 0 {
            self.problem = Some(format!(
                "congestion control does nothing: the kernel refused all {} changes",
                counters.refused
            ));
            return;
        }
        let Some(window) = &self.window else {
            self.window = Some(sockets.iter().map(|(key, _)| *key).collect());
            return;
        };
        let (mut bytes, mut wanted) = (0, None);
        for (key, socket) in sockets {
            let (Some(name), Some(uses)) =
                (self.names.of(settings, socket), socket.congestion.as_deref())
            else {
                continue;
            };
            if window.contains(key) {
                continue;
            }
            self.right |= name == uses;
            if name != uses && defaults.get(&key.0).is_some_and(|default| default == uses) {
                bytes += bytes_out(socket);
                wanted = Some((name, uses));
            }
        }
        if let (Some((name, uses)), true, None) = (wanted, bytes >= ENOUGH, &self.problem) {
            self.problem = Some(format!(
                "congestion control does nothing: {} KB left on new connections that should use \
                 {name} and use {uses}, but the cure counted none: the kernel does not call its \
                 program; \"unbloat-agent off\", then \"on\" attaches it again",
                bytes / 1_000
            ));
        }
    }

    /// Whether its window begins with the next look.
    pub(super) fn waits(&self) -> bool {
        self.window.is_none()
    }

    pub(super) fn verdict(&self) -> Verdict {
        match &self.problem {
            Some(text) => (Work::Idle, Some(text.clone())),
            None if self.right || self.last.switched > self.begun => (Work::Counts, None),
            None => (Work::Quiet, None),
        }
    }
}

/// The name for each connection: of the deepest cgroup that has one, else of the longest prefix.
struct Names {
    /// By cgroup; those below it, too.
    groups: HashMap<u64, String>,
}

impl Names {
    fn new(settings: &Settings) -> Names {
        let mut named: Vec<&(std::path::PathBuf, String)> = settings.groups.iter().collect();
        named.sort_by_key(|(path, _)| depth(path));
        let mut groups = HashMap::new();
        for (path, name) in named {
            let mut below = HashSet::new();
            cgroups(path, &mut below);
            groups.extend(below.into_iter().map(|group| (group, name.clone())));
        }
        Names { groups }
    }

    fn of<'a>(&'a self, settings: &'a Settings, socket: &Socket) -> Option<&'a str> {
        if let Some(name) = socket.cgroup.and_then(|group| self.groups.get(&group)) {
            return Some(name);
        }
        let fits = settings.routes.iter().filter(|(prefix, _)| prefix.contains(socket.remote.0));
        fits.max_by_key(|(prefix, _)| prefix.place().prefix).map(|(_, name)| name.as_str())
    }
}

fn depth(path: &Path) -> usize {
    path.canonicalize().map_or(0, |path| path.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink::diag::TcpInfo;

    const NOTHING: CongestionCounters = CongestionCounters { switched: 0, refused: 0 };

    fn settings() -> Settings {
        let route = |prefix: &str, name: &str| (prefix.parse().unwrap(), name.to_owned());
        Settings {
            routes: vec![route("10.0.0.0/8", "bbr"), route("10.1.0.0/16", "cubic")],
            groups: Vec::new(),
            live: true,
            cgroup: None,
            pins: "/nowhere".into(),
        }
    }

    fn socket(cookie: u64, remote: &str, uses: &str, bytes: u64) -> (Key, Socket) {
        let socket = Socket {
            local: ("10.0.0.1".parse().unwrap(), 50_000),
            remote: (remote.parse().unwrap(), 443),
            cookie,
            unread_bytes: 0,
            device: 0,
            user: 0,
            cgroup: None,
            info: Some(TcpInfo { bytes_acked: Some(bytes), ..TcpInfo::default() }),
            memory: None,
            congestion: Some(uses.to_owned()),
        };
        ((1, cookie), socket)
    }

    fn seen(looks: &[(CongestionCounters, &[(Key, Socket)])]) -> Verdict {
        let settings = settings();
        let mut watch = Choice {
            generation: 0,
            begun: 0,
            last: NOTHING,
            window: None,
            names: Names::new(&settings),
            right: false,
            problem: None,
        };
        let defaults = HashMap::from([(1, "cubic".to_owned())]);
        for (counters, sockets) in looks {
            watch.look(&settings, *counters, sockets, &defaults);
        }
        watch.verdict()
    }

    #[test]
    fn new_connections_that_keep_the_default_are_a_problem_and_nothing_else_is() {
        let one = [socket(1, "10.2.0.1", "cubic", ENOUGH)];
        let (work, text) = seen(&[(NOTHING, &[]), (NOTHING, &one)]);
        assert_eq!(work, Work::Idle);
        assert!(text.unwrap().contains("should use bbr and use cubic"));
        let quiet = (Work::Quiet, None);
        assert_eq!(seen(&[(NOTHING, &one), (NOTHING, &one)]), quiet, "it was there before");
        for other in [
            socket(1, "10.2.0.1", "cubic", ENOUGH - 1),
            // Not covered, and what an application chose itself.
            socket(1, "192.0.2.1", "cubic", ENOUGH),
            socket(1, "10.2.0.1", "reno", ENOUGH),
            socket(1, "10.1.0.1", "bbr", ENOUGH),
        ] {
            assert_eq!(seen(&[(NOTHING, &[]), (NOTHING, &[other])]), quiet);
        }
        // The longest prefix counts; here there is nothing to change.
        let right = [socket(1, "10.1.0.1", "cubic", ENOUGH)];
        assert_eq!(seen(&[(NOTHING, &[]), (NOTHING, &right)]).0, Work::Counts);
        // A connection that the cure has counted: its application may choose another afterwards.
        let counted = CongestionCounters { switched: 1, refused: 0 };
        assert_eq!(seen(&[(NOTHING, &[]), (counted, &one), (counted, &one)]).0, Work::Counts);
    }

    #[test]
    fn only_refusals_are_a_problem() {
        let refused = CongestionCounters { switched: 0, refused: 3 };
        let (work, text) = seen(&[(NOTHING, &[]), (refused, &[])]);
        assert_eq!(work, Work::Idle);
        assert!(text.unwrap().contains("refused all 3 changes"));
        let both = CongestionCounters { switched: 1, ..refused };
        assert_eq!(seen(&[(NOTHING, &[]), (refused, &[]), (both, &[])]).0, Work::Counts);
    }
}
