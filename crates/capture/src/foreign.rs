//! Names for files that are not pcap, for the error message.
//!
//! Magic numbers as in Wireshark's wiretap and file(1). ERF, TSH, EtherPeek and NetMetrix have none; they are
//! recognised by two records, or a header, that make sense.

/// Magic number at the beginning, and the name of the format.
const MAGICS: &[(&[u8], &str)] = &[
    (b"snoop\0\0\0", "a snoop file"),
    (b"\x7fver", "an EtherPeek (tagged) file"),
    (b"\0\0dv\0\0\0\x04", "a NetMetrix file"),
    (b"RTSS", "a Microsoft Network Monitor 1 file"),
    (b"GMBU", "a Microsoft Network Monitor 2 file"),
    (b"TRSNIFF data", "a Sniffer file"),
    (b"XCP\0", "a NetXRay file"),
    (b"iptrace ", "an AIX iptrace file"),
    (b"btsnoop\0", "a Bluetooth btsnoop file"),
    (b"\xa1\x2b\x3c\x4d", "a Navtel pcap file"),
    (b"\x1c\x00\x01\xab", "an IXIA lcap file"),
    (b"\x1c\x00\x01\xac", "an IXIA lcap file"),
    (b"\xab\x01\x00\x1c", "an IXIA lcap file"),
    (b"\xac\x01\x00\x1c", "an IXIA lcap file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"\x04\x22\x4d\x18", "an lz4 file"),
    (b"\x1f\x8b", "a gzip file of an unknown method"),
    (b"PK\x03\x04", "a zip archive"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"\x7fELF", "a program"),
    (b"PAR1", "a Parquet file"),
    (b"%PDF", "a PDF file"),
    (b"\x89PNG", "a PNG picture"),
    (b"version https://git-lfs", "a git LFS pointer, not the file itself"),
];

/// What a file with these first bytes looks like.
pub(crate) fn name(head: &[u8]) -> &'static str {
    if head.is_empty() {
        return "an empty file";
    }
    if let Some((_, name)) = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return name;
    }
    let text = head.trim_ascii_start();
    if starts_without_case(text, b"<!doctype html") || starts_without_case(text, b"<html") {
        return "HTML";
    }
    if starts_without_case(text, b"<?xml") {
        return "XML";
    }
    if tsh(head) {
        return "a TSH file";
    }
    if etherpeek(head) {
        return "an EtherPeek file";
    }
    if erf(head) {
        return "an ERF file";
    }
    if head.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..)) {
        return "text";
    }
    if head.len() < 24 {
        return "a file too short for any capture";
    }
    "nothing known"
}

fn starts_without_case(text: &[u8], word: &[u8]) -> bool {
    text.get(..word.len()).is_some_and(|t| t.eq_ignore_ascii_case(word))
}

/// NLANR time-sequence headers: records of 44 bytes with an IPv4 header of 20 bytes at 8.
fn tsh(head: &[u8]) -> bool {
    let record = |at: usize| {
        let microseconds =
            head.get(at + 5..at + 8).map(|b| u32::from_be_bytes([0, b[0], b[1], b[2]]));
        head.get(at + 8) == Some(&0x45) && microseconds.is_some_and(|us| us < 1_000_000)
    };
    record(0) && (head.len() == 44 || record(44))
}

/// Endace ERF: little-endian time, type, flags, record length, loss counter, wire length.
fn erf(head: &[u8]) -> bool {
    let record = |at: usize| -> Option<(u32, usize)> {
        let r: &[u8; 16] = head.get(at..)?.first_chunk()?;
        let seconds = u32::from_le_bytes([r[4], r[5], r[6], r[7]]);
        let (kind, len) = (r[8] & 0x7f, u16::from_be_bytes([r[10], r[11]]));
        // Type 48 is the last that Endace assigned; a record holds at least its header.
        ((1..=48).contains(&kind) && len >= 16 && r[14..16] != [0, 0])
            .then_some((seconds, usize::from(len)))
    };
    let Some((first, len)) = record(0) else { return false };
    match record(len) {
        Some((second, _)) => second >= first && second - first < 86_400,
        None => head.len() <= len,
    }
}

/// WildPackets classic (versions 5 to 7): version, status, 10 bytes of counters, then zeros up to byte 48.
fn etherpeek(head: &[u8]) -> bool {
    matches!(head.first(), Some(5..=7))
        && matches!(head.get(1), Some(0 | 0x80))
        && head.get(24..48).is_some_and(|b| b.iter().all(|b| *b == 0))
}
