//! No text makes the parser panic, hang or accept what it cannot resolve.

use proptest::prelude::*;
use scenario::Document;

#[path = "../../../fuzz/src/scenario_text.rs"]
mod scenario_text;
use scenario_text::scenario as drive;

const EXAMPLE: &str = include_str!("example.toml");

const PIECES: &[&str] = &[
    "\"0 s\"",
    "\"-1 ms\"",
    "\"9 packets\"",
    "[]",
    "{}",
    "[1, 2]",
    "true",
    "-1",
    "1e400",
    "nan",
    "9223372036854775807",
    "\"cubic\"",
    "\"fixed\"",
    "{ kind = \"fixed\" }",
    "[{ label = \"a\" }]",
    "\"\"",
    "1979-05-27",
    "\"client\"",
    "\"trace\"",
];
const KEYS: &[&str] = &[
    "duration",
    "link.up.rate",
    "link.up.trace",
    "link.up.medium",
    "link.up.loss",
    "link.up.queue",
    "link.down.delay",
    "device",
    "device.gate",
    "device.firmware.buffer",
    "device.node",
    "flow.0.from",
    "flow.0.app",
    "flow.0.count",
    "flow.0.receiver.read",
    "flow.0.tsq",
    "probe.0.every",
    "sweep",
    "sweep.seeds",
    "expect",
    "change",
    "node",
    "link",
    "flow",
    "router",
    "traces",
    "a.b.c.d",
    "",
    "flow.9",
    "expect.0.run",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        drive(&text);
    }

    #[test]
    fn an_example_with_a_part_replaced_is_read_or_refused(
        at in 0..EXAMPLE.len(), length in 0_usize..40, new in "[ -~\n]{0,20}",
    ) {
        let cut = |mut i: usize| { while !EXAMPLE.is_char_boundary(i) { i -= 1 } i };
        let (from, to) = (cut(at), cut((at + length).min(EXAMPLE.len())));
        drive(&format!("{}{new}{}", &EXAMPLE[..from], &EXAMPLE[to..]));
    }

    #[test]
    fn an_example_with_lines_moved_is_read_or_refused(swaps in prop::collection::vec((0_usize..38, 0_usize..38), 1..6)) {
        let mut lines: Vec<&str> = EXAMPLE.lines().collect();
        let n = lines.len();
        swaps.into_iter().for_each(|(a, b)| lines.swap(a % n, b % n));
        drive(&lines.join("\n"));
    }

    #[test]
    fn any_key_set_to_any_value_is_read_or_refused(
        set in prop::collection::vec((prop::sample::select(KEYS), prop::sample::select(PIECES)), 1..4),
    ) {
        let document = Document::parse(EXAMPLE).expect("the example is right");
        if let Ok(changed) = document.with(&set) {
            assert!(!changed.runs().is_empty());
        }
    }
}

#[test]
fn deep_nesting_and_long_keys_are_refused_without_a_stack() {
    drive(&format!("a = {}{}", "[".repeat(10_000), "]".repeat(10_000)));
    drive(&format!("a = {}{}", "{ a = ".repeat(10_000), "1".to_owned() + &" }".repeat(10_000)));
    drive(&format!("[{}]", vec!["a"; 10_000].join(".")));
    drive(&format!("{} = 1", "a".repeat(100_000)));
    drive(&format!("[link.up]\nqueue = \"{}\"", "c".repeat(1_000_000)));
}
