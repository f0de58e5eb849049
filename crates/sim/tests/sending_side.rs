//! A window law on the ACKs that arrive at the sending side.

mod made;

use algo::Value;
use made::ms;

/// Mean RTT of the last bin of a bulk upload over 2 Mbit/s and 60 ms, with a law (or none) where
/// the data comes from.
fn rtt_ms(lambda: Option<f64>) -> u64 {
    let mut s = made::path(2.0, ms(60), 700, 20);
    s.nodes[made::SENDER].window =
        lambda.map(|l| made::algorithm!(algo::rwnd, "drwa", "lambda" = Value::Number(l)));
    let rows = made::series(&made::run(&s));
    rows.iter().rev().find_map(|row| row.rtt).map_or(0, |(_, middle, _)| middle.0 / 1_000_000)
}

// DRWA section 5: the fixed point of its law is an RTT of λ · RTTmin, here (60 + 6) ms. An ACK of
// two segments echoes the timestamp of the older one, 6 ms before the one from which the sender's
// own RTT counts.
#[test]
fn an_upload_is_held_at_lambda_times_the_smallest_rtt_by_the_window_of_its_acks() {
    assert!(rtt_ms(None) > 1_000);
    for (lambda, expected) in [(2.0, 126), (3.0, 192)] {
        let found = rtt_ms(Some(lambda));
        assert!(found.abs_diff(expected) * 100 <= expected * 6, "λ = {lambda}: {found} ms");
    }
}

/// Goodput of an upload and of a download over 2 and 8 Mbit/s and 60 ms, Mbit/s; the upload's ACKs
/// are rewritten where it comes from.
fn both_ways(form: &str) -> (f64, f64) {
    let words = ["paper", "rate", "agent"];
    let form = words.iter().position(|word| *word == form).unwrap();
    let mut s = made::path(2.0, ms(60), 700, 15);
    s.links[made::BACK] = made::link(made::RECEIVER, made::SENDER, 8.0, ms(30), 1_400);
    s.nodes[made::SENDER].window = Some(made::algorithm!(
        algo::rwnd,
        "drwa",
        "form" = Value::Choice(form),
        "lambda" = Value::Number(1.75),
        "alpha" = Value::Count(8),
        "quick" = Value::Flag(true),
    ));
    // The receiver is the server: the node's uplink is the way to it.
    s.nodes[made::RECEIVER].name = "server".into();
    s.flows.push(made::transfer(made::RECEIVER, made::SENDER, "cubic"));
    s.flows[1].start = ms(2_000);
    // Not megabytes at once: an edge that is advertised before the law has measured stays.
    for flow in &mut s.flows {
        flow.receiver.window = made::algorithm!(algo::rwnd, "autotune");
    }
    let results = made::run(&s);
    let of = |sender: usize| {
        let rows = results.connections.iter().find(|c| c.a == sender).unwrap();
        let samples =
            results.samples.iter().filter(|s| s.flow == 2 * rows.id && s.t.0 >= 7_000_000_000);
        samples.map(|s| s.delivered).sum::<u64>() as f64 * 8.0 / 8e6
    };
    (of(made::SENDER), of(made::RECEIVER))
}

// The round trip of an upload has the download's queue in it. The published law takes it for the
// upload's own; the agent's law knows by the far end's clock that it is not.
#[test]
fn an_upload_beside_a_download_keeps_its_rate_with_the_agents_law_and_starves_with_the_papers() {
    let ((paper, _), (up, down)) = (both_ways("rate"), both_ways("agent"));
    assert!(paper < 0.25 * 1.91, "{paper} of 1.91 Mbit/s");
    assert!(up > 0.8 * 1.91, "{up} of 1.91 Mbit/s");
    assert!(down > 0.95 * 7.72, "{down} of 7.72 Mbit/s");
}
