//! `unbloat-modem serve` at a pseudo-terminal, with a modem that is played at its other end.

#[path = "drivers/fake.rs"]
mod fake;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fake::Modem;
use modem::contents::Block;
use modem::hdlc::frame;
use modem::layout::{self, CODES};
use modem::log_config::{Mask, Request};
use modem::mac::Report;
use modem::time::{ModemTime, Tti};
use modem::written;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, setsockopt, socket,
    sockopt,
};
use nix::sys::time::TimeVal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

const PROGRAM: &str = env!("CARGO_BIN_EXE_unbloat-modem");
/// For an event that has to come.
const TIMEOUT: Duration = Duration::from_secs(60);
const MODEM_NS: u64 = 1_300_000_000_000_000_000;

/// A program at a modem's port.
struct Testbed {
    modem: Modem,
    folder: PathBuf,
}

impl Testbed {
    /// A modem that logs 0xB0C0.
    fn new() -> Testbed {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("unbloat-serve-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Testbed { modem: Modem::new(before()), folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("modem.sock")
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(["serve", "--diag"]).arg(&self.modem.path);
        command.arg("--socket").arg(self.socket());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self) -> Child {
        self.command(Path::new(PROGRAM)).spawn().unwrap()
    }

    /// A program that reads the port, and its standard output.
    fn serving(&mut self) -> (Child, BufReader<std::process::ChildStdout>) {
        let mut child = self.start();
        self.until(|modem| modem.requests.len() == 2);
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.contains(": reports at "), "{line}");
        (child, out)
    }

    /// Plays the modem until something has happened.
    fn until(&mut self, mut happened: impl FnMut(&Modem) -> bool) {
        let begun = Instant::now();
        while !happened(&self.modem) {
            assert!(begun.elapsed() < TIMEOUT, "{:?}", self.modem.requests);
            self.modem.answer(Duration::from_millis(20));
        }
    }

    /// Plays the modem until a program ends.
    fn ended(&mut self, mut child: Child) -> Output {
        self.until(|_| child.try_wait().unwrap().is_some());
        child.wait_with_output().unwrap()
    }

    /// A record of transport blocks, closed now; each block one TTI after the other, the last one now.
    fn record(&mut self, version: u8, blocks: &[Block]) -> u64 {
        let closed_ns = now_ns() / 1_000_000 * 1_000_000;
        self.send(version, blocks, closed_ns);
        closed_ns
    }

    fn send(&mut self, version: u8, blocks: &[Block], closed_ns: u64) {
        let first_ms = closed_ns / 1_000_000 + 1 - blocks.len() as u64;
        let blocks: Vec<Block> =
            (first_ms..).zip(blocks).map(|(ms, block)| Block { tti: tti(ms), ..*block }).collect();
        // Layouts that are unknown have the fields of a known one here.
        let mut payload = written::blocks(5, &blocks);
        payload[5] = version;
        let at = ModemTime::from_ns(MODEM_NS + closed_ns);
        let message = written::message(layout::BLOCKS, at, &payload);
        self.modem.send(&frame(&message)).unwrap();
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn before() -> Mask {
    Mask::default().with([0xb0c0])
}

fn during() -> Mask {
    before().with(CODES.map(|(code, _)| code))
}

fn tti(ms: u64) -> Option<Tti> {
    Some(Tti { sfn: (ms / 10 % 1_024) as u16, subframe: (ms % 10) as u8 })
}

fn block(granted: u16, padding: u16, report: Option<Report>) -> Block {
    Block { tti: None, granted, padding, report }
}

fn now_ns() -> u64 {
    Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap()).as_nanos() as u64
}

/// A reader of the socket.
fn reader(path: &Path) -> OwnedFd {
    let fd =
        socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
    connect(fd.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
    setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(0, 50_000)).unwrap();
    fd
}

/// The next datagram, if one comes within the interval of a modem's records.
fn datagram(reader: &OwnedFd) -> Option<Vec<u8>> {
    let mut bytes = [0; 64];
    match recv(reader.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
        Ok(length) => Some(bytes[..length].to_vec()),
        Err(Errno::EAGAIN) => None,
        Err(errno) => panic!("{errno}"),
    }
}

fn terminate(child: &Child) {
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Its time apart.
fn ubtb(levels: Option<[u8; 4]>, granted: u32, padding: u32) -> Vec<u8> {
    let head = [b"UBTB\x01\0", &[levels.is_some().into(), 0][..]].concat();
    let tail = [granted, padding].map(u32::to_le_bytes).concat();
    [&head, &levels.unwrap_or_default()[..], &[0; 12], &tail].concat()
}

#[test]
fn blocks_become_datagrams_and_the_mask_is_put_back_on_sigterm() {
    let mut testbed = Testbed::new();
    let (child, mut out) = testbed.serving();
    assert_eq!(testbed.modem.requests, [Request::Read, Request::Set(during())]);
    let reader = reader(&testbed.socket());
    // Until clock and frame numbers are known there is nothing. Damage comes before each record, and messages of other
    // kinds.
    let mut closed_ns = Vec::new();
    let first = loop {
        testbed.modem.send(b"\x10 no frame of DIAG\x7e\x79\x01\x02\x7e").unwrap();
        let number = closed_ns.len() as u16;
        let reports = [None, Some(Report::Short(1, 9)), Some(Report::Long([1, 2, 3, 4]))];
        let blocks = reports.map(|report| block(1_000 + number, 20, report));
        closed_ns.push(testbed.record(5, &blocks));
        if let Some(first) = datagram(&reader) {
            break first;
        }
        assert!(closed_ns.len() < 1_000, "nothing is sent");
    };
    assert!(closed_ns.len() >= 5, "a clock is known after five records");
    let granted = u32::from_le_bytes(first[24..28].try_into().unwrap());
    let closed_ns = closed_ns[granted as usize - 1_000];
    let [second, third] = [(); 2].map(|()| datagram(&reader).expect("they come together"));
    let mut found = [first, second, third];
    let times_ns = found.each_mut().map(|one| u64::from_le_bytes(one[16..24].try_into().unwrap()));
    found.iter_mut().for_each(|one| one[16..24].fill(0));
    let expected =
        [None, Some([0, 9, 0, 0]), Some([1, 2, 3, 4])].map(|levels| ubtb(levels, granted, 20));
    assert_eq!(found, expected);
    // No earlier than they were, which only a delay of the way can make later, and before they came.
    assert!(times_ns[2] >= closed_ns && times_ns[2] <= now_ns(), "{times_ns:?} {closed_ns}");
    assert_eq!(times_ns[2] - times_ns[0], 2_000_000);
    terminate(&child);
    let done = testbed.ended(child);
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), ""));
    let mut last = String::new();
    out.read_to_string(&mut last).unwrap();
    let counted = |what: &str| {
        let (before, _) = last.split_once(what).unwrap_or_else(|| panic!("{last}"));
        before.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let records = counted(" records read");
    assert!(records >= 5);
    assert_eq!(counted(" damaged frames skipped"), 2 * records);
    assert_eq!(counted(" datagrams sent") % 3, 0, "whole records");
    assert_eq!(testbed.modem.requests.len(), 3);
    assert_eq!(testbed.modem.mask.codes(), [0xb0c0]);
    assert!(!testbed.socket().exists());
}

#[test]
fn an_unknown_layout_is_named_once_and_nothing_is_sent_for_it() {
    let mut testbed = Testbed::new();
    let (child, mut out) = testbed.serving();
    for _ in 0..8 {
        testbed.record(99, &[block(77, 0, Some(Report::Short(0, 1)))]);
        std::thread::sleep(Duration::from_millis(40));
    }
    terminate(&child);
    let done = testbed.ended(child);
    assert_eq!(done.status.code(), Some(0));
    let errors = text(&done.stderr);
    let expected = "unbloat-modem: 0xB064 version 99 is not used: unknown layout, begins with 0863";
    assert!(errors.starts_with(expected), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let mut last = String::new();
    out.read_to_string(&mut last).unwrap();
    assert!(last.contains("8 records read, 0 datagrams sent"), "{last}");
}

#[test]
fn a_mask_that_the_modem_does_not_take_is_an_error_and_is_put_back() {
    let mut testbed = Testbed::new();
    testbed.modem.set_status = 2;
    let child = testbed.start();
    testbed.until(|modem| modem.requests.len() == 2);
    testbed.modem.set_status = 0;
    let done = testbed.ended(child);
    assert_eq!(done.status.code(), Some(1));
    let errors = text(&done.stderr);
    let expected = "the log mask cannot be set: the modem answered with status 2\n";
    assert!(errors.ends_with(expected) && errors.lines().count() == 1, "{errors}");
    let Some(Request::Set(last)) = testbed.modem.requests.last() else { panic!() };
    assert_eq!((testbed.modem.requests.len(), last), (3, &before().over(&during())));
}

#[test]
fn a_modem_that_is_gone_or_does_not_answer_is_an_error_of_one_line() {
    let mut testbed = Testbed::new();
    let (child, _out) = testbed.serving();
    // Its far end is closed.
    testbed.modem = Modem::new(before());
    let done = child.wait_with_output().unwrap();
    let expected = ": the modem is gone; the log mask was not put back\n";
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).ends_with(expected), "{done:?}");

    let testbed = Testbed::new();
    let done = testbed.start().wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains(": no answer within 3 s"), "{done:?}");
    assert_eq!(text(&done.stderr).lines().count(), 1);
}

#[test]
fn a_port_that_another_program_has_is_refused_with_its_name() {
    let mut testbed = Testbed::new();
    let (child, _out) = testbed.serving();
    let expected = format!("in use by unbloat-modem (process {})\n", child.id());
    if nix::unistd::geteuid().is_root() {
        // A user that cannot see the first program's files, and that TIOCEXCL keeps out.
        fs::set_permissions(&testbed.modem.path, fs::Permissions::from_mode(0o666)).unwrap();
        // Where it was built, other users may have no access.
        let copy = testbed.folder.join("program");
        fs::copy(PROGRAM, &copy).unwrap();
        let done = testbed.command(&copy).uid(65_534).output().unwrap();
        assert_eq!(done.status.code(), Some(1));
        assert!(text(&done.stderr).ends_with(&expected), "{done:?}");
    }
    let done = testbed.start().wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).ends_with(&expected), "{done:?}");
    assert_eq!(text(&done.stderr).lines().count(), 1);
    assert_eq!(testbed.modem.requests.len(), 2, "the second asked the modem nothing");
    terminate(&child);
    testbed.ended(child);

    // A program that locks nothing: this one.
    let port =
        OpenOptions::new().read(true).write(true).open(&testbed.modem.path).expect("it is free");
    let done = testbed.start().wait_with_output().unwrap();
    let expected = format!("(process {})\n", std::process::id());
    assert!(text(&done.stderr).ends_with(&expected), "{done:?}");
    drop(port);
}

#[test]
fn what_is_no_serial_port_or_a_socket_in_use_is_refused() {
    let mut testbed = Testbed::new();
    let refused = |port: &str, socket: &Path| {
        let done = Command::new(PROGRAM)
            .args(["serve", "--diag", port, "--socket"])
            .arg(socket)
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        assert_eq!(text(&done.stderr).lines().count(), 1);
        text(&done.stderr).to_owned()
    };
    let file = testbed.folder.join("file");
    fs::write(&file, "kept").unwrap();
    assert!(refused("/nowhere/tty", &testbed.socket()).contains("No such file"));
    assert!(refused("/dev/null", &testbed.socket()).contains("not a serial port"));
    assert!(refused(file.to_str().unwrap(), &testbed.socket()).contains("not a serial port"));
    let port = testbed.modem.path.to_str().unwrap().to_owned();
    assert!(refused(&port, &file).contains("in use"), "another file is not replaced");
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");

    // A socket that a killed program has left is replaced, one that is listened at is not.
    let (mut child, _out) = testbed.serving();
    let other = Modem::new(before());
    assert!(refused(other.path.to_str().unwrap(), &testbed.socket()).contains("in use"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(testbed.socket().exists());
    assert_eq!(testbed.modem.mask, during(), "SIGKILL leaves the mask");
    testbed.modem.requests.clear();
    let (child, _out) = testbed.serving();
    terminate(&child);
    assert_eq!(testbed.ended(child).status.code(), Some(0));
}
