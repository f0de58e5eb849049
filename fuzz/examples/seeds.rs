//! Writes first seeds for every target into `corpus/<target>/`: `cargo run --example seeds` in
//! `fuzz/`.
//!
//! All made here, with the project's own writer: a few packets in every file format and link type,
//! every TCP option, a fragmented packet in order and shuffled, and short conversations.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use capture::LINKTYPES;
use capture::write::Writer;
use units::Instant;

const START: Instant = Instant(1_700_000_000_000_000_000);

fn put(target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)
}

fn ipv4(protocol: u8, id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x45, 0];
    out.extend((payload.len() as u16 + 20).to_be_bytes());
    out.extend(id.to_be_bytes());
    out.extend(fragment.to_be_bytes());
    out.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    out.extend(payload);
    out
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x60, 0, 0, 0];
    out.extend((payload.len() as u16).to_be_bytes());
    out.extend([next, 64]);
    out.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    out.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    out.extend(payload);
    out
}

const STAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 3, 0, 0, 0, 4];

fn tcp(seq: u32, ack: u32, flags: u8, options: &[u8], payload: usize) -> Vec<u8> {
    let mut out = vec![0x9c, 0x40, 0x01, 0xbb];
    out.extend(seq.to_be_bytes());
    out.extend(ack.to_be_bytes());
    out.extend([((20 + options.len()) as u8 / 4) << 4, flags, 2, 0, 0, 0, 0, 0]);
    out.extend(options);
    out.resize(out.len() + payload, 0x55);
    out
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x30, 0x39];
    out.extend(port.to_be_bytes());
    out.extend((payload.len() as u16 + 8).to_be_bytes());
    out.extend([0, 0]);
    out.extend(payload);
    out
}

fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind.to_be_bytes(), payload].concat()
}

/// A conversation as the frames of one direction and back (addresses swapped in place).
fn conversation() -> Vec<Vec<u8>> {
    let syn = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let sack = [1, 1, 5, 10, 0, 0, 0x0b, 0xb9, 0, 0, 0x0f, 0xa1];
    let there = |segment: Vec<u8>| ethernet(0x0800, &ipv4(6, 1, 0x4000, &segment));
    let back = |segment: Vec<u8>| {
        let mut frame = there(segment);
        frame[26..34].rotate_left(4);
        frame[34..38].rotate_left(2);
        frame
    };
    vec![
        there(tcp(1000, 0, 2, &syn, 0)),
        back(tcp(2000, 1001, 0x12, &syn, 0)),
        there(tcp(1001, 2001, 0x10, &[], 0)),
        there(tcp(1001, 2001, 0x18, &[], 1000)),
        there(tcp(3001, 2001, 0x18, &[], 1000)),
        back(tcp(2001, 2001, 0x10, &sack, 0)),
        there(tcp(2001, 2001, 0x18, &[], 1000)),
        back(tcp(2001, 4001, 0x10, &STAMPS, 0)),
        there(tcp(4001, 2001, 0x11, &[], 0)),
        back(tcp(2001, 4002, 0x11, &[], 0)),
    ]
}

fn files() -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let frames = conversation();
    let write = |mut w: Writer<Vec<u8>>| {
        for (i, f) in frames.iter().enumerate() {
            w.write(Instant(START.0 + i as u64 * 20_000_000), f, f.len() as u32)?;
        }
        w.report_drops(0, 3)?;
        w.finish()
    };
    let ng = write(Writer::new(Vec::new(), 1, &["eth0", "wlan0"])?)?;
    let plain = write(Writer::pcap(Vec::new(), 1)?)?;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&ng)?;
    Ok(vec![
        ("gzip", gzip.finish()?),
        ("zstd", zstd::encode_all(&plain[..], 1)?),
        ("swapped", swapped(&plain)),
        ("pcapng", ng),
        ("pcap", plain),
    ])
}

/// The same pcap file in the other byte order.
fn swapped(plain: &[u8]) -> Vec<u8> {
    let mut out = plain.to_vec();
    for (from, to) in [(0, 4), (4, 6), (6, 8), (8, 12), (12, 16), (16, 20), (20, 24)] {
        out[from..to].reverse();
    }
    let mut at = 24;
    while let Some(head) = plain.get(at..at + 16) {
        for i in 0..4 {
            out[at + 4 * i..at + 4 * i + 4].reverse();
        }
        at += 16 + u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
    }
    out
}

/// Frames for `link_layers`: link type, then each frame behind its length.
fn linked(kind: u16, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = kind.to_be_bytes().to_vec();
    for frame in frames {
        out.extend((frame.len() as u16).to_be_bytes());
        out.extend(frame);
    }
    out
}

fn link_layers() -> io::Result<()> {
    let segment = tcp(1, 2, 0x18, &STAMPS, 8);
    let v4 = ipv4(6, 9, 0, &segment);
    let v6 = ipv6(6, &segment);
    for (i, (number, name)) in LINKTYPES.iter().enumerate() {
        let heads: &[&[u8]] = match number {
            1 => &[&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]],
            113 => &[&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0]],
            276 => &[&[8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]],
            0 => &[&[2, 0, 0, 0], &[0, 0, 0, 2]],
            9 => &[&[0, 0x21], &[0xff, 3, 0, 0x21]],
            105 => &[&[
                8, 2, 0, 0, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 3, 0, 0, 0xaa, 0xaa,
                3, 0, 0, 0, 8, 0,
            ]],
            127 => &[&[
                0, 0, 8, 0, 0, 0, 0, 0, 8, 2, 0, 0, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0,
                0, 3, 0, 0, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0,
            ]],
            239 => &[&[2, 0, 0, 0, 56, 0, 9, 0]],
            _ => &[&[]],
        };
        let frames: Vec<Vec<u8>> = heads.iter().map(|h| [h, &v4[..]].concat()).collect();
        put("link_layers", &format!("{name}"), &linked(i as u16, &frames))?;
    }
    let eth = LINKTYPES.iter().position(|(n, _)| *n == 1).unwrap_or(0) as u16;
    let tagged = [&[0, 100, 0x88, 0xa8, 0, 5, 0x08, 0][..], &v4].concat();
    let pppoe = [&[0x11, 0, 0, 1, 0, 62, 0, 0x21][..], &v4].concat();
    let mpls = [&[0, 1, 0x01, 64][..], &v4].concat();
    let gre = ipv4(47, 1, 0, &[&[0x20, 0, 8, 0, 0, 0, 0, 9][..], &v4].concat());
    let gtp = ipv4(
        17,
        1,
        0,
        &udp(2152, &[&[0x30, 0xff, 0, v4.len() as u8, 0, 0, 0, 1][..], &v4].concat()),
    );
    let inner = ethernet(0x86dd, &v6);
    let vxlan = ipv4(17, 1, 0, &udp(4789, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &inner].concat()));
    let geneve =
        ipv4(17, 1, 0, &udp(6081, &[&[0, 0, 0x65, 0x58, 0, 0, 1, 0][..], &inner].concat()));
    let chain = ipv6(
        0,
        &[
            &[60, 0, 1, 4, 0, 0, 0, 0, 44, 0, 1, 4, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 9][..],
            &segment,
        ]
        .concat(),
    );
    let all = [
        ethernet(0x8100, &tagged),
        ethernet(0x8864, &pppoe),
        ethernet(0x8847, &mpls),
        ethernet(0x0800, &gre),
        ethernet(0x0800, &gtp),
        ethernet(0x0800, &vxlan),
        ethernet(0x0800, &geneve),
        ethernet(0x86dd, &chain),
        ethernet(0x0806, &[0; 28]),
    ];
    put("link_layers", "tunnels", &linked(eth, &all))
}

/// What the agent reads from others.
fn agent() -> io::Result<()> {
    put("agent_config", "defaults", agent::config::template().as_bytes())?;
    put("agent_config", "set", b"[receive]\nlambda = 1.5\n\0receive.start=1 MB")?;
    put("agent_http", "scrape", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9469\r\n\r\n")?;
    put("agent_http", "absolute", b"HEAD http://[::1]:1/metrics?a HTTP/1.1\nHost: a\n\n")?;
    put(
        "agent_control_lines",
        "questions",
        b"{\"ask\":\"status\"}\n{\"ask\":\"set\",\"set\":[[\"receive.lambda\",\"2\"]]}\n",
    )?;
    put(
        "agent_control_lines",
        "status",
        b"{\"version\":\"0\",\"cures\":{\"receive\":{\"acks\":1},\"gate\":{\"telemetry\":{\"state\":\"fresh\"}}},\"problems\":[\"x\"],\
          \"flows\":[{\"cure\":\"receive\",\"remote\":\"::1\",\"rate_bps\":1e6,\"rtt_ms\":5,\"rtt_min_ms\":1}]}\n",
    )?;
    let mut records = vec![48];
    records.extend(b"UBTM\x01\0");
    records.resize(49, 1);
    records.push(32);
    records.extend(b"UBTB\x01\0\x01\0\0\x01\x02\x3f");
    records.resize(49 + 33, 2);
    put("agent_telemetry", "both", &records)?;
    // struct nlmsghdr of request 1, struct tcmsg, its kind; then the end.
    let mut messages = vec![48, 0, 0, 0, 36, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    messages.resize(36, 1);
    messages.extend(b"\x0c\0\x01\0pfifo\0\0\0");
    messages.extend([20, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    put("agent_kernel_messages", "discipline", &messages)
}

fn main() -> io::Result<()> {
    agent()?;
    put("scenario", "example", include_bytes!("../../crates/scenario/tests/example.toml"))?;
    for (name, bytes) in files()? {
        put("file_readers", name, &bytes)?;
        put("whole_capture", name, &bytes)?;
    }
    link_layers()?;
    let options: [(&str, &[u8]); 5] = [
        ("syn", &[0, 2, 2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7]),
        ("stamps", &[2, 0x18, 1, 1, 8, 10, 0, 0, 0, 3, 0, 0, 0, 4]),
        ("sack", &[0, 0x10, 1, 1, 5, 18, 0, 0, 7, 0xd0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 10, 0]),
        ("mptcp", &[0, 2, 30, 12, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("odd", &[0, 0x10, 253, 4, 1, 2, 3, 3, 99, 5, 3, 0, 8, 1]),
    ];
    for (name, bytes) in options {
        put("tcp_options", name, bytes)?;
    }
    let orders: [(&str, &[u8]); 3] = [
        ("in_order", &[20, 3, 0, 1, 2, 3, 4, 5]),
        ("reversed", &[20, 3, 5, 4, 3, 2, 1, 0]),
        ("odd", &[20, 3, 0, 0xff, 1, 2, 2, 0xf1, 3, 4, 5]),
    ];
    for (name, bytes) in orders {
        put("ip_fragments", name, bytes)?;
    }
    modem()?;
    scripts()
}

/// Handshake, data with a hole, SACK, retransmission, zero window, wrap, FIN: eight bytes per
/// segment, see `drive::segment`.
fn scripts() -> io::Result<()> {
    const HANDSHAKE: [[u8; 8]; 3] = [
        [0x44, 0xff, 0xff, 0, 0, 250, 0x07, 30],
        [0xc5, 0xff, 0xff, 0, 0, 250, 0x07, 45],
        [0x00, 0x00, 0x00, 0, 0, 250, 3, 45],
    ];
    let mut plain = vec![0, 64, 50];
    plain.extend(HANDSHAKE.concat());
    for i in 0..20_u8 {
        let at = u16::from(i) * 300;
        let [hi, lo] = at.to_be_bytes();
        plain.extend([0x20, hi, lo, 0, 130, 200, i + 4, 30]);
        plain.extend([0xa0, 0, 0, (at / 96) as u8, 0, 200, i, 45]);
    }
    put("scripted_segments", "plain", &plain)?;
    let mut lossy = vec![1, 64, 50];
    lossy.extend(HANDSHAKE.concat());
    for op in [
        [0x00, 0, 0, 0, 128, 200, 4, 30],
        [0x00, 0, 200, 0, 128, 200, 6, 30],
        [0x90, 0, 0, 1, 0, 4, 6, 45],
        [0x00, 0, 100, 0, 128, 200, 8, 30],
        [0x80, 0, 0, 3, 0, 0, 9, 45],
        [0x00, 1, 44, 0, 255, 200, 10, 60],
        [0x80, 0, 0, 3, 0, 200, 11, 45],
        [0x06, 1, 44, 0, 0, 200, 12, 45],
        [0x86, 0, 0, 4, 0, 200, 13, 0xf0],
        [0x44, 0x10, 0, 0, 0, 250, 0x07, 60],
    ] {
        lossy.extend(op);
    }
    put("scripted_segments", "lossy", &lossy)
}

/// A record of every kind, in frames and in a file of records; each behind the byte of its target.
fn modem() -> io::Result<()> {
    use modem::contents::{Block, Channel, Sample};
    use modem::hdlc::frame;
    use modem::log_config::{Mask, Request};
    use modem::mac::Report;
    use modem::{layout, time::ModemTime, written};

    let channel = Channel { lcid: 3, priority: 9, compressed: 1_500, ..Channel::default() };
    let sample = Sample { tti: None, channels: vec![channel; 2] };
    let block = |report| Block { tti: None, granted: 1_000, padding: 7, report };
    for row in layout::LAYOUTS {
        let version = row.version as u8;
        let payload = match row.code {
            layout::BUFFER => written::buffer(version, &[sample.clone(), sample.clone()]),
            layout::BLOCKS => {
                let long = block(Some(Report::Long([1, 2, 3, 4])));
                written::blocks(version, &[block(None), block(Some(Report::Short(1, 63))), long])
            }
            _ => {
                let mut bytes = vec![version, 0, (row.version >> 16) as u8, 0, 1, 0, 0, 0];
                bytes.resize(116, 0);
                bytes
            }
        };
        let name = format!("{:04x}_{}", row.code, row.version);
        let message = written::message(row.code, ModemTime(1 << 40), &payload);
        put("modem_diag", &name, &[&[6], &frame(&message)[..]].concat())?;
        let of_radio = [&[0x98, 1, 0, 0, 1, 0, 0, 0], &message[..]].concat();
        put("modem_diag", &format!("{name}_radio"), &[&[8], &frame(&of_radio)[..]].concat())?;
        let record = written::file_record(row.code, ModemTime(1 << 40), &payload);
        put("modem_diag", &format!("{name}_file"), &[&[7], &record[..], &record].concat())?;
    }
    let mask = Mask::default().with([layout::BUFFER, layout::BLOCKS]);
    for (name, request) in [("read", Request::Read), ("set", Request::Set(mask.clone()))] {
        let frames = [request.message(), request.answer(0, &mask)].map(|message| frame(&message));
        put("modem_diag", &format!("mask_{name}"), &[&[6], &frames.concat()[..]].concat())?;
    }
    Ok(())
}
