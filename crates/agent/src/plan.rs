//! `plan`: looks at this host and its traffic, changes nothing, and says which cure would help,
//! what it would change, and what to expect.
//!
//! signal: this host ([`host`]) and its traffic, by its sockets ([`sockets`]) or by a capture
//! ([`capture`]) · model: a table of rules ([`rules`]) · action: [`advice`], as text (`page`) or
//! JSON, and the configuration that `on --config` takes.

pub mod rules;
pub mod text;

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::commands::{Failure, Output, failed};
use crate::cures::CureError;
use crate::plan::rules::View;
use advice::Advice;
use host::Host;
use observation::Observation;

pub mod advice;
pub mod capture;
pub mod host;
pub mod observation;
mod page;
pub mod sockets;

/// Default time for which sockets are observed.
const LIVE: Duration = Duration::from_secs(5);
/// Minimum of that time: less shows no transfer.
const MIN_LIVE: Duration = Duration::from_millis(200);
/// Observations longer than this show their progress.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);

/// Options of the subcommand `plan`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Captures to analyse; none: this host's sockets.
    pub capture: Vec<PathBuf>,
    /// Addresses of the host whose traffic a capture is to be judged as; none: found.
    pub host: Vec<IpAddr>,
    /// Time for which sockets are observed.
    pub live: Option<Duration>,
    /// The uplink's device, instead of that of the default route.
    pub device: Option<String>,
    /// Socket with a modem's reports.
    pub telemetry: PathBuf,
    /// File for the configuration.
    pub out: Option<PathBuf>,
    /// Where programs would be pinned.
    pub pins: PathBuf,
}

/// The result of `plan`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Properties of this host.
    pub host: Host,
    /// The traffic that was observed.
    pub seen: Observation,
    /// Cures that would help.
    pub advice: Vec<Advice>,
    /// The reason, where nothing is advised.
    pub nothing: Option<String>,
    /// The configuration for `on --config`; none where nothing in it is recommended.
    pub configuration: Option<String>,
}

impl Plan {
    /// Applies the rules to an observation.
    pub fn of(host: Host, seen: Observation, options: &Options) -> Plan {
        let view = View { host: &host, seen: &seen, pins: &options.pins };
        let advice = crate::plan::rules::advice(&view);
        let nothing = advice.is_empty().then(|| crate::plan::rules::nothing(&view));
        let configuration = configuration(&advice, options);
        Plan { host, seen, advice, nothing, configuration }
    }

    fn to_json(&self) -> Value {
        json!({
            "ok": true,
            "verdict": if self.advice.is_empty() { "nothing" } else { "advice" },
            "nothing": self.nothing,
            "advice": self.advice.iter().map(Advice::to_json).collect::<Vec<_>>(),
            "configuration": self.configuration,
            "seen": self.seen.to_json(),
            "host": self.host.to_json(),
        })
    }
}

/// Runs the subcommand `plan`.
pub fn plan(options: &Options, output: &Output) -> Result<(), Failure> {
    if options.live.is_some_and(|live| live < MIN_LIVE) {
        return Err(Failure::usage("--live: at least 200 ms, to see what moves"));
    }
    // Checked first, before the observation takes its time.
    let folder = options
        .out
        .as_deref()
        .and_then(Path::parent)
        .filter(|folder| !folder.as_os_str().is_empty());
    if let (Some(path), Some(folder)) = (&options.out, folder)
        && !folder.is_dir()
    {
        return Err(Failure::usage(format!(
            "{}: cannot be written: no such directory",
            path.display()
        )));
    }
    let mut host = Host::look(options.device.as_deref(), &options.telemetry)
        .map_err(|e| failed(e.to_string()))?;
    // The kernel's features are tried while the traffic is observed.
    let (features, seen) = std::thread::scope(|scope| {
        let features = scope.spawn(host::features);
        let seen = traffic(options, &host);
        let ended = || Err(CureError::Refused("what tried it ended".to_owned()));
        (features.join().unwrap_or_else(|_| ended()), seen)
    });
    host.learn(features);
    let seen = seen?;
    for warning in &seen.warnings {
        eprintln!("unbloat-agent: warning: {warning}");
    }
    let plan = Plan::of(host, seen, options);
    if let (Some(path), Some(text)) = (&options.out, &plan.configuration) {
        std::fs::write(path, text).map_err(|e| failed(format!("{}: {e}", path.display())))?;
    }
    output.say(&plan.to_json(), || page::text(&plan, options, page::width(), page::bold()));
    Ok(())
}

/// Observes the sockets, or analyses the captures.
fn traffic(options: &Options, host: &Host) -> Result<Observation, Failure> {
    if options.capture.is_empty() {
        let lasting = options.live.unwrap_or(LIVE);
        let mut progress =
            Progress::new("looking at this host's connections", lasting > PROGRESS_AFTER);
        return sockets::observe(lasting, host, |share| progress.show(share))
            .map_err(|e| failed(format!("this host's sockets: {e}")));
    }
    let mut progress = Progress::new("reading", true);
    capture::observe(&options.capture, host, &options.host, |share| progress.show(share))
        .map_err(Failure::unreadable)
}

/// A configuration with everything off, except what is recommended and available.
fn configuration(advice: &[Advice], options: &Options) -> Option<String> {
    let mut settings: Vec<(&str, String)> =
        vec![("receive.enabled", "false".to_owned()), ("uplink.mode", "\"off\"".to_owned())];
    let wanted: Vec<&Advice> = advice.iter().filter(|advice| advice.configured()).collect();
    if wanted.is_empty() {
        return None;
    }
    for (key, value) in wanted.iter().flat_map(|advice| &advice.settings) {
        match settings.iter_mut().find(|(known, _)| known == key) {
            Some(known) => known.1.clone_from(value),
            None => settings.push((key, value.clone())),
        }
    }
    if let Some(name) = &options.device {
        settings.insert(0, ("scope.device", format!("{name:?}")));
    }
    settings.sort_by_key(|(key, _)| section_of(key));
    let mut text =
        String::from("# Made by unbloat-agent plan; unbloat-agent defaults explains each key.\n");
    let mut section = "";
    for (key, value) in &settings {
        let (of, name) = key.split_once('.').unwrap_or(("", key));
        if of != section {
            section = of;
            let _ = write!(text, "\n[{section}]\n");
        }
        let _ = writeln!(text, "{name} = {value}");
    }
    Some(text)
}

/// Sections in the order of the template.
fn section_of(key: &str) -> usize {
    let order = ["scope", "receive", "uplink", "forward", "congestion"];
    order.iter().position(|section| key.split('.').next() == Some(*section)).unwrap_or(order.len())
}

/// A progress line on a terminal.
struct Progress {
    what: &'static str,
    shown: bool,
    begun: std::time::Instant,
    drawn: bool,
}

impl Progress {
    fn new(what: &'static str, long: bool) -> Progress {
        let shown = long && std::io::stderr().is_terminal();
        Progress { what, shown, begun: std::time::Instant::now(), drawn: false }
    }

    fn show(&mut self, share: f64) {
        // Short captures need no progress line.
        if self.shown && (self.drawn || self.begun.elapsed() > Duration::from_millis(300)) {
            self.drawn = true;
            let _ = write!(std::io::stderr(), "\r\x1b[K{} … {:.0} %", self.what, share * 100.0);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use advice::Rank;

    fn options() -> Options {
        Options {
            capture: Vec::new(),
            host: Vec::new(),
            live: None,
            device: None,
            telemetry: "/nowhere".into(),
            out: None,
            pins: "/pins".into(),
        }
    }

    fn one(cure: &'static str, settings: &[(&'static str, &str)]) -> Advice {
        let settings = settings.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        Advice { settings, ..Advice::new(cure, "bufferbloat", Rank::Recommended, "") }
    }

    #[test]
    fn the_configuration_has_what_is_recommended_and_nothing_else_on() {
        let all = [
            one("uplink", &[("uplink.mode", "\"acks\""), ("uplink.lambda", "2.0")]),
            one("receive", &[("receive.enabled", "true"), ("receive.lambda", "1.5")]),
        ];
        let text =
            configuration(&all, &Options { device: Some("eth0".to_owned()), ..options() }).unwrap();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "[scope]",
                "device = \"eth0\"",
                "",
                "[receive]",
                "enabled = true",
                "lambda = 1.5",
                "",
                "[uplink]",
                "mode = \"acks\"",
                "lambda = 2.0"
            ]
        );
        let config = Config::parse(&text, &[], "/pins".as_ref()).unwrap();
        assert_eq!(config.cures.receive.unwrap().law.lambda, 1.5);
    }

    #[test]
    fn what_is_not_available_or_is_an_alternative_is_left_out() {
        let blocked = Advice {
            blocked: Some("no BTF".to_owned()),
            ..one("receive", &[("receive.enabled", "true")])
        };
        assert_eq!(configuration(std::slice::from_ref(&blocked), &options()), None);
        let instead =
            Advice { rank: Rank::Instead, ..one("congestion", &[("congestion.routes", "{}")]) };
        assert_eq!(configuration(&[instead], &options()), None);
        let text =
            configuration(&[blocked, one("forward", &[("forward.enabled", "true")])], &options())
                .unwrap();
        assert!(
            text.contains(
                "[receive]\nenabled = false\n\n[uplink]\nmode = \"off\"\n\n[forward]\nenabled = true"
            ),
            "{text}"
        );
    }
}
