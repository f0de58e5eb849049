//! What one capture holds, found in a first reading: its flows, and a sample of packets by which it is laid beside
//! the others.
//!
//! signal: every packet of a file · model: a packet is in the sample when the hash of its content says so, hence the
//! same packets are sampled at every point, whatever else a capture holds · action: [`Survey`]

use std::io::Read;
use std::path::{Path, PathBuf};

use capture::{Decoded, Decoder, Reader, flags};
use hashbrown::HashMap;

use super::LocateError;
use super::packet::{Content, Kept, Packet, Tuple, narrow, sample_key};
use crate::packet::key::Hasher;

/// Packets kept for laying captures side by side; the sample is thinned by half when there are more.
const MOST_SAMPLES: usize = 1 << 16;
/// Frames of each file that say how much of a packet was kept: the snap length of an interface does not change.
const LOOK: usize = 4_000;
/// Larger payloads than a jumbo frame holds were joined by an offload.
const JUMBO: u32 = 9_100;

/// A flow in one direction, as this capture sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub tuple: Tuple,
    pub packets: u64,
    pub bytes: u64,
    pub ttl: u8,
    /// MSS that its SYN offers.
    pub mss: Option<u16>,
    /// Sent a SYN without ACK.
    pub opens: bool,
    /// Largest payload of a packet that was no giant.
    pub largest: u32,
}

/// A sampled packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub time: i64,
    /// Its number in the file.
    pub ordinal: u64,
    /// Index into [`Survey::flows`].
    pub flow: u32,
    pub id: u16,
    pub payload: u32,
    /// The same content was seen again: tells nothing.
    pub twice: bool,
}

/// One capture at a glance.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub path: PathBuf,
    pub index: HashMap<Tuple, u32, Hasher>,
    pub flows: Vec<Seen>,
    pub samples: HashMap<u64, Sample, Hasher>,
    mask: u64,
    /// First and last packet, ns.
    pub first: i64,
    pub last: i64,
    pub packets: u64,
    pub bytes: u64,
    pub reported_drops: Option<u64>,
    pub warnings: Vec<String>,
}

/// Opens a capture.
pub(crate) fn open(path: &Path) -> Result<Reader<Box<dyn Read + Send>>, LocateError> {
    let fail = |source| LocateError::Open { path: path.display().to_string(), source };
    let file = std::fs::File::open(path).map_err(|e| fail(capture::OpenError::Io(e)))?;
    let input: Box<dyn Read + Send> = Box::new(file);
    Reader::new(input).map_err(fail)
}

/// What all of the captures kept of their packets.
pub(crate) fn kept_by_all<R: Read>(readers: impl IntoIterator<Item = Reader<R>>) -> Kept {
    let mut kept = Kept::default();
    for mut reader in readers {
        let mut decoder = Decoder::new();
        for _ in 0..LOOK {
            let Ok(Some(frame)) = reader.next_frame() else { break };
            let decoded = decoder.decode(&frame);
            narrow(&mut kept, &frame, &decoded);
        }
    }
    kept
}

/// Epoch time as a signed number: corrected clocks may run backwards through 0. A time behind the year 2116 is none.
pub(crate) fn signed(time: units::Instant) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).min(i64::MAX / 2)
}

impl Survey {
    /// Reads a capture to its end. `tick` hears bytes read, and stops the work with false.
    pub fn read<R: Read>(
        path: &Path,
        mut reader: Reader<R>,
        kept: Kept,
        tick: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Survey, LocateError> {
        let mut survey =
            Survey { path: path.to_owned(), first: i64::MAX, last: i64::MIN, ..Survey::default() };
        let mut decoder = Decoder::new();
        let mut decoded = Decoded::NotIp;
        let mut ordinal = 0;
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => {
                    decoder.decode_into(&frame, &mut decoded);
                    if let Some(packet) = Packet::of(&frame, &decoded, kept) {
                        survey.take(ordinal, signed(frame.time), &packet, &decoded, kept);
                    }
                    ordinal += 1;
                }
                Ok(None) => break,
                Err(e) => {
                    survey
                        .warnings
                        .push(format!("{}: {e}; what came before is used", path.display()));
                    break;
                }
            }
            if ordinal.is_multiple_of(super::TICK) && !tick(reader.offset()) {
                return Err(LocateError::Stopped);
            }
        }
        survey.reported_drops =
            reader.interfaces().iter().filter_map(|i| i.reported_drops).reduce(u64::saturating_add);
        Ok(survey)
    }

    fn take(&mut self, ordinal: u64, time: i64, packet: &Packet, decoded: &Decoded, kept: Kept) {
        self.packets += 1;
        let bytes = u64::from(packet.header) + u64::from(packet.payload);
        self.bytes = self.bytes.saturating_add(bytes);
        self.first = self.first.min(time);
        self.last = self.last.max(time);
        let next = self.flows.len() as u32;
        let flow = *self.index.entry(packet.tuple).or_insert(next);
        if flow == next {
            self.flows.push(Seen {
                tuple: packet.tuple,
                packets: 0,
                bytes: 0,
                ttl: packet.ttl,
                mss: None,
                opens: false,
                largest: 0,
            });
        }
        let Some(seen) = self.flows.get_mut(flow as usize) else { return };
        seen.packets += 1;
        seen.bytes = seen.bytes.saturating_add(bytes);
        if packet.payload <= JUMBO {
            seen.largest = seen.largest.max(packet.payload);
        }
        let mut always = false;
        if let Decoded::Tcp(s) = decoded
            && s.has(flags::SYN)
        {
            seen.mss = s.options.mss.or(seen.mss);
            seen.opens |= !s.has(flags::ACK);
            // A connection of a few packets is found by its SYN.
            always = self.samples.len() < MOST_SAMPLES;
        }
        let Some(key) = sample_key(packet, decoded, kept) else { return };
        if !always && key & self.mask != 0 {
            return;
        }
        // A segment that carries data and one that carries none may share a key, not a place in the sample.
        let key = if matches!(packet.content, Content::Data { .. }) {
            key | 1 << 63
        } else {
            key & !(1 << 63)
        };
        let sample =
            Sample { time, ordinal, flow, id: packet.id, payload: packet.payload, twice: false };
        self.samples.entry(key).and_modify(|s| s.twice = true).or_insert(sample);
        if self.samples.len() > MOST_SAMPLES {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.samples.retain(|key, _| key & mask & !(1 << 63) == 0);
        }
    }
}
