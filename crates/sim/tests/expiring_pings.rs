//! Pings with a TTL are answered by the router where they expire, as traceroute needs it.

mod made;

use made::ms;
use scenario::{Node, Probe, ProbeKind, Scenario};
use sim::{Captures, Options, Results};
use units::{Bytes, Duration, Rate};

/// Length of the answer: two headers, and header and eight bytes of the ping.
const ANSWER: u64 = 56;

/// A client, routers and a server in a row, 8 Mbit/s and 10 ms between neighbours; pings of 100 bytes with these TTLs.
fn row(nodes: usize, ttls: &[Option<u8>]) -> Scenario {
    let mut s = made::path(8.0, ms(20), 100, 2);
    let node = |n: usize| Node { name: format!("node{n}"), device: None, window: None };
    s.nodes = (0..nodes).map(node).collect();
    s.links = (1..nodes)
        .flat_map(|n| {
            [made::link(n - 1, n, 8.0, ms(10), 100), made::link(n, n - 1, 8.0, ms(10), 100)]
        })
        .collect();
    s.flows.clear();
    s.probes = ttls
        .iter()
        .enumerate()
        .map(|(i, ttl)| Probe {
            name: format!("probe{i}"),
            kind: ProbeKind::Ping,
            from: 0,
            to: nodes - 1,
            start: ms(10 * i as u64),
            every: vec![ms(500)],
            bytes: Bytes(100),
            class: 1,
            ttl: *ttl,
        })
        .collect();
    s
}

fn first_rtt(results: &Results, probe: usize) -> Option<Duration> {
    results.probes.iter().find(|row| row.probe == probe).and_then(|row| row.rtt)
}

fn time(hops: u64, bytes: u64) -> Duration {
    Duration(hops * (ms(10).0 + (Bytes(bytes) / Rate(8_000_000)).0))
}

#[test]
fn the_router_at_each_hop_answers_and_beyond_the_last_the_server_does() {
    let ttls = [Some(1), Some(2), Some(3), Some(9), None];
    let results = made::run(&row(4, &ttls));
    for (probe, hops) in [(0, 1), (1, 2)] {
        let expected = time(hops, 100) + time(hops, ANSWER);
        assert_eq!(first_rtt(&results, probe), Some(expected), "TTL {hops}");
    }
    for probe in 2..5 {
        assert_eq!(first_rtt(&results, probe), Some(time(3, 100) + time(3, 100)), "{ttls:?}");
    }
    assert!(results.probes.iter().all(|row| !row.lost));
}

#[test]
fn a_router_without_a_link_back_answers_by_way_of_the_server() {
    let mut s = row(3, &[Some(1), None]);
    // The server answers by another way, and the router has none.
    s.links.retain(|link| link.to != 0 && (link.from, link.to) != (2, 1));
    s.links.push(made::link(2, 0, 8.0, ms(10), 100));
    s.links.retain(|link| link.from != 1 || link.to == 2);
    let results = made::run(&s);
    assert_eq!(first_rtt(&results, 1), Some(time(2, 100) + time(1, 100)));
    assert_eq!(
        first_rtt(&results, 0),
        Some(time(1, 100) + time(2, ANSWER)),
        "by way of the server"
    );
}

#[test]
fn a_capture_shows_the_ttl_that_is_left_and_what_the_router_quotes() {
    let s = row(4, &[Some(2)]);
    let dir = std::env::temp_dir().join(format!("unbloat-expiring-{}", std::process::id()));
    let captures = Captures::create(&s, &dir).unwrap();
    let (_, paths) =
        sim::run_with_captures(&s, Options::default(), captures, &mut |_| true).unwrap();
    let packets = |node: usize| {
        let mut reader = capture::open(&paths[node]).unwrap();
        let mut found: Vec<Vec<u8>> = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            found.push(frame.data.to_vec());
        }
        found
    };
    let (client, router) = (packets(0), packets(1));
    std::fs::remove_dir_all(&dir).unwrap();
    let address = |node: usize| scenario::address(node).octets().to_vec();
    let (ping, answer) = (&client[0], &client[1]);
    assert_eq!((ping[8], router[0][8]), (2, 1), "TTL at the client and one hop on");
    assert_eq!((answer[12..16].to_vec(), answer[16..20].to_vec()), (address(2), address(0)));
    assert_eq!((answer[9], answer[20], answer[21]), (1, 11, 0), "ICMP time exceeded in transit");
    let quoted = &answer[28..];
    assert_eq!((quoted[12..16].to_vec(), quoted[16..20].to_vec()), (address(0), address(3)));
    assert_eq!(quoted[4..6], ping[4..6], "the identification of the ping");
    assert_eq!(quoted[20..28], ping[20..28], "its first eight bytes");
    for header in [&answer[..20], &answer[20..], &quoted[..20]] {
        let words = header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
        assert_eq!((words & 0xffff) + (words >> 16), 0xffff, "a right checksum");
    }
}
