//! The page of a status: what is on it, and in which form.

use serde_json::json;

use super::*;

fn flow(cure: &str, remote: &str, rate_bps: u64, rtt_ms: f64, age_ms: u64) -> Value {
    json!({
        "cure": cure, "remote": remote, "remote_port": 443, "local_port": 50_000, "age_ms": age_ms, "rate_bps": rate_bps,
        "rtt_ms": rtt_ms, "rtt_min_ms": 60.0, "wanted_bytes": 180_000, "queue_bytes": 120_000, "limit": "agent",
    })
}

fn status() -> Value {
    json!({
        "version": "1.2\"\\3", "up_s": 3.5, "lifted": false, "uplink": {"active": "gate", "why": "fresh reports"},
        "cures": {
            "receive": {"connections": 3, "acks": 1000, "decisions": 40, "applied": 5, "reapplied": 2, "lifted": 0, "walk_ms": 3.0},
            "gate": {"telemetry": {"state": "fresh"}, "passed_bytes": 5_000_000_000_u64, "delay_ms": 20.0, "rate_bps": 2_000_000},
        },
        "trials": [{"cure": "receive", "state": "trying"}], "problems": ["one", "two"],
        "flows": [
            flow("receive", "192.0.2.1", 8_000_000, 180.0, 10),
            flow("receive", "2001:db8::1", 4_000_000, 60.0, 10),
            flow("receive", "192.0.2.9", 9_000_000, 900.0, 60_000),
        ],
    })
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
        "unbloat_agent_info{version=\"1.2\\\"\\\\3\"} 1",
        // The third flow came to rest a minute ago.
        "unbloat_goodput_bytes_per_second{cure=\"receive\"} 1500000",
        "unbloat_flows{cure=\"receive\"} 2",
        "unbloat_flow_rtt_ratio_bucket{cure=\"receive\",le=\"1.1\"} 1",
        "unbloat_flow_rtt_ratio_bucket{cure=\"receive\",le=\"3.0\"} 2",
        "unbloat_flow_rtt_ratio_bucket{cure=\"receive\",le=\"+Inf\"} 2",
        "unbloat_flow_rtt_ratio_gcount{cure=\"receive\"} 2",
        "unbloat_flow_queue_bytes_gsum{cure=\"receive\"} 240000",
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
        let all =
            (0..flows).map(|n| flow("receive", &address(n), n as u64 * 1_000, 70.0, 1)).collect();
        status["flows"] = Value::Array(all);
        page(&status, labelled)
    };
    assert_eq!(lines(10_000, 0).lines().count(), lines(10, 0).lines().count());
    let page = lines(10_000, 1_000_000);
    assert_eq!(page.matches("unbloat_busy_flow_rtt_seconds{").count(), MOST_FLOWS);
    // The busiest, not the first.
    assert!(page.contains("remote=\"10.0.39.15\"") && !page.contains("remote=\"10.0.0.1\""));
}

#[test]
fn a_status_of_another_shape_is_a_page_all_the_same() {
    for odd in [
        json!(null),
        json!([]),
        json!({"cures": [1], "flows": {"a": 1}, "trials": "x"}),
        json!({"cures": {"gate": null}}),
    ] {
        assert!(page(&odd, 50).ends_with("# EOF\n"));
    }
}
