//! Requests that are slow, many, or missing: no client delays the agent.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use super::*;

const PAGE: &str = "unbloat_uptime_seconds 1\n# EOF\n";

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("ub-metrics-{}-{name}.sock", std::process::id()))
}

fn at(listen: Listen) -> Exporter {
    Exporter::listen(&Settings { listen, flows: 0 }).unwrap()
}

fn by_port() -> (Exporter, SocketAddr) {
    let exporter = at("127.0.0.1:0".parse().unwrap());
    let Listener::Loopback(listener) = &exporter.listener else { panic!("asked for a port") };
    let address = listener.local_addr().unwrap();
    (exporter, address)
}

/// The whole answer, while the exporter is asked to serve again and again.
fn answer_of(exporter: &mut Exporter, stream: &mut (impl Read + Write), request: &[u8]) -> String {
    stream.write_all(request).unwrap();
    let (mut received, mut buffer) = (Vec::new(), [0; 4_096]);
    for _ in 0..1_000 {
        exporter.serve(|_| PAGE.to_owned());
        match stream.read(&mut buffer) {
            Ok(0) => return String::from_utf8(received).unwrap(),
            Ok(n) => received.extend_from_slice(&buffer[..n]),
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("no end of {}", String::from_utf8_lossy(&received));
}

fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

const ASK: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn only_loopback_addresses_and_absolute_paths_are_listened_on() {
    for good in
        ["127.0.0.1:9469", "[::1]:9469", "127.9.9.9:1", "unix:/run/unbloat-agent/metrics.sock"]
    {
        assert!(good.parse::<Listen>().is_ok(), "{good}");
    }
    let long = format!("unix:/{}", "a".repeat(108));
    for bad in [
        "",
        "9469",
        ":9469",
        "0.0.0.0:9469",
        "[::]:9469",
        "192.0.2.1:9469",
        "[::ffff:127.0.0.1]:9469",
        "localhost:9469",
        "unix:metrics.sock",
        &long,
    ] {
        assert!(bad.parse::<Listen>().is_err(), "{bad}");
    }
}

#[test]
fn the_unix_socket_is_its_owners_alone_and_goes_with_its_exporter() {
    let path = place("mode");
    drop(UnixListener::bind(&path).unwrap()); // as a dead agent leaves it
    let mut exporter = at(Listen::Unix(path.clone()));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_nonblocking(true).unwrap();
    let answer = answer_of(&mut exporter, &mut stream, ASK);
    assert!(answer.starts_with(
        "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"
    ));
    assert!(answer.ends_with("# EOF\n"));
    drop(exporter);
    assert!(!path.exists());
}

#[test]
fn what_is_no_socket_is_not_replaced() {
    let path = place("file");
    std::fs::write(&path, "precious").unwrap();
    assert!(Exporter::listen(&Settings { listen: Listen::Unix(path.clone()), flows: 0 }).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn silent_clients_and_floods_do_not_delay_others() {
    let (mut exporter, address) = by_port();
    let silent: Vec<TcpStream> = (0..100).map(|_| connected(address)).collect();
    for _ in 0..50 {
        exporter.serve(|_| PAGE.to_owned());
    }
    assert_eq!(exporter.clients.len(), MAX_CLIENTS);
    assert!(answer_of(&mut exporter, &mut connected(address), ASK).ends_with("# EOF\n"));
    drop(silent);
    exporter.serve(|_| PAGE.to_owned());
    assert!(exporter.clients.is_empty());
}

#[test]
fn a_page_is_made_once_for_all_who_ask_within_half_a_second() {
    let (mut exporter, address) = by_port();
    let mut made = 0;
    let mut clients: Vec<TcpStream> = (0..6).map(|_| connected(address)).collect();
    for client in &mut clients {
        client.write_all(ASK).unwrap();
    }
    let begun = Instant::now();
    for _ in 0..20 {
        exporter.serve(|_| {
            made += 1;
            PAGE.to_owned()
        });
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(made <= 1 + (begun.elapsed().as_millis() / CACHE_TTL.as_millis()) as u32, "{made}");
}

#[test]
fn requests_that_are_too_long_or_trickle_are_answered_or_dropped() {
    let (mut exporter, address) = by_port();
    let long = [&b"GET /metrics HTTP/1.1\r\nX: "[..], &[b'a'; 20_000]].concat();
    assert!(answer_of(&mut exporter, &mut connected(address), &long).starts_with("HTTP/1.1 431 "));
    assert!(
        answer_of(&mut exporter, &mut connected(address), b"GET / HTTP/1.0\r\n\r\n")
            .starts_with("HTTP/1.1 404 ")
    );
    let mut slow = connected(address);
    slow.write_all(b"GET /met").unwrap();
    for _ in 0..20 {
        exporter.serve(|_| PAGE.to_owned());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(exporter.clients.iter().filter(|c| matches!(c.stage, Stage::Reading(_))).count(), 1);
    for client in &mut exporter.clients {
        client.until = Instant::now();
    }
    exporter.serve(|_| PAGE.to_owned());
    assert!(exporter.clients.is_empty(), "its time is over");
}
