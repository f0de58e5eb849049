//! Counts what is in capture files and times it: `cargo run --release --example count FILE…`

use std::path::Path;
use std::time::Instant;

use capture::{Decoded, Decoder};

fn main() -> std::process::ExitCode {
    let mut failed = false;
    for name in std::env::args().skip(1) {
        let began = Instant::now();
        let mut reader = match capture::open(Path::new(&name)) {
            Ok(reader) => reader,
            Err(error) => {
                println!("{name}: {error}");
                failed = true;
                continue;
            }
        };
        let mut decoder = Decoder::new();
        let (mut packets, mut bytes, mut payload) = (0_u64, 0_u64, 0_u64);
        let (mut tcp, mut datagrams, mut fragments, mut not_ip, mut broken) =
            (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
        let end = loop {
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    packets += 1;
                    bytes += u64::from(frame.wire_len);
                    match decoder.decode(&frame) {
                        Decoded::Tcp(segment) => {
                            tcp += 1;
                            payload += u64::from(segment.payload);
                        }
                        Decoded::Datagram(_) => datagrams += 1,
                        Decoded::Fragment => fragments += 1,
                        Decoded::NotIp => not_ip += 1,
                        Decoded::Broken => broken += 1,
                    }
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{name}: {packets} packets, {bytes} bytes; tcp {tcp} ({payload} bytes), datagrams {datagrams}, \
             fragments {fragments}, not ip {not_ip}, broken {broken}, skipped {}; {:.3} s, {:.1} ns per packet",
            reader.skipped(),
            seconds,
            seconds * 1e9 / packets.max(1) as f64,
        );
        if let Some(error) = end {
            println!("{name}: {error}");
        }
    }
    std::process::ExitCode::from(u8::from(failed))
}
