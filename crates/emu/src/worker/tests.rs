//! A worker between two sockets in place of TUN devices: the same loop, without rights.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::sys::eventfd::EfdFlags;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::*;
use crate::clock::monotonic_ns;
use crate::replay::{Replayed, replay};
use crate::report::Reporter;
use crate::testing::{datagram, scenario};

/// Both ends of a socket that keeps the borders of packets: ours, and the worker's.
fn device() -> (OwnedFd, Arc<Tun>) {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).expect("a pair");
    (ours, Arc::new(Tun::stand_in(theirs).expect("a device")))
}

/// A run that is not over by now fails.
const TIMEOUT_NS: u64 = 20_000_000_000;

/// A packet that came out, and when.
type Delivered = (u64, Vec<u8>);

struct Ran {
    finished: Finished,
    live: Arc<Live>,
    sent_ns: u64,
    delivered: Vec<Delivered>,
    dir: PathBuf,
    scenario: Scenario,
}

/// Sends all packets at once over `up`, and collects what comes out until `fates` of them have
/// reached the far end or were dropped.
fn run(name: &str, up: &str, packets: &[Vec<u8>], fates: u64, reads: bool) -> Ran {
    let dir = std::env::temp_dir().join(format!("unbloat-worker-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory of our own");
    let mut scenario = scenario(up);
    // On a busy machine the worker may read its first packet late.
    scenario.duration = Duration::from_secs(60);
    let event = || Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("an eventfd"));
    let stop = event();
    let reporter = Reporter::start(&dir, &["up".to_owned()], event()).expect("files");
    let ((into, input), (out, output)) = (device(), device());
    let live = Arc::new(Live::default());
    let worker = Worker::new(Parts {
        scenario: &scenario,
        link: 0,
        input,
        output,
        offload: false,
        clock: Clock { zero_ns: monotonic_ns() },
        stop: stop.clone(),
        outbox: reporter.outbox(),
        telemetry: None,
        prober: None,
        listeners: Vec::new(),
        live: live.clone(),
    });
    let out = if reads {
        Some(out)
    } else {
        drop(out);
        None
    };
    let mut delivered = Vec::new();
    let (finished, sent_ns) = std::thread::scope(|scope| {
        let thread = scope.spawn(|| worker.run());
        let sent_ns = monotonic_ns();
        for packet in packets {
            let read = [&[0; HEADER][..], packet].concat();
            nix::unistd::write(&into, &read).expect("the socket has room");
        }
        let mut buffer = [0; 2_048];
        loop {
            // Counters are published after packets were written: those are all there to be read.
            let over = read(&live.arrived) + read(&live.dropped) >= fates;
            while let Some(Ok(length)) = out.as_ref().map(|out| nix::unistd::read(out, &mut buffer))
            {
                delivered.push((monotonic_ns(), buffer[HEADER..length].to_vec()));
            }
            if over || monotonic_ns() > sent_ns + TIMEOUT_NS {
                break;
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        stop.write(1).expect("a counter");
        let (finished, outcome) = thread.join().expect("it does not panic");
        outcome.expect("no device went away");
        (finished, sent_ns)
    });
    reporter.finish().expect("all is written");
    Ran { finished, live, sent_ns, delivered, dir, scenario }
}

fn read(value: &AtomicU64) -> u64 {
    value.load(Ordering::Relaxed)
}

#[test]
fn packets_come_out_as_they_went_in_none_early_and_none_unaccounted_for() {
    // 1 ms each, and four may wait.
    let up = "rate = \"8 Mbit/s\"\ndelay = \"5 ms\"\nqueue = { kind = \"droptail\", limit = \"4 packets\" }";
    let packets: Vec<_> = (0..20).map(|n| datagram(n, 1_000)).collect();
    let ran = run("plain", up, &packets, 20, true);
    let (live, delivered) = (&ran.live, &ran.delivered);
    assert_eq!((read(&live.offered), read(&live.lost), read(&live.refused)), (20, 0, 0));
    assert_eq!(read(&live.arrived), delivered.len() as u64);
    assert_eq!(read(&live.bytes), 1_000 * delivered.len() as u64);
    assert_eq!(read(&live.arrived) + read(&live.dropped) + ran.finished.stored, 20);
    assert!(delivered.len() >= 5, "one on the link and four that wait: {}", delivered.len());
    let numbers: Vec<u16> =
        delivered.iter().map(|(_, p)| u16::from_be_bytes([p[28], p[29]])).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    for (place, (at, packet)) in delivered.iter().enumerate() {
        let number = u16::from_be_bytes([packet[28], packet[29]]);
        assert_eq!(packet, &packets[usize::from(number)], "no byte is changed");
        let due = ran.sent_ns + 5_000_000 + 1_000_000 * (place as u64 + 1);
        assert!(*at >= due, "packet {place} is {} ns early", due - at);
    }
    let losses = std::fs::read_to_string(ran.dir.join("losses.jsonl")).expect("written");
    assert_eq!(losses.lines().count() as u64, read(&live.dropped));
    let log = std::fs::read(ran.dir.join("up.decisions")).expect("written");
    let replayed = replay(&ran.scenario, &log).expect("the same decisions");
    assert_eq!(replayed, Replayed { arrivals: 20, decisions: 20 });
    assert_eq!((ran.finished.early, ran.finished.oversize, ran.finished.notes_lost), (0, 0, 0));
    std::fs::remove_dir_all(&ran.dir).expect("ours");
}

#[test]
fn packets_that_the_far_end_refuses_are_counted_and_written_down() {
    let up = "rate = \"80 Mbit/s\"\ndelay = \"1 ms\"";
    let packets: Vec<_> = (0..5).map(|n| datagram(n, 200)).collect();
    let ran = run("refused", up, &packets, 5, false);
    assert_eq!(read(&ran.live.refused), 5);
    assert_eq!((read(&ran.live.dropped), ran.finished.stored), (0, 0));
    let losses = std::fs::read_to_string(ran.dir.join("losses.jsonl")).expect("written");
    assert!(losses.lines().all(|line| line.contains("\"undeliverable\"")), "{losses}");
    assert_eq!(losses.lines().count(), 5);
    let log = std::fs::read(ran.dir.join("up.decisions")).expect("written");
    assert_eq!(replay(&ran.scenario, &log).expect("all alike").arrivals, 5);
    std::fs::remove_dir_all(&ran.dir).expect("ours");
}

#[test]
fn a_packet_that_no_slot_takes_is_counted_and_not_queued() {
    let up = "rate = \"80 Mbit/s\"\ndelay = \"1 ms\"";
    let ran = run("oversize", up, &[datagram(0, 3_000), datagram(1, 100)], 1, true);
    assert_eq!((ran.finished.oversize, read(&ran.live.offered)), (1, 1));
    assert_eq!(ran.delivered.len(), 1);
    std::fs::remove_dir_all(&ran.dir).expect("ours");
}

#[test]
fn users_are_found_by_addresses_and_strangers_are_one_user() {
    let scenario = scenario("rate = \"8 Mbit/s\"\ndelay = \"5 ms\"");
    let users = Users::new(&scenario);
    let mut packet = datagram(0, 100);
    // Client and server take part in one flow each: the one named first is the user, both ways.
    assert_eq!(users.of(&view(&packet)), 0);
    packet[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    assert_eq!(users.of(&view(&packet)), 0);
    packet[16..20].copy_from_slice(&[10, 0, 0, 3]);
    assert_eq!(users.of(&view(&packet)), u16::MAX, "there is no third node");
    packet[16..20].copy_from_slice(&[192, 0, 2, 1]);
    assert_eq!(users.of(&view(&packet)), u16::MAX);
}
