//! What may stand on the command line of `unbloat-measure`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use measure::idle_gaps;
use measure::irtt;
use measure::rpm;
use measure::saturation::MAX_STREAMS;
use measure::seen::Transport;
use measure::tls::Pin;
use units::Bytes;

/// Delay per direction under load, between this host and another.
#[derive(Parser)]
#[command(name = "unbloat-measure", version, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(
    after_help = "Example: unbloat-measure my-server --token 5ac04a9b4db8be5a --pin d8ac84ee3bd692e8c077"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Be the other side, and print what to type on this one.
    #[command(
        after_help = "Example: unbloat-measure serve --token-file FILE --tls CERT,KEY --nq 443"
    )]
    Serve(ServeArgs),
    /// Responsiveness of the path to any server of RPM, as clients such as networkQuality measure it.
    #[command(
        after_help = "Example: unbloat-measure rpm my-server:8443 --pin d8ac84ee3bd692e8c077"
    )]
    Rpm(RpmArgs),
}

#[derive(Args)]
pub(crate) struct MeasureArgs {
    /// Where `unbloat-measure serve` runs, or another server; of ndt7 also a URL of ws or wss.
    #[arg(value_name = "HOST[:PORT]", required = true)]
    pub(crate) host: Option<String>,
    /// What the server speaks: own is unbloat-measure; with iperf3 and ndt7, only the round trip is measured; irtt carries
    /// no load.
    #[arg(long, value_name = "NAME", value_enum, default_value = "own")]
    pub(crate) protocol: Protocol,
    /// With iperf3: probes to a server of irtt on the same host, for the delay of each direction; irtt or irtt:PORT.
    #[arg(long, value_name = "irtt[:PORT]")]
    pub(crate) probe: Option<irtt::Beside>,
    /// The server's token, with irtt the HMAC key; the variable UNBLOAT_MEASURE_TOKEN otherwise.
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file", visible_alias = "hmac-key")]
    pub(crate) token: Option<String>,
    /// A file whose first line is the token.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The pin of the server's key, as the server prints it; otherwise the key needs a certificate of a public authority.
    #[arg(long, value_name = "PIN")]
    pub(crate) pin: Option<Pin>,
    /// Take any key of a server of ndt7.
    #[arg(long, conflicts_with = "pin")]
    pub(crate) insecure: bool,
    /// About 12 s instead of 30 to 60, or 85 on a path that varies.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Loaded phases, as down,up; all of down,up,both otherwise.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum)]
    pub(crate) phases: Vec<PhaseArg>,
    /// So many streams, instead of as many as fill the path.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=MAX_STREAMS as i64))]
    pub(crate) streams: Option<u8>,
    /// What carries the streams, tcp or quic; with both, as tcp,quic, each phase is measured with each.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "tcp")]
    pub(crate) transport: Vec<Transport>,
    /// Congestion control of the streams, at both ends; of several each phase is measured with each, as cubic,bbr.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) cc: Vec<String>,
    /// End when this much was transferred.
    #[arg(long, value_name = "BYTES", default_value = "2 GB")]
    pub(crate) max_data: Bytes,
    /// Go on where the link seems to be metered, without a question.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Instead of loads, how much longer the first packet after a pause takes, by which radios that sleep are found:
    /// quick (4 min), full (30 min), or pauses in seconds, as 1,3,10.
    #[arg(long, value_name = "PAUSES", conflicts_with_all = ["quick", "phases", "streams", "cc", "keep"])]
    pub(crate) idle_gaps: Option<Gaps>,
    /// JSON instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Append each result to this file, a JSON object in a line, for `unbloat measure history`.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
    /// Write the result with all samples (probes, counted bytes, streams) to this file, as JSON.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["idle_gaps", "every"])]
    pub(crate) samples: Option<PathBuf>,
    /// Keep the headers of the test's packets in this file, as pcapng; needs root or CAP_NET_RAW.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["idle_gaps", "every"])]
    pub(crate) capture: Option<PathBuf>,
    /// Measure again and again, each time so long after the last beginning, as 1h.
    #[arg(long, value_name = "TIME", requires = "keep")]
    pub(crate) every: Option<units::Duration>,
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Address and port; all addresses and port 26110 otherwise.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// A file whose first line is the token; a new token otherwise.
    #[arg(long, value_name = "FILE", conflicts_with = "open")]
    pub(crate) token_file: Option<PathBuf>,
    /// Serve every host, without a token.
    #[arg(long)]
    pub(crate) open: bool,
    /// Certificate, with those between it and its authority, and key, in PEM; a new key and its pin otherwise.
    #[arg(long, value_name = "CERT,KEY", value_delimiter = ',', num_args = 1)]
    pub(crate) tls: Vec<PathBuf>,
    /// Serve clients of RPM as well, as networkQuality, with HTTPS on this port: every host, without a token.
    #[arg(long, value_name = "PORT")]
    pub(crate) nq: Option<u16>,
    /// Bytes that one client may transfer.
    #[arg(long, value_name = "BYTES", default_value = "4 GB")]
    pub(crate) max_data: Bytes,
}

#[derive(Args)]
pub(crate) struct RpmArgs {
    /// The server, or the URL of its configuration; the path is /.well-known/nq otherwise.
    #[arg(value_name = "HOST[:PORT]|URL")]
    pub(crate) url: rpm::Url,
    /// The pin of the server's key; otherwise the key needs a certificate of a public authority.
    #[arg(long, value_name = "PIN", conflicts_with = "insecure")]
    pub(crate) pin: Option<Pin>,
    /// Take any key.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Only with intervals of 1 s, as the clients in use: 10 to 20 s for each direction instead of 50 to 80.
    #[arg(long)]
    pub(crate) quick: bool,
    /// What is loaded, as down,up or both; down,up otherwise.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum)]
    pub(crate) phases: Vec<PhaseArg>,
    /// End when this much was transferred.
    #[arg(long, value_name = "BYTES", default_value = "4 GB")]
    pub(crate) max_data: Bytes,
    /// Go on where the link seems to be metered, without a question.
    #[arg(long)]
    pub(crate) yes: bool,
    /// JSON instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Append each result to this file, a JSON object in a line, for `unbloat measure history`.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
    /// Measure again and again, each time so long after the last beginning, as 1h.
    #[arg(long, value_name = "TIME", requires = "keep")]
    pub(crate) every: Option<units::Duration>,
}

/// Pauses of a sweep.
#[derive(Clone)]
pub(crate) struct Gaps(pub(crate) Vec<f64>);

/// The server keeps a silent client for a minute.
pub(crate) const MAX_GAP_S: f64 = 45.0;

/// A word that is no pause.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is neither quick, full, nor a pause of 0.05 to {MAX_GAP_S} s")]
pub(crate) struct NoPause(String);

impl std::str::FromStr for Gaps {
    type Err = NoPause;

    fn from_str(text: &str) -> Result<Gaps, NoPause> {
        Ok(Gaps(match text {
            "quick" => idle_gaps::quick(),
            "full" => idle_gaps::full(),
            list => {
                let gap = |word: &str| {
                    let seconds = word.trim().parse::<f64>().ok();
                    seconds
                        .filter(|s| (0.05..=MAX_GAP_S).contains(s))
                        .ok_or_else(|| NoPause(word.to_owned()))
                };
                idle_gaps::each(&list.split(',').map(gap).collect::<Result<Vec<f64>, _>>()?)
            }
        }))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    Own,
    Iperf3,
    Irtt,
    Ndt7,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum PhaseArg {
    Down,
    Up,
    Both,
}
