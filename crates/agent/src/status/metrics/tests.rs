//! The page of a status: what is on it, and in which form.

use super::*;
use crate::cures::Reports;
use crate::cures::gate::GateFigures;
use crate::cures::receive::ReceiveFigures;
use crate::status::testing;
use crate::status::testing::flow;
use crate::uplink::controller::Active;

fn status() -> Status {
    let mut resting = flow("receive", "192.0.2.9", 9_000_000, 900);
    resting.age_ms = 3_000;
    Status {
        uplink: Active { active: "gate", why: "fresh reports".to_owned() },
        cures: Reports {
            receive: Some(ReceiveFigures::example()),
            gate: Some(GateFigures::example()),
            ..Reports::default()
        },
        trials: vec![testing::trial("receive", None, Stage::Trying)],
        work: [("receive", Work::Idle), ("gate", Work::Counts)].into(),
        problems: vec!["one".to_owned(), "two".to_owned()],
        flows: vec![
            flow("receive", "192.0.2.1", 8_000_000, 180),
            flow("receive", "2001:db8::1", 4_000_000, 60),
            resting,
        ],
        ..testing::status()
    }
}

fn has(page: &str, line: &str) {
    assert!(page.lines().any(|one| one == line), "{line}\n{page}");
}

#[test]
fn numbers_of_the_status_are_on_the_page_in_base_units() {
    let page = page(&status(), 0);
    for line in [
        "# TYPE unbloat_acks counter",
        "unbloat_acks_total{cure=\"receive\"} 1000",
        "unbloat_windows_total{cure=\"receive\",done=\"reapplied\"} 2",
        "unbloat_walk_seconds 0.003",
        "# UNIT unbloat_gate_passed_bytes bytes",
        "unbloat_gate_passed_bytes_total 5000000000",
        "unbloat_gate_delay_seconds 0.02",
        "unbloat_gate_rate_bytes_per_second 250000",
        "unbloat_gate_reports_fresh 1",
        "unbloat_uplink{unbloat_uplink=\"gate\"} 1",
        "unbloat_uplink{unbloat_uplink=\"acks\"} 0",
        "unbloat_cure_attached{cure=\"congestion\"} 0",
        "unbloat_trials{cure=\"receive\",state=\"trying\"} 1",
        "unbloat_problems 2",
        "unbloat_cure_idle{cure=\"receive\"} 1",
        "unbloat_cure_idle{cure=\"gate\"} 0",
        "unbloat_agent_info{version=\"1.2\\\"\\\\3\"} 1",
        // The third flow came to rest three seconds ago.
        "unbloat_goodput_bytes_per_second{cure=\"receive\"} 1500000",
        "unbloat_flows{cure=\"receive\"} 2",
        "unbloat_flow_rtt_ratio_bucket{cure=\"receive\",le=\"1.1\"} 1",
        "unbloat_flow_rtt_ratio_bucket{cure=\"receive\",le=\"3.0\"} 2",
        "unbloat_flow_rtt_ratio_bucket{cure=\"receive\",le=\"+Inf\"} 2",
        "unbloat_flow_rtt_ratio_gcount{cure=\"receive\"} 2",
        "unbloat_flow_queue_bytes_gsum{cure=\"receive\"} 120000",
    ] {
        has(&page, line);
    }
    assert!(page.ends_with("# EOF\n"));
    assert!(!page.contains("unbloat_shaper") && !page.contains("192.0.2.1"));
}

#[test]
fn a_page_has_each_family_once_with_its_unit_at_the_end_of_its_name() {
    // OpenMetrics 1.0, "MetricFamily": names are unique, a unit ends the name; lines of a family stand together.
    let page = page(&status(), 2);
    let mut seen = std::collections::BTreeSet::new();
    let mut family = String::new();
    for line in page.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "TYPE", name, _] => {
                assert!(seen.insert(name.to_owned()), "{name} twice");
                name.clone_into(&mut family);
            }
            ["#", "UNIT", name, unit] => {
                assert!(name.ends_with(&format!("_{unit}")) && name == family, "{line}")
            }
            ["#", "HELP", name, ..] => assert_eq!(name, family),
            ["#", "EOF"] => {}
            _ => assert!(line.starts_with(&family), "{line} in {family}"),
        }
    }
}

#[test]
fn the_number_of_samples_does_not_grow_with_that_of_flows() {
    let lines = |flows: usize, labelled: usize| {
        let mut status = status();
        let address = |n: usize| format!("10.0.{}.{}", n / 256, n % 256);
        status.flows =
            (0..flows).map(|n| flow("receive", &address(n), n as u64 * 1_000, 70)).collect();
        page(&status, labelled)
    };
    assert_eq!(lines(10_000, 0).lines().count(), lines(10, 0).lines().count());
    let page = lines(10_000, 1_000_000);
    assert_eq!(page.matches("unbloat_busy_flow_rtt_seconds{").count(), MAX_FLOWS);
    // The busiest, not the first.
    assert!(page.contains("remote=\"10.0.39.15\"") && !page.contains("remote=\"10.0.0.1\""));
}
