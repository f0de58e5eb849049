//! Observes the traffic in a capture: the analysis of `unbloat analyze`, as seen from the host at
//! which it was taken.
//!
//! signal: connections, flows and findings · model: the host is the one that the user names, else
//! the end with one of this host's addresses, else the end near which the capture was taken
//! (`vantage`), by bytes. A connection without such an end is forwarded, and its end with a private
//! address is inside. A transfer without that is left out · action: [`Observation`].

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use capture::Addr;
use flow::series::rows::{Connection, Flow as Row, Protocol, RttMethod, Sample, Vantage};
use flow::{AnalyzeError, Options, Report, Select, analyze_files};
use units::{Duration, Limit};

use super::host::Host;
use super::observation::{CaptureFinding, Flow, Observation, Place, Way, swing};

/// Shortest time whose rates are compared.
const RATE_OVER: Duration = Duration::from_secs(1);

/// Rule of `unbloat analyze` for a flow in another flow's queue.
const OTHER_FLOW_RULE: &str = "rtt-inflation-other-flow";

/// Reads and analyses captures. `given`: addresses of the host to judge, where the user names them. `progress` gets the
/// share that is done.
pub fn observe(
    paths: &[PathBuf],
    host: &Host,
    given: &[IpAddr],
    mut progress: impl FnMut(f64),
) -> Result<Observation, AnalyzeError> {
    // The bins of `unbloat analyze`: findings depend on them, and both commands have to say the same.
    let options = Options { samples: Select::All, ..Options::default() };
    let report = analyze_files(paths, options, |done, total| {
        progress(if total > 0 { done as f64 / total as f64 } else { 0.0 });
        true
    })?;
    Ok(observation(&report, host, given))
}

/// Goodput of bins that last `RATE_OVER` together; an incomplete rest at the end is one, too.
fn by_second(samples: &[&Sample]) -> Vec<f64> {
    let (mut rates, mut bytes, mut span) = (Vec::new(), 0, Duration::ZERO);
    for (i, sample) in samples.iter().enumerate() {
        bytes += sample.delivered.0;
        span += sample.span;
        if span >= RATE_OVER || i + 1 == samples.len() {
            rates.push(bytes as f64 * 8.0 / span.as_secs_f64().max(1e-3));
            (bytes, span) = (0, Duration::ZERO);
        }
    }
    rates
}

fn ip(address: Addr) -> IpAddr {
    let v6 = Ipv6Addr::from(address.0);
    v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
}

/// Addresses of people's own networks: RFC 1918, RFC 6598, RFC 4193, link-local.
fn private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_private()
                || v4.is_link_local()
                || (v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64)
        }
        IpAddr::V6(v6) => {
            v6.segments()[0] & 0xfe00 == 0xfc00 || v6.segments()[0] & 0xffc0 == 0xfe80
        }
    }
}

/// The addresses of the host at which the capture was taken, and whose they are.
fn taken_at(report: &Report, host: &Host, given: &[IpAddr]) -> (Vec<IpAddr>, Place) {
    if !given.is_empty() {
        let here = given.iter().any(|address| host.owns(*address));
        let place = if here { Place::Here } else { Place::Elsewhere(given.to_vec()) };
        return (given.to_vec(), place);
    }
    let mut votes: HashMap<IpAddr, u64> = HashMap::new();
    let mut own = Vec::new();
    for connection in report.analysis.connections.iter().filter(|c| c.protocol == Protocol::Tcp) {
        let (a, b) = (ip(connection.a_addr), ip(connection.b_addr));
        own.extend([a, b].into_iter().filter(|end| host.owns(*end) && !end.is_loopback()));
        let near = match connection.vantage {
            Vantage::Sender => a,
            Vantage::Receiver => b,
            Vantage::Middle | Vantage::Unknown => continue,
        };
        *votes.entry(near).or_default() += connection.bytes.0;
    }
    own.sort();
    own.dedup();
    if !own.is_empty() {
        return (own, Place::Here);
    }
    // One of each family: servers on a busy host's path get votes by chance.
    let best = |v6: bool| {
        votes
            .iter()
            .filter(|(end, _)| end.is_ipv6() == v6)
            .max_by_key(|(end, bytes)| (**bytes, **end))
    };
    let near: Vec<IpAddr> =
        [best(false), best(true)].into_iter().flatten().map(|(end, _)| *end).collect();
    let place = if near.is_empty() { Place::Unknown } else { Place::Elsewhere(near.clone()) };
    (near, place)
}

/// The direction of data from `from` to `to`, and whether it is forwarded; `None`: unknown.
fn way(from: IpAddr, to: IpAddr, hosts: &[IpAddr]) -> Option<(Way, bool)> {
    match (hosts.contains(&from), hosts.contains(&to)) {
        (true, false) => return Some((Way::Upload, false)),
        (false, true) => return Some((Way::Download, false)),
        // Both ends are the host: nothing goes over an uplink.
        (true, true) => return None,
        (false, false) => {}
    }
    match (private(from), private(to)) {
        (true, false) => Some((Way::Upload, true)),
        (false, true) => Some((Way::Download, true)),
        _ => None,
    }
}

fn observation(report: &Report, host: &Host, given: &[IpAddr]) -> Observation {
    let analysis = &report.analysis;
    let (hosts, place) = taken_at(report, host, given);
    let mut minima: HashMap<(IpAddr, IpAddr), f64> = HashMap::new();
    let ends = |connection: &Connection| (ip(connection.a_addr), ip(connection.b_addr));
    let connection = |row: &Row| analysis.connections.get(row.id as usize / 2);
    let pair = |a: IpAddr, b: IpAddr| (a.min(b), a.max(b));
    for row in &analysis.flows {
        let Some((a, b)) = connection(row).map(ends) else { continue };
        for rtt in [row.rtt_ms.map(|q| q.min), row.initial_rtt_ms].into_iter().flatten() {
            let minimum = minima.entry(pair(a, b)).or_insert(rtt);
            *minimum = minimum.min(rtt);
        }
    }
    let mut series: HashMap<u32, Vec<&Sample>> = HashMap::new();
    for sample in &analysis.samples {
        series.entry(sample.flow).or_default().push(sample);
    }
    let (mut flows, mut undecided) = (Vec::new(), 0);
    for row in analysis.flows.iter().filter(|row| row.data_packets > 0) {
        let Some(connection) = connection(row).filter(|c| c.protocol == Protocol::Tcp) else {
            continue;
        };
        let (a, b) = (
            (ip(connection.a_addr), connection.a_port),
            (ip(connection.b_addr), connection.b_port),
        );
        let (from, to) = if row.id % 2 == 0 { (a, b) } else { (b, a) };
        let Some((way, forwarded)) = way(from.0, to.0, &hosts) else {
            undecided += usize::from(row.bytes.0 >= super::observation::MIN_BYTES);
            continue;
        };
        let (local, remote) = if way == Way::Upload { (from, to) } else { (to, from) };
        let rates = series.get(&row.id).map(|samples| by_second(samples)).unwrap_or_default();
        let loaded = row.loaded_rtt_ms;
        flows.push(Flow {
            forwarded,
            bytes: row.bytes.0,
            lasted_s: row.active.as_secs_f64(),
            rate_bps: row.goodput.map_or(0.0, |rate| rate.0 as f64),
            swing: swing(&rates),
            rtt_min_ms: minima.get(&pair(a.0, b.0)).copied(),
            rtt_ms: loaded.map(|q| (q.p50, q.p95)),
            samples: loaded.map_or(0, |q| q.count),
            rtt_by_window: row.rtt_method == RttMethod::Window,
            mss_bytes: u64::from(row.mss.max(1)),
            window_bytes: row.rwnd_max.map(|bytes| bytes.0),
            window_share: row.limit_share(Limit::ReceiveWindow).unwrap_or(0.0),
            congestion: row
                .congestion_control
                .as_ref()
                .filter(|_| way == Way::Upload)
                .map(|found| found.control.name().to_owned()),
            unread_share: row.limit_share(Limit::ZeroWindow).unwrap_or(0.0),
            in_others_queue: analysis
                .findings
                .iter()
                .any(|f| f.flow == Some(row.id) && f.rule == OTHER_FLOW_RULE),
            ..Flow::new(way, local, remote)
        });
    }
    flows.sort_by_key(|flow| (std::cmp::Reverse(flow.bytes), flow.local, flow.remote));
    let span_s = analysis.facts.end.since(analysis.facts.start).as_secs_f64();
    let names: Vec<String> = report
        .files
        .iter()
        .map(|path| {
            path.file_name()
                .map_or_else(|| "-".to_owned(), |name| name.to_string_lossy().into_owned())
        })
        .collect();
    Observation {
        source: "capture",
        words: format!("{}, {span_s:.0} s", names.join(", ")),
        span_s,
        connections: analysis.connections.iter().filter(|c| c.protocol == Protocol::Tcp).count(),
        flows,
        carried: None,
        place,
        undecided,
        findings: analysis
            .findings
            .iter()
            .map(|f| CaptureFinding {
                rule: f.rule,
                severity: f.severity.name(),
                text: f.text.clone(),
            })
            .collect(),
        warnings: report.warnings.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_goes_up_or_down_by_the_host_and_else_by_private_addresses() {
        let of = |text: &str| text.parse::<IpAddr>().unwrap();
        let (phone, server, inside) = (of("198.51.100.7"), of("203.0.113.5"), of("192.168.1.9"));
        assert_eq!(way(phone, server, &[phone]), Some((Way::Upload, false)));
        assert_eq!(way(server, phone, &[phone]), Some((Way::Download, false)));
        assert_eq!(way(server, inside, &[]), Some((Way::Download, true)));
        assert_eq!(way(inside, server, &[phone]), Some((Way::Upload, true)));
        assert_eq!(way(phone, server, &[]), None);
        assert_eq!(way(of("100.64.0.9"), server, &[]), Some((Way::Upload, true)));
        assert_eq!(way(of("fd00::1"), of("2001:db8::1"), &[]), Some((Way::Upload, true)));
    }
}
