//! What a log contains, in a few lines.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use units::Histogram;

use crate::contents::{Contents, Part, Unread};
use crate::layout::{self, Basis};
use crate::stream::Event;
use crate::time::ModemTime;

/// Unknown layouts that are named; the rest is counted.
const MAX_UNKNOWN: usize = 8;

/// Counts over a log.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Of read records, by code and version.
    read: BTreeMap<(u16, u32), Read>,
    /// Of records with an unknown layout, by code and version: how many, and how the first begins.
    unknown: BTreeMap<(u16, u32), (u64, String)>,
    /// Records that do not fit their layout.
    misfits: u64,
    /// Records of other codes.
    others: u64,
    /// Messages that are no records.
    messages: u64,
    damaged: u64,
    /// Times of the first and the last record that was read.
    span_ns: Option<(u64, u64)>,
    occupancy_bytes: Histogram,
    granted_bytes: u64,
    padding_bytes: u64,
    /// Bytes of transmissions that were no retransmissions.
    pusch_bytes: u64,
}

/// Records of one layout.
#[derive(Clone, Copy, Debug)]
struct Read {
    records: u64,
    /// Samples, blocks or transmissions in them.
    entries: u64,
    basis: Basis,
}

impl Summary {
    /// Counts what a stream contained; `parts` are those of its record.
    pub fn add(&mut self, event: &Event, parts: &[Part]) {
        match event {
            Event::Damage(_) => self.damaged += 1,
            Event::Other(_) => self.messages += 1,
            Event::Record(record) if layout::name(record.code).is_none() => self.others += 1,
            Event::Record(record) => {
                for part in parts {
                    self.add_part(record.code, record.at, part);
                }
            }
        }
    }

    fn add_part(&mut self, code: u16, at: ModemTime, part: &Part) {
        let (contents, basis) = match &part.contents {
            Ok(read) => read,
            Err(Unread::Misfit(_)) => return self.misfits += 1,
            Err(Unread::Unknown(begin)) => {
                let of = self.unknown.entry((code, part.version)).or_insert((0, begin.clone()));
                return of.0 += 1;
            }
        };
        // In ns: the parts of a unit may be more than a unit, so that the times as they stand have another order.
        let at_ns = at.ns();
        let (first, last) = self.span_ns.unwrap_or((at_ns, at_ns));
        self.span_ns = Some((first.min(at_ns), last.max(at_ns)));
        let count = Read { records: 0, entries: 0, basis: *basis };
        let read = self.read.entry((code, part.version)).or_insert(count);
        read.records += 1;
        read.entries += match contents {
            Contents::Buffer { samples } => {
                samples.iter().for_each(|sample| self.occupancy_bytes.record(sample.occupancy()));
                samples.len()
            }
            Contents::Blocks { blocks } => {
                self.granted_bytes += blocks.iter().map(|b| u64::from(b.granted)).sum::<u64>();
                self.padding_bytes += blocks.iter().map(|b| u64::from(b.padding)).sum::<u64>();
                blocks.len()
            }
            Contents::Pusch { transmissions, .. } => {
                let new = transmissions.iter().filter(|one| one.retransmission == 0);
                self.pusch_bytes += new.map(|one| u64::from(one.bytes)).sum::<u64>();
                transmissions.len()
            }
            Contents::NrBlocks { nr_blocks } => {
                let granted = nr_blocks.iter().map(|b| u64::from(b.granted)).sum::<u64>();
                let built = nr_blocks.iter().map(|b| u64::from(b.built)).sum::<u64>();
                self.granted_bytes = self.granted_bytes.saturating_add(granted);
                let padding = granted.saturating_sub(built);
                self.padding_bytes = self.padding_bytes.saturating_add(padding);
                nr_blocks.len()
            }
            Contents::NrReports { nr_reports } => nr_reports.len(),
            Contents::NrTotals { nr_totals } => nr_totals.len(),
        } as u64;
    }

    /// Whether anything was a frame or a record.
    pub fn is_empty(&self) -> bool {
        let unread = self.unknown.is_empty() && self.misfits == 0;
        self.read.is_empty() && unread && self.others == 0 && self.messages == 0
    }

    fn span_s(&self) -> Option<f64> {
        self.span_ns.map(|(first, last)| (last - first) as f64 / 1e9)
    }

    /// Bytes that were granted and used, and what says so.
    fn used(&self) -> Option<(u64, &'static str)> {
        if self.granted_bytes > 0 {
            let used = self.granted_bytes.saturating_sub(self.padding_bytes);
            return Some((used, "grants less padding"));
        }
        (self.pusch_bytes > 0).then_some((self.pusch_bytes, "PUSCH blocks, padding included"))
    }

    /// Mbit/s over the span.
    fn rate_mbps(&self, bytes: u64) -> Option<f64> {
        self.span_s().filter(|span| *span > 0.0).map(|span| bytes as f64 * 8.0 / span / 1e6)
    }

    /// For people: lines of at most 80 characters.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        for (&(code, version), read) in &self.read {
            let basis = match read.basis {
                Basis::Seen => "",
                Basis::Described => {
                    "\n       no record of a modem was there to check this layout with"
                }
            };
            lines.push(format!(
                "{} {:<27} version {:<3} {:>6} records {:>7} entries{basis}",
                code_text(code),
                layout::name(code).unwrap_or_default(),
                version_text(code, version),
                read.records,
                read.entries,
            ));
        }
        for (&(code, version), (records, begin)) in self.unknown.iter().take(MAX_UNKNOWN) {
            lines.push(format!(
                "{} version {}: unknown layout, {records} records",
                code_text(code),
                version_text(code, version)
            ));
            lines.push(format!("       the first begins with {begin}"));
        }
        if self.unknown.len() > MAX_UNKNOWN {
            lines.push(format!("and {} unknown layouts more", self.unknown.len() - MAX_UNKNOWN));
        }
        if self.read.is_empty() && self.unknown.is_empty() {
            lines.push("no record of an uplink buffer or of grants".to_owned());
        }
        lines.push(format!(
            "{} records of other codes, {} other messages, {} damaged frames, {} misfits",
            self.others, self.messages, self.damaged, self.misfits
        ));
        if let Some(span) = self.span_s() {
            lines.push(format!("span of the records read: {span:.3} s"));
        }
        if let Some(q) = self.occupancy_bytes.quantiles(1.0) {
            lines.push(format!(
                "buffer, bytes: p50 {:.0}, p95 {:.0}, max {:.0}",
                q.p50, q.p95, q.max
            ));
        }
        if let Some((bytes, what)) = self.used() {
            let rate = self.rate_mbps(bytes).map_or(String::new(), |r| format!(", {r:.3} Mbit/s"));
            lines.push(format!("{what}: {bytes} bytes{rate}"));
        }
        lines.join("\n")
    }

    /// For programs; what was not measured is null.
    pub fn json(&self) -> Value {
        let of = |(&(code, version), read): (&(u16, u32), &Read)| {
            json!({"code": code_text(code), "version": version_text(code, version), "name": layout::name(code),
                "records": read.records, "entries": read.entries, "layout": read.basis})
        };
        let unknown = |(&(code, version), (records, begin)): (&(u16, u32), &(u64, String))| {
            json!({"code": code_text(code), "version": version_text(code, version), "records": records,
                "begins": begin})
        };
        let q = self.occupancy_bytes.quantiles(1.0);
        let used = self.used();
        json!({
            "read": self.read.iter().map(of).collect::<Vec<_>>(),
            "unknown": self.unknown.iter().map(unknown).collect::<Vec<_>>(),
            "misfits": self.misfits,
            "other_records": self.others,
            "other_messages": self.messages,
            "damaged_frames": self.damaged,
            "span_s": self.span_s(),
            "occupancy_bytes": q.map(|q| json!({"p50": q.p50 as u64, "p95": q.p95 as u64, "max": q.max as u64})),
            "granted_bytes": (self.granted_bytes > 0).then_some(self.granted_bytes),
            "padding_bytes": (self.granted_bytes > 0).then_some(self.padding_bytes),
            "pusch_bytes": (self.pusch_bytes > 0).then_some(self.pusch_bytes),
            "used_mbps": used.and_then(|(bytes, _)| self.rate_mbps(bytes)),
        })
    }
}

/// A code as its makers write it.
pub fn code_text(code: u16) -> String {
    format!("0x{code:04X}")
}

/// A version as its makers write it.
pub fn version_text(code: u16, version: u32) -> String {
    if code == layout::NR_TOTALS {
        format!("{}.{}", version >> 16, version & 0xffff)
    } else {
        version.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::{Block, Channel, Sample, parts};
    use crate::message::Record;
    use crate::written;

    fn summary(records: &[(u16, u64, Vec<u8>)]) -> Summary {
        let mut summary = Summary::default();
        for (code, ms, payload) in records {
            let at = ModemTime::from_ns(ms * 1_000_000);
            let record = Record { code: *code, at, radio: None, payload };
            summary.add(&Event::Record(record), &parts(&record));
        }
        summary
    }

    #[test]
    fn grants_less_padding_are_a_rate_over_the_span() {
        let blocks = |granted, padding| {
            written::blocks(5, &[Block { tti: None, granted, padding, report: None }])
        };
        let found = summary(&[
            (layout::BLOCKS, 1_000, blocks(60_000, 10_000)),
            (layout::BLOCKS, 2_000, blocks(50_000, 0)),
        ]);
        let json = found.json();
        assert_eq!(
            (&json["granted_bytes"], &json["padding_bytes"]),
            (&json!(110_000), &json!(10_000))
        );
        assert_eq!((&json["used_mbps"], &json["span_s"]), (&json!(0.8), &json!(1.0)));
        assert!(found.text().contains("grants less padding: 100000 bytes, 0.800 Mbit/s"));
        assert_eq!(json["occupancy_bytes"], Value::Null);
    }

    #[test]
    fn the_span_is_that_of_nanoseconds_where_parts_are_more_than_a_unit() {
        let mut summary = Summary::default();
        // The first is later, although its number is smaller.
        for at in [0xffff, 1 << 16] {
            let payload = written::buffer(24, &[]);
            let record =
                Record { code: layout::BUFFER, at: ModemTime(at), radio: None, payload: &payload };
            summary.add(&Event::Record(record), &parts(&record));
        }
        let late_ns = ModemTime(0xffff).ns() - ModemTime(1 << 16).ns();
        assert_eq!(summary.json()["span_s"], json!(late_ns as f64 / 1e9));
    }

    #[test]
    fn unknown_layouts_are_named_and_no_line_is_longer_than_a_terminal() {
        let channel = Channel { lcid: 3, compressed: u32::MAX, ..Channel::default() };
        let sample = Sample { tti: None, channels: vec![channel] };
        let mut other = written::buffer(24, std::slice::from_ref(&sample));
        other[5] = 77;
        let found = summary(&[
            (layout::BUFFER, 5, written::buffer(24, &[sample])),
            (layout::BUFFER, 5, other),
            (layout::NR_TOTALS, 5, vec![3, 0, 9, 0, 1, 2, 3]),
            (layout::NR_REPORTS, 5, vec![2, 0, 0, 0, 0, 0, 0, 0]),
            (layout::PUSCH, 5, vec![102, 0]),
            (0xb0c0, 5, vec![1]),
        ]);
        let text = found.text();
        assert!(text.contains("0xB066 version 77: unknown layout, 1 records"), "{text}");
        assert!(text.contains("begins with 0a4d1c0001"), "{text}");
        assert!(text.contains("0xB881 version 9.3: unknown layout, 1 records"), "{text}");
        assert!(
            text.contains(
                "1 records of other codes, 0 other messages, 0 damaged frames, 1 misfits"
            )
        );
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(!found.is_empty() && Summary::default().is_empty());
    }
}
