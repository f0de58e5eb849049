//! What client and server of `unbloat measure` read from each other, and from strangers.
//!
//! signal: bytes · model: the readers of the wire, on bytes alone · action: panics where one of them breaks a promise
//! that its caller leans on.
//!
//! Also compiled into `crates/measure/tests/any_bytes.rs`; so it needs nothing but `measure`.

use measure::client::printable;
use measure::iperf3::{Results, State};
use measure::irtt::{self, Opened, Parameters, Reply};
use measure::losses::{Fate, fates};
use measure::ndt7::{FIRST_SIZE, MAX_SIZE, Measurement, next_size};
use measure::rpm::Configuration;
use measure::surroundings::wifi::Reading;
use measure::wire::data::{self, Opening};
use measure::wire::keys::{Key, unhex};
use measure::wire::message::{Frames, MAX_FRAME, ToClient, ToServer, frame};
use measure::wire::probe::{self, Probe};
use measure::wire::quic_probe::{self, QuicProbe, answered};
use measure::wire::replay::{Replay, WINDOW};

fn key() -> Key {
    Key::derived("token", &[1; 32])
}

/// Frames of the control connection, in pieces as long as the first byte says. How they are cut changes nothing, and
/// what was read is written and read again alike.
pub fn control(bytes: &[u8]) {
    let Some((piece, rest)) = bytes.split_first() else { return };
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let (mut frames, mut found) = (Frames::default(), Vec::new());
        for piece in pieces {
            frames.push(piece);
            loop {
                match frames.take::<ToServer>() {
                    Ok(Some(message)) => found.push(message),
                    Ok(None) => break,
                    Err(error) => {
                        assert!(!error.to_string().is_empty());
                        return (found, false);
                    }
                }
            }
        }
        (found, true)
    };
    let whole = read(&mut std::iter::once(rest));
    let cut = read(&mut rest.chunks(usize::from(*piece).max(1)));
    assert_eq!(whole, cut);
    for message in &whole.0 {
        let mut frames = Frames::default();
        frames.push(&frame(message));
        assert_eq!(frames.take().as_ref(), Ok(&Some(message.clone())));
    }
    let mut frames = Frames::default();
    frames.push(rest);
    while let Ok(Some(message)) = frames.take::<ToClient>() {
        let written = frame(&message);
        if let ToClient::Refused { why } | ToClient::Error { why } = message {
            assert!(!printable(&why).contains(|c: char| c.is_control()));
        }
        assert!(written.len() <= 4 + 8 * MAX_FRAME);
    }
}

/// Datagrams and the beginnings of data connections: what the key did not sign is refused, what it signed is read.
pub fn signed(bytes: &[u8]) {
    let key = key();
    assert!(Probe::read(bytes, &key).is_err(), "a tag of 128 bits is not guessed");
    if let Some(first) = bytes.first_chunk::<{ data::LENGTH }>() {
        assert_eq!(Opening::read(first, &key), None);
        // The same, signed: read or refused, and what was read is written alike.
        let signed = data::LENGTH - 16;
        let mut own = *first;
        own[..8].copy_from_slice(b"UNBDATA1");
        let tag = key.tag(&own[..signed]);
        own[signed..].copy_from_slice(&tag);
        if let Some(opening) = Opening::read(&own, &key) {
            assert_eq!(Opening::read(&opening.write(&key), &key), Some(opening));
        }
    }
    if let Some(first) = bytes.first_chunk::<{ probe::LENGTH }>() {
        let signed = probe::LENGTH - 16;
        let mut own = *first;
        own[..4].copy_from_slice(b"UBP1");
        own[4] = 1 + own[4] % 2;
        let tag = key.tag(&own[..signed]);
        own[signed..].copy_from_slice(&tag);
        let read = Probe::read(&own, &key);
        assert!(read.is_ok_and(|probe| Probe::read(&probe.write(&key), &key) == Ok(probe)));
    }
    if let Some(number) = probe::expiring_number(bytes, 7) {
        let same = [&bytes[..5], &[0; 3][..], &bytes[8..20]].concat();
        assert_eq!(probe::expiring(7, number)[..20], same[..]);
    }
    let _ = unhex::<16>(&String::from_utf8_lossy(bytes));
}

/// QUIC probes and answers of any server of QUIC. What is read as a probe is no answer, and is written alike; its answer belongs to
/// it.
pub fn quic(bytes: &[u8]) {
    let key = key();
    if let Some(probe) = QuicProbe::read(bytes, &key) {
        assert!(bytes.len() >= quic_probe::LENGTH);
        assert_eq!(answered(bytes), None);
        assert_eq!(answered(&probe.answer()), Some(probe.ids));
        let again = probe.write(&key, &[0; quic_probe::LENGTH]);
        assert_eq!(again[..43], bytes[..43]);
    }
    if let Some(first) = bytes.first_chunk() {
        let probe = QuicProbe::new(7, *first);
        let written = probe.write(&key, &[0; quic_probe::LENGTH]);
        assert_eq!(QuicProbe::read(&written, &key), Some(probe));
        assert_eq!(answered(&probe.answer()), Some(probe.ids));
    }
}

/// Numbers of probes in any order, and counts of a server that lies. No number is new twice, and every probe has a fate.
pub fn numbers(bytes: &[u8]) {
    let numbers: Vec<u32> =
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let mut window = Replay::default();
    let mut largest: Option<u32> = None;
    for number in &numbers {
        let old = largest.and_then(|l| l.checked_sub(*number)).is_some_and(|by| by >= WINDOW);
        let new = window.is_new(*number);
        assert!(!(old && new), "older than the window");
        assert!(!window.is_new(*number), "twice");
        largest = largest.max(Some(*number));
    }
    let counts: Vec<Option<u32>> = numbers.iter().map(|n| (n % 3 > 0).then_some(*n)).collect();
    let found = fates(&counts);
    assert_eq!(found.len(), counts.len());
    assert!(found.iter().zip(&counts).all(|(f, c)| (*f == Fate::Answered) == c.is_some()));
}

/// The configuration of a server of RPM. Whatever is taken names one host, by HTTPS; whatever is refused is a line without
/// anything of its text.
pub fn configuration(bytes: &[u8]) {
    match Configuration::of(bytes) {
        Ok(found) => {
            let host = found.authority.host();
            for url in [&found.small, &found.large, &found.upload] {
                assert_eq!(url.scheme_str(), Some("https"));
                assert!(url.host().is_some_and(|own| own.eq_ignore_ascii_case(host)));
            }
        }
        Err(error) => assert!(!error.to_string().contains(|c: char| c.is_control())),
    }
}

/// What a server of iperf3 says: its states, and its results, which are read or refused.
pub fn iperf3(bytes: &[u8]) {
    for byte in bytes {
        assert!(State::of(*byte).is_none_or(|state| state.byte() == *byte));
    }
    if let Some(results) = Results::read(bytes) {
        let cc = results.congestion_used.as_deref().map(printable).unwrap_or_default();
        assert!(!cc.contains(|c: char| c.is_control()));
    }
}

/// Datagrams of a server of irtt, unsigned and signed. A wrong signature is refused; parameters are written and read alike;
/// an answer is as long as what was granted.
pub fn irtt(bytes: &[u8]) {
    let key = b"key";
    assert!(Opened::read(bytes, key).is_err(), "a tag of 128 bits is not guessed");
    if let Ok(granted) = Parameters::read(bytes) {
        assert_eq!(Parameters::read(&granted.write()), Ok(granted));
    }
    let Ok(opened) = Opened::read(bytes, b"") else {
        for stamps in 0..8 {
            let granted =
                Parameters { counts: stamps % 4, stamps, clocks: 3, ..Parameters::default() };
            assert!(Reply::read(bytes, key, &granted).is_err());
            if let Ok(reply) = Reply::read(bytes, b"", &granted) {
                assert_eq!(reply.had.is_some(), granted.counts & 1 != 0);
                assert_eq!(reply.times.is_some(), stamps != 0);
            }
        }
        return;
    };
    let probe = irtt::probe(opened.token, 1, 88, key);
    assert_eq!(probe.len(), 88);
    assert!(Reply::read(&probe, key, &opened.parameters).is_err(), "a probe is no answer");
}

/// What a server of ndt7 says: a measurement whose numbers are of a time or a size, or nothing. And messages double up to their
/// longest, whatever was sent.
pub fn ndt7(bytes: &[u8]) {
    if let Some(tcp) = Measurement::read(bytes).and_then(|said| said.tcp) {
        let fields = [
            tcp.elapsed_time,
            tcp.rtt,
            tcp.min_rtt,
            tcp.busy_time,
            tcp.r_wnd_limited,
            tcp.snd_buf_limited,
            tcp.bytes_sent,
            tcp.bytes_retrans,
        ];
        assert!(fields.iter().flatten().all(|value| value.is_finite() && *value >= 0.0));
        assert!(tcp.rtt.is_none_or(|us| us > 0.0));
    }
    let mut size = FIRST_SIZE;
    for total in bytes.chunks_exact(8).filter_map(|eight| eight.try_into().ok()) {
        let next = next_size(size, u64::from_le_bytes(total));
        assert!((next == size || next == 2 * size) && next <= MAX_SIZE);
        size = next;
    }
}

/// The kernel's answers on a station and on channels, before and after. Shares are finite and none is negative.
pub fn wifi(bytes: &[u8]) {
    let answers: Vec<Vec<u8>> = bytes.chunks(128).map(<[u8]>::to_vec).collect();
    for stations in [&answers[..], &answers[..answers.len().min(1)]] {
        let (before, after) = (Reading::from(stations, &[]), Reading::from(stations, &answers));
        for found in [before.until(&after), after.until(&before), after.until(&after)] {
            for share in [found.retries_per_packet, found.failed_share, found.channel_busy_share] {
                assert!(share.is_none_or(|share| share.is_finite() && share >= 0.0));
            }
        }
    }
}
