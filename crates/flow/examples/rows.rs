//! Prints the rows of a capture, for looking at them without Python, and how long the analysis took:
//! `cargo run --release -p unbloat-flow --example rows FILE`.
use std::path::PathBuf;

#[allow(clippy::disallowed_methods)] // a stopwatch, not a measure of the capture
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let begin = std::time::Instant::now();
    let report = flow::analyze_files(&paths, flow::Options::default(), |_, _| true)?;
    let took = begin.elapsed();
    for f in report.analysis.flows.iter().filter(|f| f.data_packets > 1).take(20) {
        println!("{f:#?}");
    }
    for f in &report.analysis.findings {
        println!("{:?} {} {:?}: {}", f.severity, f.rule, f.flow, f.text);
    }
    println!("{:?} {:?}", report.analysis.packets, report.warnings);
    println!("{} connections in {took:.3?}", report.analysis.connections.len());
    Ok(())
}
