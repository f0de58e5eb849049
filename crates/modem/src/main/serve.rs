//! `unbloat-modem serve`: the DIAG port of a modem in, reports for `unbloat-agent` out.
//!
//! The modem's log mask is read first, set for the time of the program, and put back however the program ends, except
//! by SIGKILL. Nothing is stored.

mod port;
mod socket;

use std::fmt::Arguments;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use modem::hdlc::{Deframer, FLAG, frame};
use modem::layout::{self, CODES};
use modem::log_config::{Mask, Refusal, Request};
use modem::message::Record;
use modem::reports::{Out, Reports};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::time::{ClockId, clock_gettime};

use self::port::{Port, PortError};
use self::socket::Socket;
use super::End;
use super::arguments::ServeArgs;

/// A modem answers within milliseconds, behind what it has logged already.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of one read: more than the kernel has room for between two.
const PIECE: usize = 64 << 10;

/// Why it ends.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("no answer within {} s: is this the modem's DIAG port?", ANSWER_TIMEOUT.as_secs())]
    NoAnswer,
    #[error("{0}: {1}")]
    Refused(&'static str, Refusal),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads a port until a signal ends it.
pub(crate) fn serve(args: &ServeArgs) -> Result<(), End> {
    let name = args.diag.display().to_string();
    let failed = |error: ServeError| End(1, format!("{name}: {error}"));
    let signals = signals().map_err(|e| failed(e.into()))?;
    let port = Port::open(&args.diag).map_err(|e| failed(e.into()))?;
    let socket = Socket::listen(&args.socket)
        .map_err(|e| End(1, format!("{}: {e}", args.socket.display())))?;
    let mut session = Session {
        port,
        socket,
        signals,
        deframer: Deframer::default(),
        reports: Reports::default(),
        count: Count::default(),
    };
    let Some(before) = session.read_mask().map_err(failed)? else { return Ok(()) };
    let during = before.with(CODES.map(|(code, _)| code));
    let outcome = session.run(&during, || {
        say(io::stdout(), format_args!("{name}: reports at {}", args.socket.display()));
    });
    let restored = session.put_back(&before.over(&during));
    say(io::stdout(), format_args!("{name}: {}", session.count.text()));
    match (outcome, restored) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(error), Ok(())) => Err(failed(error)),
        (Ok(()), Err(error)) => {
            Err(End(1, format!("{name}: the log mask was not put back: {error}")))
        }
        (Err(error), Err(_)) => {
            Err(End(1, format!("{name}: {error}; the log mask was not put back")))
        }
    }
}

/// SIGTERM, SIGINT and SIGHUP as a descriptor.
fn signals() -> io::Result<SignalFd> {
    let mask = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    mask.thread_block()?;
    Ok(SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

struct Session {
    port: Port,
    socket: Socket,
    signals: SignalFd,
    deframer: Deframer,
    reports: Reports,
    count: Count,
}

/// What happened on the port.
#[derive(Default)]
struct Count {
    records: u64,
    reports: u64,
    damaged: u64,
}

impl Count {
    fn text(&self) -> String {
        let Count { records, reports, damaged } = self;
        format!(
            "{records} records read, {reports} datagrams sent, {damaged} damaged frames skipped"
        )
    }
}

/// What a wait ended with.
enum Woken {
    Signal,
    Timeout,
    /// Messages that are no records.
    Messages(Vec<Vec<u8>>),
}

impl Session {
    /// The mask of the modem as it is; `None`: a signal came.
    fn read_mask(&mut self) -> Result<Option<Mask>, ServeError> {
        // Ends what another program has left half written.
        self.port.write(&[FLAG])?;
        self.ask(&Request::Read, "the log mask cannot be read", true)
    }

    /// Sets the mask and carries reports until a signal comes.
    fn run(&mut self, during: &Mask, ready: impl FnOnce()) -> Result<(), ServeError> {
        let set = Request::Set(during.clone());
        if self.ask(&set, "the log mask cannot be set", true)?.is_none() {
            return Ok(());
        }
        ready();
        loop {
            if let Woken::Signal = self.wait(None, true)? {
                return Ok(());
            }
        }
    }

    /// Sets the mask as it was. Signals that ask for an end have been heeded already.
    fn put_back(&mut self, before: &Mask) -> Result<(), ServeError> {
        let set = Request::Set(before.clone());
        self.ask(&set, "the log mask cannot be set", false).map(drop)
    }

    /// Sends a request and waits for its answer; `None`: a signal came.
    fn ask(
        &mut self,
        request: &Request,
        what: &'static str,
        heeds_signals: bool,
    ) -> Result<Option<Mask>, ServeError> {
        self.port.write(&frame(&request.message()))?;
        let until = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match self.wait(Some(until), heeds_signals)? {
                Woken::Signal => return Ok(None),
                Woken::Timeout => return Err(ServeError::NoAnswer),
                Woken::Messages(messages) => {
                    let answer = messages.iter().find_map(|message| request.answered(message));
                    if let Some(answer) = answer {
                        return answer.map(Some).map_err(|why| ServeError::Refused(what, why));
                    }
                }
            }
        }
    }

    /// Waits for bytes and takes what they complete.
    fn wait(&mut self, until: Option<Instant>, heeds_signals: bool) -> Result<Woken, ServeError> {
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            let left = until.saturating_duration_since(Instant::now());
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let mut waiting = [
            PollFd::new(self.port.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        let watched = if heeds_signals { 2 } else { 1 };
        match poll(&mut waiting[..watched], timeout) {
            Ok(0) => return Ok(Woken::Timeout),
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => return Ok(Woken::Messages(Vec::new())),
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        let signalled = waiting[1].revents().is_some_and(|events| !events.is_empty());
        if heeds_signals && signalled {
            return Ok(Woken::Signal);
        }
        let mut bytes = vec![0; PIECE];
        let length = self.port.read(&mut bytes)?.unwrap_or_default();
        Ok(Woken::Messages(self.take(&bytes[..length])))
    }

    /// Reports of the records that have arrived now; messages of other kinds.
    fn take(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let arrived_ns = now_ns();
        let mut others = Vec::new();
        let Session { socket, deframer, reports, count, .. } = self;
        deframer.push(bytes, &mut |framed| {
            let Ok(message) = framed else {
                count.damaged += 1;
                return;
            };
            let Some(record) = Record::of_message(message) else {
                others.push(message.to_vec());
                return;
            };
            // Other programs may have asked the modem for more.
            if layout::name(record.code).is_none() {
                return;
            }
            count.records += 1;
            reports.record(arrived_ns, &record, &mut |out| match out {
                Out::Datagram(datagram) => {
                    count.reports += 1;
                    socket.send(&datagram);
                }
                Out::Notice(text) => say(io::stderr(), format_args!("unbloat-modem: {text}")),
            });
        });
        others
    }
}

/// A line that is lost where nothing reads it: a closed pipe must not keep the mask from being put back.
fn say(mut to: impl Write, line: Arguments) {
    let _ = writeln!(to, "{line}");
}

/// CLOCK_MONOTONIC.
fn now_ns() -> u64 {
    // It exists on every Linux; a time before its beginning does not.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
