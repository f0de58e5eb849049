//! What may stand on the command line of `unbloat-modem`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Uplink buffer and grants of a Qualcomm modem, from its DIAG log or port.
#[derive(Parser)]
#[command(name = "unbloat-modem", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Decode a log: what it contains, or each of its records.
    #[command(after_help = "Example: unbloat-modem decode phone.qmdl --json > phone.jsonl")]
    Decode(DecodeArgs),
    /// Read a modem's DIAG port, and report its uplink buffer and grants to unbloat-agent.
    #[command(
        after_help = "Example: unbloat-modem serve --diag /dev/ttyUSB0 --socket /run/unbloat/modem.sock"
    )]
    Serve(ServeArgs),
}

#[derive(Args)]
pub(crate) struct DecodeArgs {
    /// A log (.qmdl, .mi2log or .dlf, by its contents); - reads standard input.
    pub(crate) file: PathBuf,
    /// A line of JSON per record, and one with the summary at the end.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// The DIAG port, a serial port.
    #[arg(long, value_name = "TTY")]
    pub(crate) diag: PathBuf,
    /// Where unbloat-agent reads the reports (its `uplink.telemetry`).
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: PathBuf,
}
