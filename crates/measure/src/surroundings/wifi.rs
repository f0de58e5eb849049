//! What the Wi-Fi of a device did during a measurement: signal, rates, retries, and how busy the channel was.
//!
//! From nl80211 (linux/nl80211.h), whose questions need no rights. The driver counts packets, retries and the channel's
//! time without end, so a measurement has the difference of two readings. A host with several stations is an access
//! point: which of them leads to the server is unknown, so it has the figures of the channel only. No hardware address,
//! no name of a network is read.

use netlink::generic::Family;
use netlink::{Attributes, Request, attribute, word};
use serde::Serialize;

/// NL80211_CMD_GET_STATION and _GET_SURVEY.
const GET_STATION: u8 = 17;
const GET_SURVEY: u8 = 50;
/// NL80211_ATTR_IFINDEX, _STA_INFO, _SURVEY_INFO.
const IFINDEX: u16 = 3;
const STATION: u16 = 21;
const SURVEY: u16 = 84;
/// NL80211_STA_INFO_SIGNAL, _TX_BITRATE, _TX_PACKETS, _TX_RETRIES, _TX_FAILED, _RX_BITRATE.
const SIGNAL: u16 = 7;
const TX_RATE: u16 = 8;
const TX_PACKETS: u16 = 10;
const TX_RETRIES: u16 = 11;
const TX_FAILED: u16 = 12;
const RX_RATE: u16 = 14;
/// NL80211_RATE_INFO_BITRATE and _BITRATE32, in 100 kbit/s. The first has 16 bits and is absent above 6.5 Gbit/s.
const RATE: u16 = 1;
const RATE_32: u16 = 5;
/// NL80211_SURVEY_INFO_IN_USE, _TIME and _TIME_BUSY, in ms.
const IN_USE: u16 = 3;
const TIME: u16 = 4;
const TIME_BUSY: u16 = 5;

/// Of one measurement; what the driver does not report is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Wifi {
    /// Signal of the access point at the end, dBm.
    pub signal_dbm: Option<i32>,
    /// Rate of the last packet sent, Mbit/s.
    pub sent_mbps: Option<f64>,
    /// Rate of the last packet received, Mbit/s.
    pub received_mbps: Option<f64>,
    /// Transmissions beyond the first, for each packet sent during the measurement.
    pub retries_per_packet: Option<f64>,
    /// Share of the packets sent during the measurement that were given up.
    pub failed_share: Option<f64>,
    /// Share of the measurement in which the channel was busy, with packets of any station.
    pub channel_busy_share: Option<f64>,
}

/// What the driver has counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    station: Option<Station>,
    /// Of the channel in use, ms: observed, of these busy.
    channel: Option<(u64, u64)>,
}

/// The other end of the device's only link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Station {
    signal_dbm: Option<i32>,
    sent_mbps: Option<f64>,
    received_mbps: Option<f64>,
    packets: Option<u32>,
    retries: Option<u32>,
    failed: Option<u32>,
}

impl Reading {
    /// Of a device by its index. None where the kernel has no Wi-Fi, or the device is none.
    pub fn of(index: i32) -> Option<Reading> {
        let mut family = Family::open("nl80211").ok()?;
        let wanted = Attributes::default().with(IFINDEX, &index.to_ne_bytes());
        let mut ask = |command| family.ask(command, Request::Dump, &wanted);
        // A driver without one of the two answers with an error.
        let (stations, channels) = (ask(GET_STATION), ask(GET_SURVEY));
        if stations.is_err() && channels.is_err() {
            return None;
        }
        Some(Reading::from(&stations.unwrap_or_default(), &channels.unwrap_or_default()))
    }

    /// From the attributes of the kernel's answers.
    pub fn from(stations: &[Vec<u8>], channels: &[Vec<u8>]) -> Reading {
        let station = match stations {
            [only] => attribute(only, STATION).map(station),
            _ => None,
        };
        let channel = channels.iter().find_map(|body| {
            let survey = attribute(body, SURVEY)?;
            attribute(survey, IN_USE)?;
            Some((long(survey, TIME)?, long(survey, TIME_BUSY)?))
        });
        Reading { station, channel }
    }

    /// What happened between this reading and a later one.
    pub fn until(&self, end: &Reading) -> Wifi {
        let last = end.station.unwrap_or_default();
        let first = self.station.unwrap_or_default();
        // After a new association the counters begin again: nothing is known of the time before.
        let grown = |end: Option<u32>, begin: Option<u32>| end?.checked_sub(begin?).map(f64::from);
        let packets = grown(last.packets, first.packets).filter(|packets| *packets > 0.0);
        let per_packet = |count: Option<f64>| Some(count? / packets?);
        let busy = self.channel.zip(end.channel).and_then(|(first, last)| {
            let (time, busy) = (last.0.checked_sub(first.0)?, last.1.checked_sub(first.1)?);
            (time > 0).then(|| busy as f64 / time as f64)
        });
        Wifi {
            signal_dbm: last.signal_dbm,
            sent_mbps: last.sent_mbps,
            received_mbps: last.received_mbps,
            retries_per_packet: per_packet(grown(last.retries, first.retries)),
            failed_share: per_packet(grown(last.failed, first.failed)),
            channel_busy_share: busy,
        }
    }
}

fn station(from: &[u8]) -> Station {
    let rate = |kind| {
        let rate = attribute(from, kind)?;
        let units = number(rate, RATE_32)
            .or_else(|| Some(u16::from_ne_bytes(attribute(rate, RATE)?.try_into().ok()?).into()))?;
        Some(f64::from(units) / 10.0)
    };
    let signal = attribute(from, SIGNAL).and_then(|value| Some(i32::from(*value.first()? as i8)));
    Station {
        // Drivers without a calibrated receiver report 0.
        signal_dbm: signal.filter(|dbm| *dbm < 0),
        sent_mbps: rate(TX_RATE),
        received_mbps: rate(RX_RATE),
        packets: number(from, TX_PACKETS),
        retries: number(from, TX_RETRIES),
        failed: number(from, TX_FAILED),
    }
}

fn number(from: &[u8], kind: u16) -> Option<u32> {
    word(attribute(from, kind)?, 0)
}

fn long(from: &[u8], kind: u16) -> Option<u64> {
    Some(u64::from_ne_bytes(attribute(from, kind)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_station(packets: u32, retries: u32, rate: &Attributes) -> Vec<u8> {
        let station = Attributes::default()
            .with(SIGNAL, &[-56_i8 as u8])
            .with_nested(TX_RATE, rate)
            .with(TX_PACKETS, &packets.to_ne_bytes())
            .with(TX_RETRIES, &retries.to_ne_bytes())
            .with(TX_FAILED, &(packets / 100).to_ne_bytes());
        Attributes::default().with_nested(STATION, &station).bytes().to_vec()
    }

    fn of_channel(time_ms: u64, busy_ms: u64, in_use: bool) -> Vec<u8> {
        let mut survey = Attributes::default();
        if in_use {
            survey = survey.with(IN_USE, &[]);
        }
        survey = survey.with(TIME, &time_ms.to_ne_bytes()).with(TIME_BUSY, &busy_ms.to_ne_bytes());
        Attributes::default().with_nested(SURVEY, &survey).bytes().to_vec()
    }

    #[test]
    fn counters_are_of_the_measurement_and_the_signal_of_its_end() {
        let slow = Attributes::default().with(RATE, &866_u16.to_ne_bytes());
        let fast = Attributes::default().with(RATE_32, &24_019_u32.to_ne_bytes());
        let before = Reading::from(
            &[of_station(1_000, 500, &slow)],
            &[of_channel(9, 9, false), of_channel(100_000, 90_000, true)],
        );
        let after =
            Reading::from(&[of_station(3_000, 700, &fast)], &[of_channel(140_000, 100_000, true)]);
        let found = before.until(&after);
        assert_eq!((found.signal_dbm, found.sent_mbps), (Some(-56), Some(2_401.9)));
        assert_eq!(found.received_mbps, None);
        assert_eq!((found.retries_per_packet, found.failed_share), (Some(0.1), Some(0.01)));
        assert_eq!(found.channel_busy_share, Some(0.25));
        assert_eq!(before.until(&before).sent_mbps, Some(86.6));
    }

    #[test]
    fn nothing_is_said_of_several_stations_of_a_new_association_or_of_no_time() {
        let rate = Attributes::default().with(RATE, &10_u16.to_ne_bytes());
        let (one, later) = (of_station(1_000, 5, &rate), of_station(10, 1, &rate));
        let two = Reading::from(&[one.clone(), later.clone()], &[]);
        assert_eq!(two.until(&two), Wifi::default());
        let channel = [of_channel(5, 2, true)];
        let before = Reading::from(&[one], &channel);
        let again = before.until(&Reading::from(&[later], &channel));
        assert_eq!((again.retries_per_packet, again.failed_share), (None, None));
        assert_eq!(again.channel_busy_share, None);
    }
}
