//! Every kind of mistake, with the exact message: the files below, their messages in `errors.txt`.
//! `UNBLOAT_BLESS=1` writes it again; the difference is reviewed.

use std::fmt::Write as _;
use std::path::Path;

use scenario::{Document, TraceMissing, TraceText};

/// Two links and a flow; line 8 is the first that a case can add to.
const BASE: &str = "duration = \"60 s\"
[link.up]
rate = \"4 Mbit/s\"
delay = \"30 ms\"
[link.down]
rate = \"20 Mbit/s\"
delay = \"30 ms\"
";
const FLOW: &str = "[[flow]]\nfrom = \"client\"\n";

/// What is wrong, and the whole file.
fn cases() -> Vec<(&'static str, String)> {
    let base = |more: &str| format!("{BASE}{more}");
    let flow = |more: &str| format!("{BASE}{FLOW}{more}");
    let links = |up: &str| {
        format!("[link.up]\n{up}\n[link.down]\nrate = \"20 Mbit/s\"\ndelay = \"30 ms\"\n")
    };
    let top = |more: &str| format!("{more}\n{BASE}");
    vec![
        ("no TOML", "a = \nb = 2".into()),
        ("a key twice", "seed = 1\nseed = 2".into()),
        ("an unknown section", base("[devise]\n")),
        ("an unknown key", links("rate = \"1 Mbit/s\"\ndealy = \"3 ms\"")),
        ("an unknown key that is like nothing", base("[device]\ncolour = 1\n")),
        ("an unknown parameter", links("rate = \"1 Mbit/s\"\ndelay = \"3 ms\"\nqueue = { kind = \"droptail\", limt = \"3 MB\" }")),
        ("an unknown algorithm", links("rate = \"1 Mbit/s\"\ndelay = \"3 ms\"\nqueue = { kind = \"codle\" }")),
        ("an unknown algorithm by its bare name", flow("congestion = \"cubik\"")),
        ("an algorithm that is no name", flow("congestion = 3")),
        ("an algorithm whose kind is no name", flow("congestion = { kind = 3 }")),
        ("a layer without kind", links("rate = \"1 Mbit/s\"\ndelay = \"3 ms\"\nlayers = [{ rate = 0.1 }]")),
        ("an unknown word", base("[[probe]]\nkind = \"pong\"")),
        ("an unknown application", flow("app = { kind = \"vidio\" }")),
        ("an application that is no name", flow("app = 7")),
        ("a key of another application", flow("app = { kind = \"file\", html = \"3 KB\", bytes = \"1 MB\" }")),
        ("a unit missing", links("rate = \"1 Mbit/s\"\ndelay = 30")),
        ("a unit of another quantity", links("rate = \"1 MB\"\ndelay = \"30 ms\"")),
        ("a negative delay", links("rate = \"1 Mbit/s\"\ndelay = \"-30 ms\"")),
        ("a missing delay", links("rate = \"1 Mbit/s\"")),
        ("a zero rate", links("rate = \"0 bit/s\"\ndelay = \"30 ms\"")),
        ("no rate at all", links("delay = \"30 ms\"")),
        ("a rate and a trace", links("rate = \"1 Mbit/s\"\ntrace = \"x\"\ndelay = \"30 ms\"")),
        ("a parameter out of range", links("rate = \"1 Mbit/s\"\ndelay = \"3 ms\"\nloss = 1.5")),
        ("a parameter of another kind", links("rate = \"1 Mbit/s\"\ndelay = \"3 ms\"\nloss = { rate = \"x\" }")),
        ("a queue larger than memory", links("rate = \"1 Mbit/s\"\ndelay = \"3 ms\"\nqueue = { limit = \"900 GB\" }")),
        ("one direction only", "[link.up]\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n".into()),
        ("no links", "duration = \"1 s\"\n".into()),
        ("a third link without ends", base("[link.third]\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n")),
        ("a link to itself", base("[link.third]\nfrom = \"client\"\nto = \"client\"\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n")),
        ("two links the same way", base("[link.third]\nfrom = \"client\"\nto = \"server\"\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n")),
        ("an empty profile", links("rate = { profile = [], unit = \"Mbit/s\", slot = \"1 s\" }\ndelay = \"1 ms\"")),
        ("a profile of zeros", links("rate = { profile = [0], unit = \"Mbit/s\", slot = \"1 s\" }\ndelay = \"1 ms\"")),
        ("a profile without unit", links("rate = { profile = [1], slot = \"1 s\" }\ndelay = \"1 ms\"")),
        ("a negative rate in a profile", links("rate = { profile = [-1], unit = \"Mbit/s\", slot = \"1 s\" }\ndelay = \"1 ms\"")),
        ("a duration of zero", top("duration = \"0 s\"").replace("\nduration = \"60 s\"", "")),
        ("a warm-up as long as the run", top("warmup = \"60 s\"")),
        ("bins without number", top("bin = \"1 ms\"").replace("60 s", "1000 min")),
        ("a name that is a number", "[[node]]\nname = \"7\"\n".to_owned() + BASE.trim_start_matches("duration = \"60 s\"\n")),
        ("two nodes of one name", base("[[node]]\nname = \"a\"\n[[node]]\nname = \"a\"\n")),
        ("two flows of one name", base("[[flow]]\nname = \"a\"\nfrom = \"client\"\n[[flow]]\nname = \"a\"\nfrom = \"server\"\n")),
        ("a flow without beginning", base("[[flow]]\n")),
        ("a flow from an unknown node", base("[[flow]]\nfrom = \"cleint\"\n")),
        ("a flow to itself", flow("to = \"client\"")),
        ("a flow that stops before it starts", flow("start = \"5 s\"\nstop = \"4 s\"")),
        ("a flow that starts after the end", flow("start = \"70 s\"")),
        ("copies that start after the end", flow("count = 100\nstagger = \"1 s\"")),
        ("more flows than fit", flow("count = 9999\n[[flow]]\nfrom = \"client\"\ncount = 2")),
        ("a key of the sender twice", flow("mss = \"1000 B\"\n[flow.sender]\nmss = \"1000 B\"")),
        ("a flow between unconnected nodes", "[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n[[link]]\nname = \"l\"\nfrom = \"a\"\nto = \"b\"\nrate = \"1 Mbit/s\"\ndelay = \"1 ms\"\n[[flow]]\nfrom = \"a\"\n".into()),
        ("tsq of another kind", flow("tsq = true")),
        ("a reader that is no profile", flow("[flow.receiver]\nread = \"slowly\"")),
        ("a reader that reads less often than its slots", flow("[flow.receiver]\nread = { profile = [1], unit = \"Mbit/s\", slot = \"50 ms\", tick = \"60 ms\" }")),
        ("a reader that reads by a profile and by its processor", flow("[flow.receiver]\nread = { profile = [1], unit = \"Mbit/s\", slot = \"50 ms\", work_per_kb = \"20 us\" }")),
        ("a processor that works at once", flow("[flow.receiver]\nread = { cpu = 0.5 }")),
        ("work that takes no time", flow("[flow.receiver]\nread = { work_per_kb = \"0 s\" }")),
        ("more than a processor", flow("[flow.receiver]\nread = { work_per_kb = \"20 us\", cpu = 1.5 }")),
        ("too much in the background", flow("[flow.receiver]\nread = { work_per_kb = \"20 us\", background = 101 }")),
        ("a file without size", flow("app = \"file\"")),
        ("a ladder upside down", flow("app = { kind = \"abr-video\", ladder = [\"2 Mbit/s\", \"1 Mbit/s\"] }")),
        ("a video buffer of less than a segment", flow("app = { kind = \"abr-video\", max_buffer = \"1 s\" }")),
        ("a probe interval of zero", base("[[probe]]\nevery = \"0 ms\"")),
        ("no probe intervals", base("[[probe]]\nevery = []")),
        ("too many probe packets", top("").replace("60 s", "1000 min") + "[[probe]]\nevery = \"1 ms\""),
        ("a probe to itself", base("[[probe]]\nto = \"client\"")),
        ("two devices on a node", base("[[device]]\n[[device]]\n")),
        ("a device on an unknown node", base("[device]\nnode = \"phone\"")),
        ("a device on a link that is not its own", base("[device]\nlink = \"down\"")),
        ("two laws on the ACKs of a node", "[[node]]\nname = \"client\"\nwindow = \"fixed\"\n[[node]]\nname = \"server\"\n".to_owned() + BASE.trim_start_matches("duration = \"60 s\"\n") + "[device]\nwindow = \"fixed\"\n"),
        ("a router among named nodes", base("[router]\n[[node]]\nname = \"client\"\n[[node]]\nname = \"server\"\n")),
        ("a device behind a router", base("[router]\n[device]\nlink = \"up\"\n")),
        ("a change without time", base("[[change]]\n\"link.up.rate\" = \"1 Mbit/s\"")),
        ("a change of nothing", base("[[change]]\nat = \"1 s\"")),
        ("a change after the end", base("[[change]]\nat = \"60 s\"\n\"link.up.rate\" = \"1 Mbit/s\"")),
        ("a change of what stays", base("[[change]]\nat = \"1 s\"\n\"link.up.queue_per\" = \"user\"")),
        ("a change of a queue's kind", base("[[change]]\nat = \"1 s\"\n\"link.up.queue\" = \"codel\"")),
        ("a change to the default kind of queue", links("rate = \"1 Mbit/s\"\ndelay = \"1 ms\"\nqueue = \"codel\"") + "[[change]]\nat = \"1 s\"\n\"link.up.queue\" = { limit = \"24 KB\" }"),
        ("a change of another kind's limit", links("rate = \"1 Mbit/s\"\ndelay = \"1 ms\"\nqueue = \"codel\"") + "[[change]]\nat = \"1 s\"\n\"link.up.queue.limit\" = \"24 packets\""),
        ("a change to a limit without unit", base("[[change]]\nat = \"1 s\"\n\"link.up.queue.limit\" = 24")),
        ("a change of a parameter that a queue does not have", base("[[change]]\nat = \"1 s\"\n\"link.up.queue.target\" = \"5 ms\"")),
        ("a change of the queue of an unknown link", base("[[change]]\nat = \"1 s\"\n\"link.upp.queue.limit\" = \"24 KB\"")),
        ("a change of a queue that a device replaces", base("[device]\n[[change]]\nat = \"1 s\"\n\"link.up.queue.limit\" = \"24 KB\"")),
        ("a change of a router's queue", base("[router]\n[[change]]\nat = \"1 s\"\n\"router.queue.limit\" = \"24 KB\"")),
        ("a change of a firmware buffer without device", base("[[change]]\nat = \"1 s\"\n\"device.firmware.buffer\" = \"24 KB\"")),
        ("a change to no firmware buffer", base("[device]\n[[change]]\nat = \"1 s\"\n\"device.firmware.buffer\" = \"0 B\"")),
        ("a change of what else a modem has", base("[device]\n[[change]]\nat = \"1 s\"\n\"device.firmware.wake\" = \"3 KB\"")),
        ("a change of a whole modem", base("[device]\n[[change]]\nat = \"1 s\"\n\"device.firmware\" = { buffer = \"24 KB\" }")),
        ("a change of a qdisc", base("[device]\n[[change]]\nat = \"1 s\"\n\"device.qdisc\" = \"codel\"")),
        ("a change of an unknown link", base("[[change]]\nat = \"1 s\"\n\"link.upp.rate\" = \"1 Mbit/s\"")),
        ("a change to a wrong value", base("[[change]]\nat = \"1 s\"\n\"link.up.rate\" = \"0 Mbit/s\"")),
        ("a change of a gate without device", base("[[change]]\nat = \"1 s\"\n\"device.gate\" = \"none\"")),
        ("a change of an unknown flow", flow("[[change]]\nat = \"1 s\"\n\"flow.1.congestion\" = \"newreno\"")),
        ("a sweep over an unknown key", base("[sweep]\n\"link.up.rat\" = [\"1 Mbit/s\"]")),
        ("a sweep over an unknown section", base("[sweep]\n\"lnk.up.rate\" = [\"1 Mbit/s\"]")),
        ("a sweep over a flow that is not there", base("[sweep]\n\"flow.0.congestion\" = [\"cubic\"]")),
        ("a sweep over a device that is not there", base("[sweep]\n\"device.gate\" = [\"none\"]")),
        ("a sweep without values", flow("[sweep]\n\"flow.0.congestion\" = []")),
        ("a sweep with one value", flow("[sweep]\n\"flow.0.congestion\" = \"cubic\"")),
        ("a sweep with a value twice", flow("[sweep]\n\"flow.0.congestion\" = [\"cubic\", \"cubic\"]")),
        ("a sweep with a wrong second value", flow("[sweep]\n\"flow.0.congestion\" = [\"cubic\", \"rheno\"]")),
        ("more runs than fit", flow(&format!("[sweep]\nseeds = 1000\n\"flow.0.count\" = [{}]", (1..=20).map(|i| i.to_string()).collect::<Vec<_>>().join(", ")))),
        ("a sweep over what is expected", flow("[sweep]\n\"expect.0.flow\" = [\"flow0\"]")),
        ("a label missing", flow("[sweep]\ncure = [{ label = \"off\" }, { \"flow.0.congestion\" = \"cubic\" }]")),
        ("an unknown metric", flow("[[expect]]\nflow_goodput = { min = 1 }")),
        ("an unknown statistic", flow("[[expect]]\nflow_rtt_ms = { p90 = { max = 1 } }")),
        ("a metric without statistic", flow("[[expect]]\nflow_rtt_ms = 3")),
        ("a bound of another kind", flow("[[expect]]\nflow_goodput_bps = { min = \"1 MB\" }")),
        ("an expectation of nothing", flow("[[expect]]\nflow = \"flow0\"")),
        ("bounds the wrong way round", flow("[[expect]]\nflow_goodput_bps = { min = 2, max = 1 }")),
        ("no bounds", flow("[[expect]]\nflow_goodput_bps = {}")),
        ("an expectation of an unknown flow", flow("[[expect]]\nflow = \"flow1\"\nflow_goodput_bps = { min = 1 }")),
        ("an expectation of an unknown run", flow("[sweep]\n\"flow.0.congestion\" = [\"cubic\"]\n[[expect]]\nrun = { congestion = \"bbr\" }\nflow_goodput_bps = { min = 1 }")),
        ("an expectation of an unknown label", flow("[sweep]\n\"flow.0.congestion\" = [\"cubic\"]\n[[expect]]\nrun = { cc = \"cubic\" }\nflow_goodput_bps = { min = 1 }")),
        ("a trace that is not there", links("trace = \"lost\"\ndelay = \"1 ms\"")),
        ("a trace that is none", links("trace = \"broken\"\ndelay = \"1 ms\"")),
        ("a trace that never delivers", links("trace = \"silent\"\ndelay = \"1 ms\"")),
        ("a medium that lacks its trace", links("medium = \"trace\"\ndelay = \"1 ms\"")),
        ("a medium for another kind of trace", links("medium = \"rates\"\ntrace = \"mahimahi\"\ndelay = \"1 ms\"")),
        ("a path that is no text", base("[traces]\nx = 3")),
    ]
}

fn traces(name: &str) -> Result<TraceText, TraceMissing> {
    match name {
        "broken" => Ok(TraceText("one\ntwo\n".into())),
        "silent" => Ok(TraceText("0,0\n1,0\n".into())),
        "mahimahi" => Ok(TraceText("1\n2\n".into())),
        _ => Err(TraceMissing("not found".to_owned())),
    }
}

/// The complaint about a file: of reading it, or of its first run.
fn complaint(text: &str) -> String {
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(e) => return e.to_string(),
    };
    let run = document.runs().remove(0);
    match document.scenario(&run.overrides, run.seed, &traces) {
        Ok(_) => "accepted".to_owned(),
        Err(e) => e.to_string(),
    }
}

/// Lists of algorithms, layers and metrics grow; a message is kept up to a long one.
fn kept(message: &str) -> String {
    for begin in ["there are ", "known: "] {
        if let Some((head, list)) = message.split_once(begin)
            && list.split(", ").count() > 6
        {
            return format!("{head}{begin}…");
        }
    }
    message.to_owned()
}

#[test]
fn every_mistake_is_named_with_line_key_and_what_would_fit() {
    let mut out = String::new();
    for (what, text) in cases() {
        let message = complaint(&text);
        assert_ne!(message, "accepted", "{what}");
        assert!(!message.contains('\n'), "{what}: one line each");
        let _ = writeln!(out, "{what}\n    {}", kept(&message));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/errors.txt");
    if std::env::var_os("UNBLOAT_BLESS").is_some() {
        std::fs::write(&file, &out).expect("the tests' folder can be written");
    }
    let stored = std::fs::read_to_string(&file).expect("errors.txt is there");
    for (ours, theirs) in out.lines().zip(stored.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(out.lines().count(), stored.lines().count());
}

#[test]
fn keys_set_from_outside_are_complained_about_without_a_line() {
    let document = Document::parse(BASE).unwrap_or_else(|e| panic!("{e}"));
    let complaint = |key: &str, value: &str| match document.with(&[(key, value)]) {
        Ok(_) => "accepted".to_owned(),
        Err(e) => e.to_string(),
    };
    assert_eq!(
        complaint("link.up.rate", "0 bit/s"),
        "set: link.up.rate: 0 bit/s is out of range: 1 bit/s to 1000 Gbit/s"
    );
    assert_eq!(
        complaint("link.op.rate", "1 bit/s"),
        "set: link.op.rate: no link is called \"op\"; did you mean \"up\"? there are up, down"
    );
    assert_eq!(
        complaint("link.up.rate.of.change", "1"),
        "set: link.up.rate.of.change: expected a table with the key of, found \"4 Mbit/s\""
    );
    assert_eq!(
        complaint("link.up.queue.limit", "3"),
        "set: link.up.queue.limit: expected a capacity such as \"1000 packets\" or \"3 MB\", \
         1 packet to 1099511627776 packets, found 3"
    );
    assert_eq!(
        complaint("flow.0.congestion", "cubic"),
        "set: flow.0.congestion: there is no [[flow]]"
    );
    assert_eq!(
        complaint("link..rate", "1"),
        "set: expected a dotted key such as link.up.rate, found \"link..rate\""
    );
    assert!(complaint("duration", "[1, 2").starts_with("set: duration: "));
}
