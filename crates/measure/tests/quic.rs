//! Connections by QUIC that are not of the session are closed and counted, QUIC probes that are not get no answer, and older programs
//! are named.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use measure::channel::Channel;
use measure::client::{self, Failure, Options};
use measure::clock::Clock;
use measure::quic::CONTROLS;
use measure::seen::{Phase, Transport};
use measure::tls::{self, Identity, Pin};
use measure::wire::data::{Direction, Opening};
use measure::wire::keys::{Key, proof, unhex};
use measure::wire::message::{Frames, ToClient, ToServer, frame};
use measure::wire::quic_probe::{self, LENGTH, QuicProbe, answered};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, RecvStream};
use rustls::{ClientConnection, ServerConnection};

/// The three seconds of both ends, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(20);

/// A server of the program, open for all, its address and pin.
fn server() -> (Child, SocketAddr, Pin) {
    let mut server = Command::new(env!("CARGO_BIN_EXE_unbloat-measure"))
        .args(["serve", "--open", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["unbloat", "measure", address, "--pin", pin] = words[..] else { panic!("{line}") };
    (server, address.parse().unwrap(), pin.parse().unwrap())
}

struct Control {
    channel: Channel,
    frames: Frames,
}

impl Control {
    fn next(&mut self) -> ToClient {
        loop {
            if let Some(message) = self.frames.take().unwrap() {
                return message;
            }
            self.channel.receive(&mut self.frames).unwrap();
        }
    }

    /// The answer to a request of QUIC, behind whatever reports came before.
    fn quic(&mut self, cc: Option<&str>) -> Option<String> {
        self.channel.send(&frame(&ToServer::Quic { cc: cc.map(str::to_owned) })).unwrap();
        loop {
            if let ToClient::Quic { why } = self.next() {
                return why;
            }
        }
    }
}

/// A session, its number and key.
fn session(to: SocketAddr, pin: Pin) -> (Control, u64, Key) {
    let tls = ClientConnection::new(tls::client(Some(pin)).unwrap(), to.ip().into()).unwrap();
    let socket = TcpStream::connect(to).unwrap();
    let channel = Channel::open(socket, tls.into(), Instant::now() + LIMIT, LIMIT).unwrap();
    channel.socket().set_read_timeout(Some(LIMIT)).unwrap();
    let binding = channel.binding().unwrap();
    let hello = ToServer::Hello { v: vec![1], proof: proof("", &binding) };
    channel.send(&frame(&hello)).unwrap();
    let mut control = Control { channel, frames: Frames::default() };
    let ToClient::Welcome { session, quic, .. } = control.next() else { panic!("no session") };
    assert_eq!(quic, CONTROLS);
    (control, u64::from_le_bytes(unhex(&session).unwrap()), Key::derived("", &binding))
}

fn endpoint(pin: Pin) -> Endpoint {
    let mut endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let tls = QuicClientConfig::try_from(tls::load_client(Some(pin)).unwrap()).unwrap();
    endpoint.set_default_client_config(ClientConfig::new(Arc::new(tls)));
    endpoint
}

/// What the server answers to the first bytes of a connection; how it closes it.
async fn answer(
    connection: &Connection,
    first: &[u8],
) -> Result<(u8, RecvStream), ConnectionError> {
    let (mut send, mut receive) = connection.open_bi().await?;
    let mut byte = [0];
    if send.write_all(first).await.is_ok() && receive.read_exact(&mut byte).await.is_ok() {
        return Ok((byte[0], receive));
    }
    Err(connection.closed().await)
}

fn is_refused(closed: &ConnectionError) -> bool {
    matches!(closed, ConnectionError::ApplicationClosed(why) if why.error_code == 1_u32.into())
}

#[test]
fn only_a_connection_with_the_sessions_key_carries_a_load_and_others_are_counted() {
    let (mut server, address, pin) = server();
    let (mut control, session, key) = session(address, pin);
    // Before the client asks, the port has no QUIC.
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime().block_on(async {
        let early = endpoint(pin).connect(address, "any").unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(300), early).await.is_err());
    });
    assert_eq!(control.quic(Some("bbr")), None);
    let opening = Opening { session, id: 7, direction: Direction::Down, cc: None };
    let begun = Instant::now();
    runtime().block_on(async {
        let own = endpoint(pin);
        let connect = async || own.connect(address, "any").unwrap().await.unwrap();
        let right = connect().await;
        let (byte, _load) = answer(&right, &opening.write(&key)).await.unwrap();
        assert_eq!(byte, 1);
        let another = Key::derived("", &[0; 32]);
        let closed = answer(&connect().await, &opening.write(&another)).await.unwrap_err();
        assert!(is_refused(&closed), "{closed}");
        let of_another = Opening { session: session ^ 1, ..opening.clone() };
        let closed = answer(&connect().await, &of_another.write(&key)).await.unwrap_err();
        assert!(is_refused(&closed), "{closed}");
        // One that says too little, and a key that is not pinned.
        let short = connect().await;
        let mut waiting = pin!(answer(&short, b"UNBDATA1"));
        let closed = loop {
            control.channel.send(&frame(&ToServer::Alive)).unwrap();
            if let Ok(closed) = tokio::time::timeout(LIMIT / 40, &mut waiting).await {
                break closed.unwrap_err();
            }
        };
        assert!(is_refused(&closed), "{closed}");
        assert!(begun.elapsed() > Duration::from_millis(2900));
        let other_pin = Identity::new().unwrap().pin.unwrap();
        assert!(endpoint(other_pin).connect(address, "any").unwrap().await.is_err());
        let info = loop {
            match control.next() {
                ToClient::Info(info) if info.streams.len() == 1 => break info,
                _ => {}
            }
        };
        let [stream] = info.streams.as_slice() else { panic!("{info:?}") };
        assert_eq!((stream.id, stream.cc.as_str()), (7, "bbr"));
        assert!(stream.quic.is_some() && stream.mss >= 1200 && stream.cwnd > 0);
        control.channel.close();
        right.closed().await;
    });
    // The session's end is printed, soon.
    let errors = server.stderr.take().unwrap();
    let mut line = String::new();
    BufReader::new(errors).read_line(&mut line).unwrap();
    assert!(line.ends_with(", 4 connections by QUIC refused\n"), "{line}");
    // And its port is free.
    assert!(UdpSocket::bind(address).is_ok());
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn a_quic_probe_of_the_session_is_answered_once_and_nothing_else_is_whether_or_not_a_load_uses_quic()
 {
    let (mut server, address, pin) = server();
    let (mut control, _, key) = session(address, pin);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address).unwrap();
    let said = |bytes: &[u8], wait: Duration| {
        socket.set_read_timeout(Some(wait)).unwrap();
        socket.send(bytes).unwrap();
        let mut buffer = [0; 2 * LENGTH];
        socket.recv(&mut buffer).ok().map(|length| buffer[..length].to_vec())
    };
    let none = Duration::from_millis(200);
    let probe = |number: u32| QuicProbe::new(number, [number as u8; quic_probe::RANDOM]);
    let written = |number: u32| probe(number).write(&key, &[5; LENGTH]);
    for first in [0, 10] {
        if first > 0 {
            assert_eq!(control.quic(None), None);
        }
        let answer = said(&written(first), LIMIT).unwrap();
        assert!(answer.len() < LENGTH / 30);
        assert_eq!(answered(&answer), Some(probe(first).ids));
        assert_eq!(said(&written(first), none), None, "a copy");
        let other_key = Key::derived("", &[0; 32]);
        assert_eq!(said(&probe(first + 1).write(&other_key, &[5; LENGTH]), none), None);
        assert_eq!(said(&written(first + 2)[..LENGTH - 1], none), None, "too short");
        // What every server of QUIC answers otherwise.
        let unsigned = [&written(first + 3)[..23], &[0; LENGTH]].concat();
        assert_eq!(said(&unsigned, none), None);
    }
    // At most ten a second, in one second or two, and two before.
    let answers = (100..150).filter(|n| said(&written(*n), none / 20).is_some()).count();
    assert!((8..=20).contains(&answers), "{answers}");
    control.channel.close();
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn an_older_server_without_quic_is_named_so() {
    let Identity { config, pin } = Identity::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap();
    let older = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let tls = ServerConnection::new(config).unwrap();
        let channel = Channel::open(socket, tls.into(), Instant::now() + LIMIT, LIMIT).unwrap();
        // As it was before QUIC.
        let json = br#"{"type":"welcome","session":"0000000000000001","cc":["cubic"],"limits":{"seconds":1,"bytes":2,"streams":3,"pps":4}}"#;
        channel.send(&[&(json.len() as u32).to_be_bytes(), &json[..]].concat()).unwrap();
        // Until the client leaves.
        let _ = channel.socket().read(&mut [0; 4096]);
    });
    let options = Options {
        host: host.to_string(),
        token: String::new(),
        pin,
        phases: vec![Phase::Down],
        streams: None,
        transports: vec![Transport::Tcp, Transport::Quic],
        cc: Vec::new(),
        max_bytes: 1,
        quick: true,
        probe: None,
    };
    let failure = client::measure(&options, Clock::default(), None, &mut |_| {}).unwrap_err();
    assert_eq!(
        failure,
        Failure::Refused("it has no QUIC: its unbloat measure is older".to_owned())
    );
    older.join().unwrap();
}
