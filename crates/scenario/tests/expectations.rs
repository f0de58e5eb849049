//! Bounds of expectations: in the unit of the metric's name, however they are written.

use scenario::{Bound, Document, METRICS, STATISTICS, Statistic};

fn file(expect: &str) -> String {
    format!(
        "[link.up]\nrate = \"4 Mbit/s\"\ndelay = \"30 ms\"\n[link.down]\nrate = \"4 Mbit/s\"\ndelay = \"30 ms\"\n\
         [[flow]]\nfrom = \"client\"\n[[probe]]\nevery = \"100 ms\"\n[[expect]]\n{expect}\n"
    )
}

fn bounds(expect: &str) -> Vec<Bound> {
    let document = Document::parse(&file(expect)).unwrap_or_else(|e| panic!("{e}"));
    document.expectations()[0].bounds.clone()
}

#[test]
fn a_quantity_with_its_own_unit_is_the_number_in_the_metrics_unit() {
    for (written, number) in [
        ("flow_goodput_bps = { min = \"1.5 Mbit/s\" }", 1_500_000.0),
        ("flow_goodput_bps = { min = 1500 }", 1_500.0),
        ("flow_rtt_ms = { p95 = { min = \"0.2 s\" } }", 200.0),
        ("flow_rtt_ms = { p95 = { min = 0.25 } }", 0.25),
        ("flow_zero_window_s = { min = \"500 ms\" }", 0.5),
        ("flow_in_flight_bytes = { max = { min = \"3 KB\" } }", 3_000.0),
        ("flow_loss_rate = { min = 0.01 }", 0.01),
    ] {
        let [bound] = &bounds(written)[..] else { panic!("{written}") };
        let min = bound.min.unwrap();
        assert!((min / number - 1.0).abs() < 1e-12 && bound.max.is_none(), "{written}: {min}");
    }
}

#[test]
fn a_bound_that_is_no_number_is_refused() {
    for wrong in ["nan", "inf", "-inf", "\"fast\"", "true", "[1]", "\"1 ms\""] {
        let text = file(&format!("flow_goodput_bps = {{ min = {wrong} }}"));
        let error = Document::parse(&text).unwrap_err().to_string();
        assert!(error.contains("flow_goodput_bps.min"), "{wrong}: {error}");
    }
}

#[test]
fn both_bounds_may_be_the_same_and_not_cross() {
    let [bound] = &bounds("flow_timeouts = { min = 2, max = 2 }")[..] else { panic!() };
    assert_eq!((bound.min, bound.max), (Some(2.0), Some(2.0)));
    assert!(Document::parse(&file("flow_timeouts = { min = 2, max = 1.999 }")).is_err());
}

#[test]
fn every_metric_takes_a_bound_and_a_distribution_every_statistic() {
    for metric in METRICS {
        if !metric.distribution {
            let [bound] = &bounds(&format!("{} = {{ max = 1 }}", metric.name))[..] else {
                panic!()
            };
            assert_eq!((bound.metric.name, bound.statistic), (metric.name, None));
            continue;
        }
        let each: Vec<String> =
            STATISTICS.iter().map(|(name, _)| format!("{name} = {{ max = 1 }}")).collect();
        let found = bounds(&format!("{} = {{ {} }}", metric.name, each.join(", ")));
        let statistics: Vec<_> = found.iter().map(|b| b.statistic.unwrap()).collect();
        use Statistic::{Max, Mean, Min, P50, P95, P99};
        assert_eq!(statistics, [Min, Mean, P50, P95, P99, Max], "{}", metric.name);
    }
}
