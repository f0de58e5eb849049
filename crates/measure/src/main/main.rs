//! The program `unbloat-measure`: arguments, one call, one line for what went wrong.
//!
//! Exit codes: 0 measured, 1 something failed, 2 wrong usage, 3 no server, 4 the server refuses or is not trusted, 5
//! measured, but a phase has no grade or is missing.

mod arguments;

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use hyper::http::uri::Authority;
use measure::client::{self, Failure, Options, Recorder};
use measure::clock::Clock;
use measure::cure::cures;
use measure::iperf3;
use measure::irtt;
use measure::metered::{device_towards, metered};
use measure::ndt7;
use measure::nq::{CONFIGURATION, Nq};
use measure::rpm;
use measure::saturation::MAX_STREAMS;
use measure::screen;
use measure::seen::{Phase, Transport};
use measure::server::{Server, Settings, unprivileged};
use measure::surroundings::{self, Begun};
use measure::tls::{Identity, Pin, Trust};
use measure::wire::PORT;
use measure::wire::keys::{hex, random};
use measure::wire::message::Limits;
use serde_json::{Value, json};
use units::Bytes;

use self::arguments::{Cli, Command, Gaps, MeasureArgs, PhaseArg, Protocol, RpmArgs, ServeArgs};

/// What went wrong, and the exit code for it.
struct End(u8, String);

/// What becomes of a measurement.
struct Output {
    protocol: Protocol,
    /// Of a server of ndt7: where it is, and how its key is judged.
    ndt7: Option<(ndt7::Url, Trust)>,
    json: bool,
    keep: Option<PathBuf>,
    samples: Option<PathBuf>,
    capture: Option<PathBuf>,
}

/// Longest session: the longest test with 90 s to spare.
const SESSION_S: u32 = 150;
/// Loaded phases in one session: 17 s each, drained queue and all.
const MAX_PARTS: usize = 8;
/// Probes a second: twice those of the quick test.
const PPS: u32 = 200;

fn main() -> ExitCode {
    let Cli { command, measure } = Cli::parse();
    let outcome = match command {
        Some(Command::Serve(args)) => serve(&args),
        Some(Command::Rpm(args)) => responsiveness(args),
        None => measure_command(measure),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(End(code, text)) => {
            eprintln!("unbloat-measure: {text}");
            ExitCode::from(code)
        }
    }
}

fn token_of(file: &Path) -> Result<String, End> {
    let text = std::fs::read_to_string(file)
        .map_err(|e| End(1, format!("{}: {}", file.display(), e.kind())))?;
    match text.lines().next().map(str::trim) {
        Some(token) if !token.is_empty() => Ok(token.to_owned()),
        _ => Err(End(1, format!("{}: the first line is empty", file.display()))),
    }
}

fn serve(args: &ServeArgs) -> Result<u8, End> {
    let failed = |e: io::Error| End(1, e.to_string());
    let token = match &args.token_file {
        Some(file) => token_of(file)?,
        None if args.open => String::new(),
        None => hex(&random::<8>().map_err(failed)?),
    };
    let limits = Limits {
        seconds: SESSION_S,
        bytes: args.max_data.0,
        streams: 2 * MAX_STREAMS as u32,
        pps: PPS,
    };
    // As long as root may still read the files.
    let identity = match args.tls.as_slice() {
        [] => Identity::new(),
        [certificate, key] => Identity::read(certificate, key),
        _ => return Err(End(2, "--tls takes two files: CERT,KEY".to_owned())),
    };
    let identity = identity.map_err(|e| End(1, e.to_string()))?;
    let (http, Identity { config: tls, pin }) = (identity.http(), identity);
    let settings = Settings { token: token.clone(), limits, clock: Clock::default(), tls };
    let server = bound(args.listen, PORT, |at| Server::bind(at, settings.clone()))?;
    let address = server.address().map_err(failed)?;
    let nq = match args.nq {
        None => None,
        Some(port) => {
            let is_measuring = Arc::new(server.is_measuring());
            let bind = |at| Nq::bind(at, Arc::clone(&http), limits, is_measuring.clone());
            Some(bound(args.listen.map(|own| (own.ip(), port).into()), port, bind)?)
        }
    };
    unprivileged().map_err(failed)?;
    let token = match &args.token_file {
        Some(_) => " --token-file FILE".to_owned(),
        None if args.open => String::new(),
        None => format!(" --token {token}"),
    };
    let pin = pin.map(|pin| format!(" --pin {pin}")).unwrap_or_default();
    println!("unbloat measure {}{token}{pin}", named(address, PORT));
    if let Some(nq) = nq {
        let address = nq.address().map_err(failed)?;
        nq.start().map_err(failed)?;
        println!("RPM: https://{}{CONFIGURATION}", named(address, rpm::HTTPS));
    }
    // A program that waits for this line reads a pipe.
    io::stdout().flush().map_err(failed)?;
    server.run().map_err(failed).map(|()| 0)
}

/// What listens at an address, or at all of this host.
fn bound<T>(
    address: Option<SocketAddr>,
    port: u16,
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<T, End> {
    let all = || {
        // IPv6 takes IPv4 as well, where the host has it.
        bind((Ipv6Addr::UNSPECIFIED, port).into())
            .or_else(|_| bind((Ipv4Addr::UNSPECIFIED, port).into()))
    };
    let what = address.map_or_else(|| format!("port {port}"), |at| at.to_string());
    address.map_or_else(all, &bind).map_err(|e| End(1, format!("{what}: {}", e.kind())))
}

/// How others name an address of this host.
fn named(address: SocketAddr, usual: u16) -> String {
    let host = match address.ip() {
        ip if ip.is_unspecified() => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .map_or_else(|_| "HOST".to_owned(), |name| name.trim().to_owned()),
        ip if ip.is_ipv6() => format!("[{ip}]"),
        ip => ip.to_string(),
    };
    if address.port() == usual { host } else { format!("{host}:{}", address.port()) }
}

/// Asks before a test over a metered link.
fn may_cost(host: &str, max_data: Bytes) -> Result<(), End> {
    let Some(device) = device_towards(host) else { return Ok(()) };
    let Some(why) = metered(&device) else { return Ok(()) };
    let text = format!("{device} is {why}; the test may transfer {max_data}");
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(End(2, format!("{text}: --yes permits it")));
    }
    eprint!("{text}. Go on? [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|e| End(1, e.to_string()))?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(End(2, "nothing was transferred".to_owned()))
}

/// The phases that were named, in their order, each once; `otherwise`: none was.
fn phases(named: &[PhaseArg], otherwise: &[Phase]) -> Vec<Phase> {
    let mut phases: Vec<Phase> = named
        .iter()
        .map(|phase| match phase {
            PhaseArg::Down => Phase::Down,
            PhaseArg::Up => Phase::Up,
            PhaseArg::Both => Phase::Both,
        })
        .collect();
    phases.sort();
    phases.dedup();
    if phases.is_empty() { otherwise.to_vec() } else { phases }
}

fn ended(failure: &Failure) -> End {
    let code = match failure {
        Failure::NoServer(_) => 3,
        Failure::Refused(_) | Failure::Untrusted(_) => 4,
    };
    End(code, failure.to_string())
}

/// Measures the responsiveness of the path to a server of RPM, once or again and again.
fn responsiveness(args: RpmArgs) -> Result<u8, End> {
    let options = rpm::Options {
        url: args.url,
        trust: trust(args.pin, args.insecure),
        phases: phases(&args.phases, &[Phase::Down, Phase::Up]),
        variants: if args.quick { vec![rpm::DEPLOYED] } else { vec![rpm::DEPLOYED, rpm::DRAFT] },
        max_bytes: args.max_data.0,
    };
    if !args.yes {
        may_cost(&options.url.host, args.max_data)?;
    }
    again(args.every, args.keep.as_deref(), || {
        responsive(&options, args.json, args.keep.as_deref())
    })
}

/// Measures once, or each time so long after the last beginning, where results can be kept.
fn again(
    every: Option<units::Duration>,
    keep: Option<&Path>,
    once: impl Fn() -> Result<u8, End>,
) -> Result<u8, End> {
    if let Some(file) = keep {
        kept_in(file)?;
    }
    let Some(every) = every else { return once() };
    loop {
        let begun = Instant::now();
        // The next one may find the server again.
        if let Err(End(_, text)) = once() {
            eprintln!("unbloat-measure: {text}");
        }
        thread::sleep(Duration::from_nanos(every.0).saturating_sub(begun.elapsed()));
    }
}

/// Measures responsiveness once, prints the result and keeps it.
fn responsive(options: &rpm::Options, as_json: bool, keep: Option<&Path>) -> Result<u8, End> {
    let at_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let live = io::stderr().is_terminal();
    let outcome = rpm::measure(options, &mut |look| {
        if live {
            eprint!("\r\x1b[K{}", rpm::look(look));
        }
    });
    if live {
        eprint!("\r\x1b[K");
    }
    let at =
        json!({"at_unix_s": at_unix_s, "host": options.url.uri.authority().map(Authority::as_str)});
    let value = match &outcome {
        Ok(outcome) => extended(&at, json!(outcome)),
        Err(failure) => extended(&at, json!({"failed": failure.to_string()})),
    };
    if let Some(file) = keep {
        append(file, &value)?;
    }
    let outcome = outcome.map_err(|failure| ended(&failure))?;
    if as_json {
        println!("{value}");
    } else {
        print!("{}", rpm::screen(&outcome));
    }
    let is_whole = outcome.complete && outcome.phases.iter().all(|phase| phase.rpm.is_some());
    Ok(if is_whole { 0 } else { 5 })
}

/// An object with the keys of another one behind its own.
fn extended(own: &Value, other: Value) -> Value {
    let mut whole = own.clone();
    if let (Some(whole), Value::Object(part)) = (whole.as_object_mut(), other) {
        whole.extend(part);
    }
    whole
}

fn measure_command(args: MeasureArgs) -> Result<u8, End> {
    let token = match (&args.token, &args.token_file) {
        (Some(token), _) => token.clone(),
        (None, Some(file)) => token_of(file)?,
        (None, None) => std::env::var("UNBLOAT_MEASURE_TOKEN").unwrap_or_default(),
    };
    let ndt7 = ndt7_server(&args)?;
    let all = if ndt7.is_some() { &Phase::ALL[..2] } else { &Phase::ALL };
    let phases = phases(&args.phases, all);
    let parts = phases.len() * args.transport.len() * args.cc.len().max(1);
    if parts > MAX_PARTS {
        return Err(End(
            2,
            format!(
                "{parts} loaded phases, at most {MAX_PARTS}: fewer --phases, --transport or --cc"
            ),
        ));
    }
    // The query of a URL may be an access token, which results and logs must not keep.
    let host = args.host.unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
    let options = Options {
        host,
        token,
        pin: args.pin,
        phases,
        streams: args.streams.map(usize::from),
        transports: args.transport,
        cc: args.cc,
        max_bytes: args.max_data.0,
        quick: args.quick,
        probe: args.probe.map(|irtt::Beside(port)| port),
    };
    if options.probe.is_some() && args.protocol != Protocol::Iperf3 {
        return Err(End(2, "--probe is for --protocol iperf3".to_owned()));
    }
    if args.protocol != Protocol::Own && options.transports.contains(&Transport::Quic) {
        return Err(End(2, "--transport quic is for servers of unbloat-measure".to_owned()));
    }
    if args.protocol == Protocol::Iperf3
        && (args.quick || args.idle_gaps.is_some() || args.samples.is_some())
    {
        let text = "a server of iperf3 allows no --quick, --idle-gaps, --samples (--out, --report)";
        return Err(End(2, text.to_owned()));
    }
    let of_load = !args.phases.is_empty() || options.streams.is_some() || !options.cc.is_empty();
    if args.protocol == Protocol::Irtt
        && (of_load || args.idle_gaps.is_some() || args.samples.is_some())
    {
        let text = "a server of irtt allows no --phases, --streams, --cc, --idle-gaps, --samples (--out, --report)";
        return Err(End(2, text.to_owned()));
    }
    if let Some(Gaps(gaps_s)) = args.idle_gaps {
        return silences(&options, gaps_s, args.json);
    }
    // A server of irtt carries no load.
    if !args.yes && args.protocol != Protocol::Irtt {
        let host = ndt7.as_ref().map(|(url, _)| url.address());
        may_cost(host.as_ref().unwrap_or(&options.host), args.max_data)?;
    }
    let output = Output {
        protocol: args.protocol,
        ndt7,
        json: args.json,
        keep: args.keep,
        samples: args.samples,
        capture: args.capture,
    };
    again(args.every, output.keep.as_deref(), || measured(&options, &output))
}

/// The server of ndt7, where it is one.
fn ndt7_server(args: &MeasureArgs) -> Result<Option<(ndt7::Url, Trust)>, End> {
    let is_ndt7 = args.protocol == Protocol::Ndt7;
    let other = args.idle_gaps.is_some() || args.samples.is_some() || args.streams.is_some();
    let both = args.phases.iter().any(|phase| matches!(phase, PhaseArg::Both));
    let why = match is_ndt7 {
        false if args.insecure => "--insecure is for --protocol ndt7",
        false => return Ok(None),
        true if other || both || !args.cc.is_empty() => {
            "a server of ndt7 allows no --idle-gaps, --samples (--out, --report), --streams, --cc, --phases both"
        }
        true => {
            let url = args.host.as_deref().unwrap_or_default().parse();
            let url = url.map_err(|e: ndt7::NoUrl| End(2, e.to_string()))?;
            return Ok(Some((url, trust(args.pin, args.insecure))));
        }
    };
    Err(End(2, why.to_owned()))
}

/// How the key of another program's server is judged.
fn trust(pin: Option<Pin>, insecure: bool) -> Trust {
    match pin {
        Some(pin) => Trust::Pin(pin),
        None if insecure => Trust::Any,
        None => Trust::Authorities,
    }
}

/// Measures what pauses cost, and prints it.
fn silences(options: &Options, gaps_s: Vec<f64>, as_json: bool) -> Result<u8, End> {
    let live = io::stderr().is_terminal();
    let found = client::silences(options, gaps_s, Clock::default(), &mut |gap_s, left_s| {
        if live {
            eprint!("\r\x1b[Ka pause of {gap_s:.1} s, at least {left_s:.0} s left");
        }
    });
    if live {
        eprint!("\r\x1b[K");
    }
    let found = found.map_err(|failure| ended(&failure))?;
    if as_json {
        println!("{}", json!({"host": options.host, "idle_gaps": found}));
    } else {
        print!("{}", screen::silences(&options.host, &found));
    }
    Ok(if found.complete { 0 } else { 5 })
}

/// The file that results are kept in, open at its end.
fn kept_in(file: &Path) -> Result<File, End> {
    let open = OpenOptions::new().create(true).append(true).open(file);
    open.map_err(|e| End(1, format!("{}: {}", file.display(), e.kind())))
}

/// Appends a line to a file.
fn append(file: &Path, value: &Value) -> Result<(), End> {
    // One write, so that two programs may share a file.
    let written = kept_in(file)?.write_all(format!("{value}\n").as_bytes());
    written.map_err(|e| End(1, format!("{}: {}", file.display(), e.kind())))
}

/// Measures once, prints the result and keeps it.
fn measured(options: &Options, output: &Output) -> Result<u8, End> {
    let recorder = match &output.capture {
        Some(file) => Some(Recorder::open(file).map_err(|e| End(1, e.to_string()))?),
        None => None,
    };
    let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let of_ndt7 = output.ndt7.as_ref();
    let towards = of_ndt7.map_or_else(|| options.host.clone(), |(url, _)| url.address());
    let begun = Begun::of(device_towards(&towards).as_deref());
    let live = io::stderr().is_terminal();
    let mut show = |progress: &client::Progress| {
        if live {
            eprint!("\r\x1b[K{}", screen::progress(progress));
        }
    };
    let clock = Clock::default();
    let outcome = match (of_ndt7, output.protocol) {
        (Some((url, trust)), _) => ndt7::measure(options, url, *trust, clock, recorder, &mut show),
        (None, Protocol::Iperf3) => iperf3::measure(options, clock, recorder, &mut show),
        (None, Protocol::Irtt) => irtt::measure(options, clock, recorder, &mut show),
        (None, _) => client::measure(options, clock, recorder, &mut show),
    };
    if live {
        eprint!("\r\x1b[K");
    }
    let around = begun.end();
    let at = json!({"at_unix_s": real.as_secs(), "host": options.host, "surroundings": around});
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(failure) => {
            let text = failure.to_string();
            if let Some(file) = &output.capture {
                // A capture of no test.
                let _ = std::fs::remove_file(file);
            }
            if let Some(file) = &output.keep {
                append(file, &extended(&at, json!({"failed": text})))?;
            }
            return Err(ended(&failure));
        }
    };
    let found = cures(&outcome.phases, &outcome.hops);
    let mut value = extended(&at, serde_json::to_value(&outcome).unwrap_or_default());
    value["cures"] = json!(found);
    if let Some(file) = &output.keep {
        append(file, &value)?;
    }
    if output.json {
        println!("{value}");
    } else {
        let screen = if of_ndt7.is_some() { ndt7::screen } else { screen::screen };
        print!("{}{}", screen(&options.host, &outcome, &found), surroundings::screen(&around));
    }
    if let Some(file) = &output.samples {
        value["samples"] = json!(outcome.samples);
        std::fs::write(file, value.to_string())
            .map_err(|e| End(1, format!("{}: {}", file.display(), e.kind())))?;
    }
    let whole = if of_ndt7.is_some() { ndt7::is_whole(&outcome) } else { outcome.is_graded() };
    Ok(if whole { 0 } else { 5 })
}
