//! The control connection against who is not the other side: another key, a host between, peers that stall.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use measure::channel::{Channel, ChannelError};
use measure::client::{self, Failure, Options};
use measure::clock::Clock;
use measure::seen::Phase;
use measure::server::{Server, Settings};
use measure::tls::{self, Identity, Pin};
use measure::wire::data::{Direction, Opening};
use measure::wire::keys::{Key, proof, unhex};
use measure::wire::message::{Frames, Limits, ToClient, ToServer, frame};
use rustls::{ClientConnection, ServerConnection};

const TOKEN: &str = "0123456789abcdef";
/// The three seconds of both ends, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(20);

/// A server on the loopback device, its address and its pin.
fn server() -> (SocketAddr, Pin) {
    let Identity { config: tls, pin } = Identity::new().unwrap();
    let limits = Limits { seconds: 60, bytes: 1_000_000, streams: 4, pps: 100 };
    let settings = Settings { token: TOKEN.to_owned(), limits, clock: Clock::default(), tls };
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), settings).unwrap();
    let address = server.address().unwrap();
    thread::spawn(move || server.run());
    (address, pin.unwrap())
}

/// A connection with TLS to the host that has the pin.
fn channel(to: SocketAddr, pin: Pin) -> Result<Channel, ChannelError> {
    let tls = ClientConnection::new(tls::client(Some(pin))?, to.ip().into())?;
    Channel::open(TcpStream::connect(to)?, tls.into(), Instant::now() + LIMIT, LIMIT)
}

fn said(channel: &Channel) -> ToClient {
    let mut frames = Frames::default();
    channel.socket().set_read_timeout(Some(LIMIT)).unwrap();
    loop {
        if let Some(message) = frames.take().unwrap() {
            return message;
        }
        channel.receive(&mut frames).unwrap();
    }
}

fn greeted(channel: &Channel) -> ToClient {
    let proof = proof(TOKEN, &channel.binding().unwrap());
    channel.send(&frame(&ToServer::Hello { v: vec![1], proof })).unwrap();
    said(channel)
}

fn options(host: SocketAddr, pin: Option<Pin>) -> Options {
    Options {
        host: host.to_string(),
        token: TOKEN.to_owned(),
        pin,
        phases: vec![Phase::Down],
        streams: Some(1),
        transports: Vec::new(),
        cc: Vec::new(),
        max_bytes: 100_000,
        quick: true,
        probe: None,
    }
}

fn failure(host: SocketAddr, pin: Option<Pin>) -> Failure {
    client::measure(&options(host, pin), Clock::default(), None, &mut |_| {}).unwrap_err()
}

/// A host between: it ends TLS with a key of its own, and passes on what it reads; its address, its pin, and how many bytes of
/// the client it has read.
fn between(to: SocketAddr, pin: Pin) -> (SocketAddr, Pin, thread::JoinHandle<usize>) {
    let Identity { config, pin: own } = Identity::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let relay = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let tls = ServerConnection::new(config).unwrap();
        let until = Instant::now() + LIMIT;
        let Ok(victim) = Channel::open(socket, tls.into(), until, LIMIT) else { return 0 };
        victim.socket().set_read_timeout(Some(LIMIT)).unwrap();
        let mut frames = Frames::default();
        while let Ok(()) = victim.receive(&mut frames) {
            if let Ok(Some(hello)) = frames.take::<ToServer>() {
                let passed_on = frame(&hello);
                let server = channel(to, pin).unwrap();
                server.send(&passed_on).unwrap();
                victim.send(&frame(&said(&server))).unwrap();
                return passed_on.len();
            }
        }
        0
    });
    (address, own.unwrap(), relay)
}

#[test]
fn the_right_pin_and_token_begin_a_session() {
    let (address, pin) = server();
    let channel = channel(address, pin).unwrap();
    let ToClient::Welcome { session, .. } = greeted(&channel) else { panic!("no session") };
    let session = u64::from_le_bytes(unhex(&session).unwrap());
    let opening = Opening { session, id: 1, direction: Direction::Up, cc: None };
    let binding = channel.binding().unwrap();
    // A stream is taken if the session's key has signed it.
    for (token, answer) in [(TOKEN, 1), ("another token", 0)] {
        let mut data = TcpStream::connect(address).unwrap();
        data.write_all(&opening.write(&Key::derived(token, &binding))).unwrap();
        assert_eq!(data.read(&mut [0]).unwrap(), answer);
    }
}

#[test]
fn a_server_with_another_key_learns_nothing() {
    let ((address, _), (_, pin)) = (server(), server());
    let Failure::Untrusted(why) = failure(address, Some(pin)) else { panic!("trusted") };
    assert!(why.contains("not that of --pin") && !why.contains('\n'), "{why}");
    let Failure::Untrusted(why) = failure(address, None) else { panic!("trusted") };
    assert!(why.contains("no certificate of a public authority") && !why.contains('\n'), "{why}");
}

#[test]
fn a_host_between_reads_nothing_and_a_proof_that_it_passes_on_proves_nothing() {
    let (address, pin) = server();
    let (other, _, relay) = between(address, pin);
    assert!(matches!(failure(other, Some(pin)), Failure::Untrusted(_)));
    assert_eq!(relay.join().unwrap(), 0);
    // A client that was given the pin of the host between.
    let (other, own, relay) = between(address, pin);
    assert_eq!(failure(other, Some(own)), Failure::Refused("wrong token".to_owned()));
    assert!(relay.join().unwrap() > 0);
}

#[test]
fn peers_that_stall_end_after_three_seconds_and_leave_room() {
    let (address, pin) = server();
    let begun = Instant::now();
    // The beginning of a record of 512 bytes, and silence.
    let stalled: Vec<TcpStream> = (0..31)
        .map(|n| {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(&[22, 3, 1, 2, 0, 1][..n % 7]).unwrap();
            socket
        })
        .collect();
    assert!(matches!(greeted(&channel(address, pin).unwrap()), ToClient::Welcome { .. }));
    // Meanwhile the server still waited for the others.
    let last = &stalled[30];
    last.set_nonblocking(true).unwrap();
    assert_eq!(last.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    last.set_nonblocking(false).unwrap();
    for mut socket in stalled {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let closed = socket.read(&mut [0]);
        assert!(
            matches!(&closed, Ok(0))
                || closed.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset)
        );
    }
    assert!(begun.elapsed() > Duration::from_millis(2900));
}

#[test]
fn a_client_gives_up_a_server_that_stalls() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (_, pin) = server();
    let begun = Instant::now();
    let why = failure(listener.local_addr().unwrap(), Some(pin));
    assert!(matches!(why, Failure::NoServer(_)), "{why:?}");
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(2900) && took < LIMIT, "{took:?}");
}

#[test]
fn long_messages_of_several_writers_arrive_whole_and_in_order() {
    let Identity { config, pin } = Identity::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let writer = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let tls = ServerConnection::new(config).unwrap();
        let channel =
            Arc::new(Channel::open(socket, tls.into(), Instant::now() + LIMIT, LIMIT).unwrap());
        thread::scope(|scope| {
            for who in 0..3 {
                let channel = &channel;
                scope.spawn(move || {
                    for n in 0..200 {
                        let why = format!("{who} {n} {}", "x".repeat(n * 300));
                        channel.send(&frame(&ToClient::Error { why })).unwrap();
                    }
                });
            }
        });
    });
    let channel = channel(address, pin.unwrap()).unwrap();
    let (mut frames, mut next) = (Frames::default(), [0; 3]);
    while next != [200; 3] {
        channel.receive(&mut frames).unwrap();
        while let Some(message) = frames.take().unwrap() {
            let ToClient::Error { why } = message else { panic!("another message") };
            let mut words = why.split(' ');
            let who: usize = words.next().unwrap().parse().unwrap();
            let n: usize = words.next().unwrap().parse().unwrap();
            assert_eq!((n, words.next().unwrap().len()), (next[who], n * 300));
            next[who] += 1;
        }
    }
    writer.join().unwrap();
}
