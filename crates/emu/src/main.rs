//! The program `unbloat-emu`: arguments, one call, one line for what went wrong.
//!
//! Exit codes: 0 fine, 1 it ran but something failed or differed, 2 wrong usage, 3 an input could
//! not be read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use emu::replay::replay;
use emu::run::{Options, read_text, run, write_line};
use scenario::{Algorithm, Document, Family, GateBy, Offload, Scenario, TraceMissing, TraceText};
use serde_json::json;
use units::Duration;

/// Links and queues of a scenario on the real clock, between TUN devices of network namespaces.
#[derive(Parser)]
#[command(name = "unbloat-emu", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Emulate the links of a scenario.
    ///
    /// Example: unbloat-emu run upload.toml --out raw --netns client=a --netns server=b --now
    Run(RunArgs),
    /// Make the decisions of a run again without a clock, and compare.
    ///
    /// Example: unbloat-emu replay raw
    Replay {
        /// The directory that a run wrote.
        dir: PathBuf,
    },
}

#[derive(Args)]
struct RunArgs {
    /// The scenario file (docs/scenario.md).
    file: PathBuf,
    /// Directory for the files of the run.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The network namespace of a node, by name or path; one for each node.
    #[arg(long = "netns", value_name = "NODE=NAME", value_parser = pair)]
    namespaces: Vec<(String, String)>,
    /// Give a key of the scenario another value; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
    /// Random seed, instead of the scenario's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The file of a trace that the scenario names; repeatable.
    #[arg(long = "trace", value_name = "NAME=PATH", value_parser = pair)]
    traces: Vec<(String, String)>,
    /// Whether devices take large segments, instead of the scenario's setting.
    #[arg(long)]
    offload: Option<OffloadArg>,
    /// Queues per device (IFF_MULTI_QUEUE).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    queues: u8,
    /// Stop after so many seconds.
    #[arg(long = "for", value_name = "SECONDS")]
    stop_after: Option<f64>,
    /// Start at once, without waiting for the word `go` on standard input.
    #[arg(long = "now")]
    at_once: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum OffloadArg {
    Auto,
    On,
    Off,
}

/// An argument without a name or without `=`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("expected NAME=VALUE")]
struct NoPair;

fn pair(text: &str) -> Result<(String, String), NoPair> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(NoPair),
    }
}

/// What went wrong, and the exit code for it.
struct Failure(u8, String);

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(args) => run_command(args),
        Command::Replay { dir } => replay_command(&dir),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(code, text)) => {
            eprintln!("unbloat-emu: {text}");
            ExitCode::from(code)
        }
    }
}

fn run_command(args: RunArgs) -> Result<(), Failure> {
    let text =
        read_text(&args.file).map_err(|e| Failure(3, format!("{}: {e}", args.file.display())))?;
    let mut traces = BTreeMap::new();
    for (name, path) in &args.traces {
        let text = read_text(Path::new(path)).map_err(|e| Failure(3, format!("{path}: {e}")))?;
        traces.insert(name.clone(), text);
    }
    let resolve = resolved(&text, &args.settings, args.seed, &traces);
    let (scenario, seed) =
        resolve.map_err(|e| Failure(3, format!("{}: {e}", args.file.display())))?;
    let stop_after = match args.stop_after {
        Some(s) if s.is_finite() && s >= 0.0 => Some(Duration((s * 1e9) as u64)),
        Some(s) => return Err(Failure(2, format!("--for {s}: expected seconds"))),
        None => None,
    };
    let options = Options {
        out: args.out,
        namespaces: args.namespaces.into_iter().collect(),
        offload: args.offload.map(|offload| match offload {
            OffloadArg::Auto => Offload::Auto,
            OffloadArg::On => Offload::On,
            OffloadArg::Off => Offload::Off,
        }),
        queues: usize::from(args.queues),
        stop_after,
        at_once: args.at_once,
    };
    store_inputs(&options.out, &text, &args.settings, seed, &traces)
        .map_err(|e| Failure(1, format!("{}: {e}", options.out.display())))?;
    let mut stdout = io::stdout();
    run(&scenario, &options, &mut |value| write_line(&mut stdout, &value))
        .map_err(|e| Failure(1, e.to_string()))
}

type Settings = [(String, String)];
type Texts = BTreeMap<String, String>;

fn resolved(
    text: &str,
    settings: &Settings,
    seed: Option<u64>,
    traces: &Texts,
) -> Result<(Scenario, u64), scenario::ScenarioError> {
    let read = |name: &str| match traces.get(name) {
        Some(text) => Ok(TraceText(Arc::from(text.as_str()))),
        None => Err(TraceMissing(format!("give its file: --trace {name}=PATH"))),
    };
    let document = Document::parse(text)?;
    let seed = seed.unwrap_or_else(|| document.seed());
    let mut scenario = document.scenario(settings, seed, &read)?.0;
    if scenario.lab.gate == GateBy::Agent {
        // The gate is in the phone's own kernel; here packets would pass a second one.
        let index =
            Family::Gate.entries().iter().position(|gate| gate.name == "none").unwrap_or_default();
        for device in scenario.nodes.iter_mut().filter_map(|node| node.device.as_mut()) {
            device.gate = Algorithm { index, settings: algo::Settings::default() };
        }
    }
    Ok((scenario, seed))
}

/// What a replay needs to know: scenario, settings, seed, traces.
fn store_inputs(
    out: &Path,
    text: &str,
    settings: &Settings,
    seed: u64,
    traces: &Texts,
) -> io::Result<()> {
    std::fs::create_dir_all(out.join("traces"))?;
    std::fs::write(out.join("scenario.toml"), text)?;
    let names: Vec<&String> = traces.keys().collect();
    for (number, text) in traces.values().enumerate() {
        std::fs::write(out.join("traces").join(number.to_string()), text)?;
    }
    let run = json!({"set": settings, "seed": seed, "traces": names});
    std::fs::write(out.join("replay.json"), format!("{run:#}\n"))
}

fn replay_command(dir: &Path) -> Result<(), Failure> {
    let unreadable =
        |path: PathBuf| move |e: io::Error| Failure(3, format!("{}: {e}", path.display()));
    let text_of = |name: &str| {
        let path = dir.join(name);
        read_text(&path).map_err(unreadable(path))
    };
    let stored: serde_json::Value = serde_json::from_str(&text_of("replay.json")?)
        .map_err(|e| Failure(3, format!("{}: {e}", dir.join("replay.json").display())))?;
    let settings: Vec<(String, String)> = stored["set"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|p| Some((p[0].as_str()?.to_owned(), p[1].as_str()?.to_owned())))
        .collect();
    let mut traces = BTreeMap::new();
    for (number, name) in stored["traces"].as_array().into_iter().flatten().enumerate() {
        traces.insert(
            name.as_str().unwrap_or_default().to_owned(),
            text_of(&format!("traces/{number}"))?,
        );
    }
    let (scenario, _) =
        resolved(&text_of("scenario.toml")?, &settings, stored["seed"].as_u64(), &traces)
            .map_err(|e| Failure(3, e.to_string()))?;
    let mut found = 0;
    for link in &scenario.links {
        let path = dir.join(format!("{}.decisions", link.name.replace('/', "-")));
        let log = std::fs::read(&path).map_err(unreadable(path.clone()))?;
        let one =
            replay(&scenario, &log).map_err(|e| Failure(1, format!("{}: {e}", path.display())))?;
        println!("{}: {} packets, {} decisions, all alike", link.name, one.arrivals, one.decisions);
        found += 1;
    }
    match found {
        0 => Err(Failure(3, format!("{}: no link", dir.display()))),
        _ => Ok(()),
    }
}
