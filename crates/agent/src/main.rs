//! The program `unbloat-agent`: arguments, one call, one line for what went wrong.
//!
//! Exit codes: 0 fine, 1 something failed, 2 wrong usage, 3 the configuration or a capture could not
//! be read, 4 on, but a cure that is wanted is not in place, 5 on, but a cure does nothing while data
//! flows, 130 a signal ended a run.

use std::path::PathBuf;
use std::process::ExitCode;

use agent::commands::{self, Failure, Output, failed};
use agent::daemon::Start;
use agent::daemon::paths::Paths;
use agent::daemon::supervisor;
use agent::kernel::mounts::{self, Need};
use agent::measure::{self, RunOptions};
use agent::plan;
use clap::{Args, Parser, Subcommand};

/// Cures for bufferbloat on this host, undone by themselves.
#[derive(Parser)]
#[command(name = "unbloat-agent", version, max_term_width = 100)]
struct Cli {
    /// Where journal, lock, control socket and log are.
    #[arg(long, global = true, value_name = "DIR", default_value = "/run/unbloat-agent")]
    runtime: PathBuf,
    /// Where programs and maps are pinned, on a bpf file system.
    #[arg(long, global = true, value_name = "DIR", default_value = "/sys/fs/bpf/unbloat")]
    pins: PathBuf,
    /// JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
struct Configuration {
    /// The configuration; `unbloat-agent defaults` prints every key.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Give a key another value, as receive.lambda=1.5; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
}

#[derive(Subcommand)]
enum Command {
    /// Apply the cures, in the background; new settings for an agent that runs.
    On {
        #[command(flatten)]
        configuration: Configuration,
        /// Wait until each cure is in place and counts the traffic in its scope; exit code 5 if one
        /// does nothing while data flows.
        #[arg(long, value_name = "TIME", value_parser = span)]
        wait: Option<std::time::Duration>,
    },
    /// Put everything back exactly, whether an agent runs or died.
    Off,
    /// Every flow: RTT, RTTmin, target and advertised window, in flight, queue, what limits.
    Status {
        /// With --json: the text, too.
        #[arg(long, hide = true)]
        text: bool,
    },
    /// Look, change nothing, and say which cure would help, what it would change, and what it expects.
    Plan {
        /// Judge this capture (pcap, pcapng, .gz, .zst; - for standard input); repeatable for a rotating one.
        #[arg(long, value_name = "FILE", conflicts_with = "live")]
        capture: Vec<PathBuf>,
        /// With --capture: judge the traffic of the host with this address; repeatable. Found otherwise.
        #[arg(long, value_name = "ADDRESS", requires = "capture")]
        host: Vec<std::net::IpAddr>,
        /// Judge this host's own connections, looked at for so long; what happens without --capture, for 5 s.
        #[arg(long, value_name = "TIME", value_parser = span)]
        live: Option<std::time::Duration>,
        /// The uplink's device, instead of that of the default route.
        #[arg(long, value_name = "NAME")]
        device: Option<String>,
        /// The Unix socket of a modem's reports.
        #[arg(long, value_name = "PATH", default_value = "/run/unbloat/modem.sock")]
        telemetry: PathBuf,
        /// Write the configuration that `on --config` takes.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Watch, apply, watch again, undo; a table of before and after.
    Run {
        #[command(flatten)]
        configuration: Configuration,
        /// How long, as "60 s".
        #[arg(long = "for", value_name = "TIME", value_parser = span)]
        lasting: std::time::Duration,
        /// Ping this host meanwhile, five times a second.
        #[arg(long, value_name = "HOST")]
        probe: Option<String>,
        /// A line of JSON for every look.
        #[arg(long)]
        stream: bool,
    },
    /// Apply the cures and stay, as systemd wants it.
    Serve {
        #[command(flatten)]
        configuration: Configuration,
        /// An agent that runs hands over without undoing anything: for upgrades.
        #[arg(long)]
        take_over: bool,
        /// All cures watch at first, and change nothing until the agent activates them.
        #[arg(long, hide = true)]
        lifted: bool,
        /// End when standard input does.
        #[arg(long, hide = true)]
        tied: bool,
    },
    /// What this kernel can do, and what is missing.
    Features,
    /// A configuration with every key and its default.
    Defaults,
    /// Undo when a daemon dies; started by it.
    #[command(hide = true)]
    Supervise { daemon: u32 },
}

/// A setting without `=` or without a key.
#[derive(Debug, thiserror::Error)]
#[error("expected KEY=VALUE")]
struct NoPair;

fn pair(text: &str) -> Result<(String, String), NoPair> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(NoPair),
    }
}

fn span(text: &str) -> Result<std::time::Duration, units::ParseError> {
    // a bare number is seconds, "60s" is "60 s"
    let text = text.trim();
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = text[digits.len()..].trim();
    let spaced = format!("{} {}", digits.trim(), if unit.is_empty() { "s" } else { unit });
    let span: units::Duration = spaced.parse()?;
    Ok(std::time::Duration::from_nanos(span.0))
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let paths = Paths { runtime: cli.runtime, pins: cli.pins };
    let output = Output { json: cli.json };
    let start = |configuration: Configuration, take_over| {
        let program = std::env::current_exe().map_err(|e| failed(format!("this program: {e}")))?;
        let Configuration { config, set } = configuration;
        // A daemon has another working directory.
        let file = config
            .map(|path| {
                path.canonicalize()
                    .map_err(|e| Failure::unreadable(format!("{}: {e}", path.display())))
            })
            .transpose()?;
        Ok(Start {
            file,
            set,
            paths: paths.clone(),
            program,
            take_over,
            lifted: false,
            tied: false,
        })
    };
    match &cli.command {
        Command::On { .. } | Command::Run { .. } | Command::Serve { .. } => {
            mounts::provide(Need::Attach);
        }
        Command::Plan { .. } | Command::Features => mounts::provide(Need::Probe),
        Command::Off => mounts::provide(Need::Undo),
        Command::Status { .. } | Command::Defaults | Command::Supervise { .. } => {}
    }
    let outcome = match cli.command {
        Command::On { configuration, wait } => {
            start(configuration, false).and_then(|start| commands::on(&start, wait, &output))
        }
        Command::Off => commands::off(&paths, &output),
        Command::Status { text } => commands::status(&paths, &output, text),
        Command::Plan { capture, host, live, device, telemetry, out } => {
            let pins = paths.pins.clone();
            let options = plan::Options { capture, host, live, device, telemetry, out, pins };
            plan::plan(&options, &output)
        }
        Command::Run { configuration, lasting, probe, stream } => {
            let (options, output) =
                (RunOptions { lasting, stream, probe }, Output { json: output.json || stream });
            start(configuration, false)
                .and_then(|start| crate::measure::run(start, &options, &output))
        }
        Command::Serve { configuration, take_over, lifted, tied } => {
            start(configuration, take_over)
                .and_then(|start| commands::serve(Start { lifted, tied, ..start }, &output))
        }
        Command::Features => commands::features(&output),
        Command::Defaults => commands::defaults(),
        Command::Supervise { daemon } => {
            supervisor::watch(&mut std::io::stdin(), &paths, daemon).map_err(failed)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failed(&failure);
            ExitCode::from(failure.code())
        }
    }
}
