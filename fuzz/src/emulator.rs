//! What the emulator reads: packets out of a TUN device, its own decision logs.
//!
//! signal: bytes · model: the same bytes as a log, as a packet, as a large segment · action: panics
//! where what was cut does not join again, where a marked packet has a bad checksum, or where a log
//! that was read writes other bytes.

use emu::headers::{View, mark, sum, view};
use emu::log::{Reader, Writer};
use emu::offload::{Coalesced, segment};

/// Runs every target of the emulator on the same bytes.
pub fn bytes(bytes: &[u8]) {
    log(bytes);
    packet(bytes);
    if let Some((size, packet)) = bytes.split_first_chunk() {
        large(u16::from_be_bytes(*size).max(1), packet);
    }
}

fn log(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    let mut writer = Writer::new(reader.link);
    let mut records = Vec::new();
    while let Ok(Some((now, record))) = reader.next() {
        writer.put(now, &record);
        records.push((now, record));
    }
    let written = writer.swap(Vec::new());
    let mut again = Reader::new(&written).expect("our own header");
    for expected in records {
        // Times that saturate are written as they were read.
        let found = again.next().expect("our own record");
        assert_eq!(
            found.map(|(_, record)| std::mem::discriminant(&record)),
            Some(std::mem::discriminant(&expected.1))
        );
    }
}

fn packet(bytes: &[u8]) {
    let seen = view(bytes);
    let _ = (seen.hash(), seen.class());
    let mut marked = bytes.to_vec();
    mark(&mut marked);
    let header = usize::from(bytes.first().copied().unwrap_or_default() & 15) * 4;
    if seen.version == 4 && (20..=bytes.len()).contains(&header) {
        assert_eq!(sum(0, &marked[..header]), 0xffff);
    }
}

fn large(size: u16, packet: &[u8]) {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    if !segment(packet, size, |head, payload| pieces.push([head, payload].concat())) {
        return;
    }
    let views: Vec<View> = pieces.iter().map(|piece| view(piece)).collect();
    assert!(views.windows(2).all(|w| w[0].ports == w[1].ports && w[0].source == w[1].source));
    let mut coalesced = Coalesced::default();
    let taken = pieces
        .iter()
        .enumerate()
        .take_while(|(i, piece)| coalesced.coalesce(*i as u32, piece))
        .count();
    if taken > 1 {
        let from = coalesced.head_length();
        let payload: usize = pieces[..taken].iter().map(|piece| piece.len() - from).sum();
        let (_, head) = coalesced.finish();
        assert!(head.len() + payload <= 65_535);
    }
}
