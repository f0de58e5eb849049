//! The public captures: everything is read or refused by name, tshark counts the same TCP packets, and damage
//! never costs more than what comes after it.
//!
//! The files are not part of this repository: they are looked for in `$UNBLOAT_SHARED/captures/real`, else in
//! `../shared` beside the repository; without them each test says so and ends.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use capture::{Decoded, Decoder, OpenError, ReadError, Reader};

/// Files that are no pcap, and what they are said to look like.
const REFUSED: &[(&str, &str)] = &[
    ("ndpi/ppp.pcap", "an empty file"),
    ("tcpdump/tcp_eight_lowest_flags_set.pcap", "an empty file"),
    ("tcptrace/input/NASA_ipv6.snoop.gz", "a snoop file"),
    ("tcptrace/input/all.snoop.gz", "a snoop file"),
    ("tcptrace/input/finger.snoop.gz", "a snoop file"),
    ("tcptrace/input/ipv6_ftp_nasa.snp.gz", "a snoop file"),
    ("tcptrace/input/atm.erf.gz", "an ERF file"),
    ("tcptrace/input/chdlc.erf.gz", "an ERF file"),
    ("tcptrace/input/eth.erf.gz", "an ERF file"),
    ("tcptrace/input/finger.netm.gz", "a NetMetrix file"),
    ("tcptrace/input/http.epeek7.gz", "an EtherPeek file"),
    ("tcptrace/input/reno.epeek.gz", "an EtherPeek file"),
    ("tcptrace/input/nlanr.tsh.gz", "a TSH file"),
];

/// Where our count of TCP packets is not tshark 4.0's: ours, tshark's, and who is right.
const DISAGREEMENTS: &[(&str, usize, usize, &str)] = &[
    ("tcpdump/bigtcp-ipv4-vxlan-ipv4.pcap", 1, 0, "tshark 4.0 does not know BIG TCP inside VXLAN"),
    ("tcpdump/bigtcp-ipv6.pcap", 1, 0, "tshark 4.0 does not know BIG TCP without a jumbo option"),
    (
        "tcpdump/tcp_header_heapoverflow.pcap",
        0,
        1,
        "12 bytes of TCP header were kept: no segment without its flags",
    ),
    (
        "zeek/gtp9_unknown_or_too_short_payload.pcap",
        10,
        11,
        "frame 11: the inner packet claims 1,480 bytes in a tunnel packet of 172, so the outer datagram counts",
    ),
];

/// Cuts and flips happen in this many first bytes of the unpacked file.
const DAMAGED: usize = 2_000;
/// Flipped files read no further than this, so that the test stays short.
const FLIPPED: usize = 64 << 10;

fn root() -> Option<PathBuf> {
    let shared = match std::env::var_os("UNBLOAT_SHARED") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    let real = shared.join("captures/real");
    if real.is_dir() {
        return Some(real);
    }
    println!("skipped: no public captures in {}", real.display());
    None
}

/// Name below the root, and path, of every file that claims to be a capture.
fn files(root: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder is readable") {
            let path = entry.expect("the entry is readable").path();
            let name =
                path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.ends_with("OUTPUTbench") {
                    folders.push(path);
                }
            } else if !name.ends_with("_files") && !name.ends_with("README") {
                found.push((name, path));
            }
        }
    }
    found.sort();
    assert!(found.len() > 100, "only {} files", found.len());
    found
}

fn refusal(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(refused, _)| *refused == name).map(|(_, reason)| *reason)
}

/// The file without its packing.
fn unpacked(path: &Path) -> Vec<u8> {
    let raw = std::fs::read(path).expect("the file is readable");
    let mut out = Vec::new();
    if raw.starts_with(&[0x1f, 0x8b]) {
        flate2::read::MultiGzDecoder::new(&raw[..]).read_to_end(&mut out).expect("good gzip");
    } else if raw.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        out = zstd::decode_all(&raw[..]).expect("good zstd");
    } else {
        out = raw;
    }
    out
}

/// Everything of a frame that could come out wrong, and where its record ends.
#[derive(PartialEq, Clone, Debug)]
struct Got {
    time: u64,
    wire_len: u32,
    data: Vec<u8>,
    decoded: Decoded,
    end: u64,
}

fn frames(bytes: &[u8]) -> Result<(Vec<Got>, Option<ReadError>), OpenError> {
    let mut reader = Reader::new(bytes)?;
    let mut decoder = Decoder::new();
    let mut got = Vec::new();
    loop {
        match reader.next_frame() {
            Ok(Some(f)) => {
                let decoded = decoder.decode(&f);
                let (time, wire_len, data) = (f.time.as_nanos(), f.wire_len, f.data.to_vec());
                got.push(Got { time, wire_len, data, decoded, end: reader.offset() });
            }
            Ok(None) => return Ok((got, None)),
            Err(error) => return Ok((got, Some(error))),
        }
    }
}

#[test]
fn every_file_is_read_to_its_end_or_refused_by_name() {
    let Some(root) = root() else { return };
    for (name, path) in files(&root) {
        match (capture::open(&path), refusal(&name)) {
            (Err(OpenError::NotACapture { looks_like }), Some(reason)) => {
                assert_eq!(looks_like, reason, "{name}")
            }
            (Err(error), _) => panic!("{name}: {error}"),
            (Ok(_), Some(reason)) => panic!("{name} was opened, though it is {reason}"),
            (Ok(mut reader), None) => {
                let mut decoder = Decoder::new();
                let mut count = 0;
                loop {
                    match reader.next_frame() {
                        Ok(Some(frame)) => {
                            decoder.decode(&frame);
                            count += 1;
                        }
                        Ok(None) => break,
                        Err(error) => panic!("{name}: {error}"),
                    }
                }
                assert!(count > 0, "{name}: no frame");
                assert_eq!(reader.skipped(), 0, "{name}");
            }
        }
    }
}

#[test]
fn tshark_counts_the_same_tcp_packets() {
    let Some(root) = root() else { return };
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("skipped: no tshark on the path");
        return;
    }
    let queue = Mutex::new(files(&root));
    let differing = Mutex::new(BTreeMap::new());
    let judge = || {
        loop {
            let next = queue.lock().expect("no thread panicked").pop();
            let Some((name, path)) = next else { return };
            if refusal(&name).is_some() {
                continue;
            }
            // An ICMP error quotes a TCP header, which is no packet.
            let filter = "tcp and not icmp and not icmpv6";
            let output = Command::new("tshark")
                .args(["-n", "-Y", filter, "-T", "fields", "-e", "frame.number", "-r"])
                .arg(&path)
                .output()
                .expect("tshark runs");
            let theirs = output.stdout.iter().filter(|b| **b == b'\n').count();
            let (got, _) = frames(&unpacked(&path)).expect("opens");
            let ours = got.iter().filter(|g| matches!(g.decoded, Decoded::Tcp(_))).count();
            if ours != theirs {
                differing.lock().expect("no thread panicked").insert(name, (ours, theirs));
            }
        }
    };
    // Two processors are what the smallest machine of interest has.
    std::thread::scope(|scope| {
        scope.spawn(judge);
        scope.spawn(judge);
    });
    let mut differing = differing.into_inner().expect("no thread panicked");
    for (name, ours, theirs, reason) in DISAGREEMENTS {
        match differing.remove(*name) {
            Some(counts) => assert_eq!(counts, (*ours, *theirs), "{name}: {reason}"),
            None => println!("{name}: this tshark agrees; it was: {reason}"),
        }
    }
    assert!(differing.is_empty(), "ours and tshark's: {differing:?}");
}

#[test]
fn a_file_cut_at_any_byte_delivers_every_record_before_the_cut() {
    let Some(root) = root() else { return };
    for (name, path) in files(&root) {
        let bytes = unpacked(&path);
        let short = &bytes[..bytes.len().min(DAMAGED)];
        let Ok((whole, _)) = frames(&bytes) else {
            for len in 0..=short.len() {
                assert!(frames(&short[..len]).is_err(), "{name} cut to {len} bytes was opened");
            }
            continue;
        };
        for len in 0..=short.len() {
            let expected = whole.iter().take_while(|g| g.end <= len as u64).count();
            match frames(&short[..len]) {
                Ok((got, error)) => {
                    assert!(
                        got == whole[..expected],
                        "{name} cut to {len} bytes: {} frames",
                        got.len()
                    );
                    let at_record = expected > 0 && whole[expected - 1].end == len as u64;
                    assert!(
                        !(at_record && error.is_some()),
                        "{name} cut to {len} bytes, between records: {error:?}"
                    );
                }
                Err(_) => assert_eq!(expected, 0, "{name} cut to {len} bytes"),
            }
        }
    }
}

#[test]
fn a_flipped_byte_costs_nothing_before_it() {
    let Some(root) = root() else { return };
    // A linear congruential generator (Numerical Recipes), so that a failure repeats.
    let mut state = 0x2545_f491_u32;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below.max(1)
    };
    for (name, path) in files(&root) {
        let mut bytes = unpacked(&path);
        bytes.truncate(FLIPPED);
        let whole = frames(&bytes).map(|(got, _)| got).unwrap_or_default();
        for round in 0..100 {
            if bytes.is_empty() {
                break;
            }
            let mut damaged = bytes.clone();
            let mut first = bytes.len();
            for _ in 0..=random(4) {
                let at =
                    random(if round % 2 == 0 { DAMAGED.min(bytes.len()) } else { bytes.len() });
                damaged[at] ^= 1 << random(8);
                first = first.min(at);
            }
            let before = whole.iter().take_while(|g| g.end <= first as u64).count();
            match frames(&damaged) {
                Ok((got, _)) => {
                    assert!(
                        got.len() >= before && got[..before] == whole[..before],
                        "{name}, flip at {first}"
                    );
                }
                Err(_) => assert_eq!(before, 0, "{name}, flip at {first}"),
            }
        }
    }
}
