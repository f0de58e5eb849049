//! How DRWA on this host's sockets is configured: its section of the configuration, and the struct that its BPF program reads.

use std::net::IpAddr;
use std::path::PathBuf;

use ::settings::form::{self, FLAG, bytes, choice};
use ::settings::{Group, Item, Section, Tree, group};
use algo::Unit;
use algo::rwnd::drwa::{Config as Law, Form};
use units::Bytes;

use super::headroom;
use crate::cures::{
    AVERAGE, LAMBDA, Lambda, MIN_LAMBDA_TEXT, Prefix, Result, read_law, window_law,
};
use crate::kernel;
use crate::kernel::layouts::{DrwaLaw, ReceiveConfig};
use crate::section::{Document, SCOPE};

/// How the windows of this host's downloads are set.
pub(super) const SECTION: Group = group! {
    /// Downloads: DRWA holds RTT at lambda times its minimum by the windows that this host
    /// advertises.
    [receive]
    enabled = "true", FLAG;
    /// RTT that is allowed, in RTTmin: 1.5 for low delay, 3 for links whose rate changes much.
    lambda = Lambda::AGENT.text, LAMBDA;
    /// The smallest λ: it adapts to how much the path varies, between this and `lambda`.
    lambda_min = MIN_LAMBDA_TEXT, LAMBDA;
    /// "rate" averages the rate, "paper" the window, as the paper does.
    form = "rate", choice(&["rate", "paper"]);
    /// Weight of the old value in the average.
    average = "0.5", AVERAGE;
    /// The average jumps up to a larger value at once.
    quick = "true", FLAG;
    /// Flows of this host in one direction get equal rates, whatever their RTTs.
    fair = "true", FLAG;
    /// Smallest window, segments.
    floor = "2", form::count("1", "1000");
    /// Segments that every decision adds: small windows grow again, those at one bottleneck become
    /// alike, for a little more delay.
    increment = "0", form::count("0", "1000");
    /// Largest window.
    largest = "1 GiB", bytes("64 KiB", "1 GiB");
    /// Received before anything is done: handshakes and short replies keep the kernel's window.
    start = "20 KB", settings::Form::Plain(Unit::Bytes, None);
    /// RTTmin is shared by all connections to an address, so that a latecomer knows the empty path.
    shared_minimum = "true", FLAG;
    /// RTTmin is measured again, with the queue emptied, when it has not been seen for so long;
    /// "0 s": never. Only without `shared_minimum` and `fair`: other connections know RTTmin, too.
    rtt_min_age = "0 s", settings::Form::Plain(Unit::Duration, None);
    /// AFC's rate term: buffers that applications fixed with SO_RCVBUF are larger by what is read
    /// in a round trip, in real memory.
    rate_term = "false", FLAG;
    /// Only these destinations, or all but these.
    only = "[]", settings::Form::Other("prefixes");
    except = "[]", settings::Form::Other("prefixes");
    /// Look, and change nothing.
    observe = "false", FLAG;
};

/// Whose connections: a number, or a name of this host.
fn user(scope: &Section<'_>) -> ::settings::Result<Option<u32>> {
    let unknown = |name: &str| scope.refuse("user", format!("this host knows no user \"{name}\""));
    if let Some(Item::Whole(number)) = scope.get("user").map(|user| &user.item) {
        return u32::try_from(*number).map(Some).or_else(|_| unknown(&number.to_string()));
    }
    let Some(name) = scope.filled("user")? else { return Ok(None) };
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Ok(Some(user.uid.as_raw())),
        Ok(None) => unknown(name),
        Err(e) => scope.refuse("user", format!("{name}: {e}")),
    }
}

/// A list of prefixes.
fn prefixes(at: &Section<'_>, key: &str) -> ::settings::Result<Vec<Prefix>> {
    let Some(tree) = at.get(key) else { return Ok(Vec::new()) };
    let Some(list) = tree.list() else {
        return at.refuse(key, "expected a list, as [\"192.0.2.0/24\"]");
    };
    let read = |one: &Tree| match one.text() {
        Some(text) => at.parsed(key, text),
        None => at.refuse(key, "expected prefixes in quotes"),
    };
    list.iter().map(read).collect()
}

/// Peers whose connections the cure covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Places {
    /// Connections to all addresses.
    All,
    /// Only connections to these prefixes.
    Only(Vec<Prefix>),
    /// Connections to all addresses except these prefixes.
    Except(Vec<Prefix>),
}

/// How DRWA is to work here.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The law. Its `initial` and `estimator` are the kernel's and the connection's business.
    pub law: Law,
    /// Bytes received before anything is done: handshakes and short replies keep the kernel's window.
    pub start: Bytes,
    /// RTTmin is shared by all sockets to one address, so that a latecomer knows the empty path.
    pub shared_minimum: bool,
    /// Peers whose connections are covered.
    pub places: Places,
    /// The cgroup whose sockets are cured; none: the root, all sockets.
    pub cgroup: Option<PathBuf>,
    /// Only connections of this user.
    pub user: Option<u32>,
    /// AFC's rate term: buffers that applications fixed are larger by what is read in a round trip.
    pub rate_term: bool,
    /// Measure and decide, but change nothing.
    pub observe: bool,
    /// Where programs and maps are pinned.
    pub pins: PathBuf,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            law: window_law(),
            start: Bytes(20_000),
            shared_minimum: true,
            places: Places::All,
            cgroup: None,
            user: None,
            rate_term: false,
            observe: false,
            pins: "/sys/fs/bpf/unbloat".into(),
        }
    }
}

impl Settings {
    /// The settings of a configuration; none where the cure is switched off.
    pub(super) fn read(document: &Document<'_>) -> ::settings::Result<Option<Settings>> {
        let (at, scope) = (document.section(&SECTION)?, document.section(&SCOPE)?);
        let (user, cgroup) = (user(&scope)?, scope.filled("cgroup")?.map(PathBuf::from));
        if !at.flag("enabled")? {
            if user.is_some() {
                let text = "only [receive] knows whose a connection is, and it is switched off";
                return scope.refuse("user", text);
            }
            return Ok(None);
        }
        let mut law = Law {
            // In the order of the words in the table.
            form: [Form::Agent, Form::Paper][at.choice("form")?],
            min_window: at.count("floor")?,
            increment: at.count("increment")?,
            max: at.bytes("largest")?,
            rtt_min_age: Some(at.duration("rtt_min_age")?).filter(|age| age.0 > 0),
            ..window_law()
        };
        read_law(&at, &mut law)?;
        let shared_minimum = at.flag("shared_minimum")?;
        if law.rtt_min_age.is_some() && (shared_minimum || law.fair) {
            let text = "it has an effect only with shared_minimum = false and fair = false, since other connections know RTTmin, too";
            return at.refuse("rtt_min_age", text);
        }
        let places = match (prefixes(&at, "only")?, prefixes(&at, "except")?) {
            (only, except) if only.is_empty() && except.is_empty() => Places::All,
            (only, except) if except.is_empty() => Places::Only(only),
            (only, except) if only.is_empty() => Places::Except(except),
            _ => return at.refuse("except", "either only or except, not both"),
        };
        Ok(Some(Settings {
            law,
            start: at.bytes("start")?,
            shared_minimum,
            places,
            cgroup,
            user,
            rate_term: at.flag("rate_term")?,
            observe: at.flag("observe")?,
            pins: document.pins.to_owned(),
        }))
    }

    pub(super) fn config(&self, before: &ReceiveConfig) -> Result<ReceiveConfig> {
        let (cgroup, cgroup_level) = kernel::scope(&self.cgroup_path()?)?;
        Ok(ReceiveConfig {
            law: DrwaLaw::new(&self.law, 0, true),
            lease_until_ns: before.lease_until_ns,
            start_bytes: self.start.0,
            cgroup,
            cgroup_level,
            floor_segments: self.law.min_window.min(1_000) as u32,
            increment_segments: self.law.increment.min(1_000) as u32,
            by_place: match self.places {
                Places::All => 0,
                Places::Only(_) => 1,
                Places::Except(_) => 2,
            },
            shared_minimum: self.shared_minimum.into(),
            observe: self.observe.into(),
            places_version: before.places_version.wrapping_add(1) & 0x7fff_ffff,
            by_user: self.user.is_some().into(),
            user: self.user.unwrap_or(0),
            rate_term: self.rate_term.into(),
            max_buffer: headroom::max_buffer(),
            scarce: before.scarce,
        })
    }

    /// Directory of the cgroup whose sockets are cured.
    pub(crate) fn cgroup_path(&self) -> Result<PathBuf> {
        self.cgroup.clone().map_or_else(kernel::cgroup_root, Ok)
    }

    /// The network namespace whose sockets are cured; 0: those of all, as in a cgroup of one's
    /// choice.
    pub(crate) fn space(&self) -> u32 {
        if self.cgroup.is_some() { 0 } else { kernel::network_scope() }
    }

    /// Whether connections to an address are covered.
    pub(crate) fn covers(&self, remote: IpAddr) -> bool {
        match &self.places {
            Places::All => true,
            Places::Only(list) => list.iter().any(|prefix| prefix.contains(remote)),
            Places::Except(list) => !list.iter().any(|prefix| prefix.contains(remote)),
        }
    }

    pub(super) fn prefixes(&self) -> &[Prefix] {
        match &self.places {
            Places::All => &[],
            Places::Only(list) | Places::Except(list) => list,
        }
    }
}
