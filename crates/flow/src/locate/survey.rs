//! The first reading of a capture: its flows, and a sample of packets for the comparison with the other captures.
//!
//! The hash of its content decides whether a packet is in the sample. So the same packets are sampled at every point,
//! whatever else a capture contains.

use std::io::Read;
use std::path::{Path, PathBuf};

use capture::{Decoded, Decoder, Reader, flags};
use hashbrown::HashMap;

use super::LocateError;
use super::packet::{CommonContent, Content, Packet, Tuple, narrow, sample_key};
use crate::identity::key::Hasher;

/// Maximum number of sampled packets; when there are more, half of them are dropped.
const MAX_SAMPLES: usize = 1 << 16;
/// Frames of each file that are examined for the snap length, which does not change within a file.
const SURVEYED_FRAMES: usize = 4_000;
/// Larger payloads than that of a jumbo frame are GSO/GRO segments.
const JUMBO: u32 = 9_100;

/// A flow in one direction in this capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SurveyedFlow {
    pub tuple: Tuple,
    pub packets: u64,
    pub bytes: u64,
    pub ttl: u8,
    /// MSS option of its SYN.
    pub mss: Option<u16>,
    /// Whether it sent a SYN without ACK.
    pub opens: bool,
    /// Largest payload of a packet that is no GSO/GRO segment.
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
    /// The same content was seen twice, so that it identifies no packet.
    pub twice: bool,
}

/// Flows and sampled packets of one capture.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub path: PathBuf,
    pub index: HashMap<Tuple, u32, Hasher>,
    pub flows: Vec<SurveyedFlow>,
    pub samples: HashMap<u64, Sample, Hasher>,
    mask: u64,
    /// Times of first and last packet, ns since the epoch.
    pub first: i64,
    pub last: i64,
    pub packets: u64,
    pub bytes: u64,
    pub reported_drops: Option<u64>,
    pub warnings: Vec<String>,
}

/// Opens the capture file at `path`.
pub(crate) fn open(path: &Path) -> Result<Reader<Box<dyn Read + Send>>, LocateError> {
    let fail = |source| LocateError::Open { path: path.display().to_string(), source };
    let file = std::fs::File::open(path).map_err(|e| fail(capture::OpenError::Io(e)))?;
    let input: Box<dyn Read + Send> = Box::new(file);
    Reader::new(input).map_err(fail)
}

/// The part of packets that all captures contain, by their first frames.
pub(crate) fn common_content<R: Read>(
    readers: impl IntoIterator<Item = Reader<R>>,
) -> CommonContent {
    let mut common = CommonContent::default();
    for mut reader in readers {
        let mut decoder = Decoder::new();
        for _ in 0..SURVEYED_FRAMES {
            let Ok(Some(frame)) = reader.next_frame() else { break };
            let decoded = decoder.decode(&frame);
            narrow(&mut common, &frame, &decoded);
        }
    }
    common
}

/// Time as a signed number, since corrected times may be negative. Times after the year 2116 are clamped.
pub(crate) fn signed(time: units::Instant) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).min(i64::MAX / 2)
}

impl Survey {
    /// Reads a capture to its end. `tick` gets the bytes read; returning false stops the work.
    pub fn read<R: Read>(
        path: &Path,
        mut reader: Reader<R>,
        common: CommonContent,
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
                    if let Some(packet) = Packet::of(&frame, &decoded, common) {
                        survey.take(ordinal, signed(frame.time), &packet, &decoded, common);
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

    fn take(
        &mut self,
        ordinal: u64,
        time: i64,
        packet: &Packet,
        decoded: &Decoded,
        common: CommonContent,
    ) {
        self.packets += 1;
        let bytes = u64::from(packet.header) + u64::from(packet.payload);
        self.bytes = self.bytes.saturating_add(bytes);
        self.first = self.first.min(time);
        self.last = self.last.max(time);
        let next = self.flows.len() as u32;
        let flow = *self.index.entry(packet.tuple).or_insert(next);
        if flow == next {
            self.flows.push(SurveyedFlow {
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
            // The SYN is always sampled, so that connections of a few packets are found.
            always = self.samples.len() < MAX_SAMPLES;
        }
        let Some(key) = sample_key(packet, decoded, common) else { return };
        if !always && key & self.mask != 0 {
            return;
        }
        // A segment with data and one without may have the same key, but are different samples.
        let key = if matches!(packet.content, Content::Data { .. }) {
            key | 1 << 63
        } else {
            key & !(1 << 63)
        };
        let sample =
            Sample { time, ordinal, flow, id: packet.id, payload: packet.payload, twice: false };
        self.samples.entry(key).and_modify(|s| s.twice = true).or_insert(sample);
        if self.samples.len() > MAX_SAMPLES {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.samples.retain(|key, _| key & mask & !(1 << 63) == 0);
        }
    }
}
