//! The program `unbloat-modem`: arguments, one call, one line for what went wrong.
//!
//! Exit codes: 0 fine, 1 something failed, 2 wrong usage, 3 an input cannot be read, or ends too early.

mod arguments;
mod decode;
mod serve;

use std::process::ExitCode;

use clap::Parser;

use self::arguments::{Cli, Command};

/// What went wrong, and the exit code for it.
struct End(u8, String);

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Decode(args) => decode::decode(&args),
        Command::Serve(args) => serve::serve(&args),
    };
    match outcome {
        // Standard output was closed: its reader has seen enough.
        Ok(()) | Err(End(0, _)) => ExitCode::SUCCESS,
        Err(End(code, text)) => {
            eprintln!("unbloat-modem: {text}");
            ExitCode::from(code)
        }
    }
}
