//! A resolved scenario as JSON, for what is done with it in Python: units are in the names, nothing
//! is left to default, nodes, links and flows are named by their index.

use std::collections::HashMap;

use algo::{Capacity, Unit, Value};
use pyo3::prelude::*;
use scenario::{
    Algorithm, App, Bulk, Capture, Changed, Family, Flow, GateBy, JitterBuffer, Lab, Link, Node,
    Offload, Probe, ProbeKind, QueuePer, Read, Scenario, WindowUpdate,
};
use serde_json::{Value as Json, json};
use units::{Bytes, Duration, Rate};

use crate::simulate::{Pairs, scenario_of};

/// One run of a scenario, resolved.
#[pyfunction]
#[pyo3(signature = (text, *, overrides = Vec::new(), seed = None, traces = HashMap::new()))]
pub fn scenario_plan(
    text: &str,
    overrides: Pairs,
    seed: Option<u64>,
    traces: HashMap<String, String>,
) -> PyResult<String> {
    let (scenario, warnings) = scenario_of(text, &overrides, seed, &traces)?;
    Ok(plan(&scenario, &warnings).to_string())
}

fn plan(scenario: &Scenario, warnings: &[String]) -> Json {
    let Scenario { name, about, seed, .. } = scenario;
    json!({
        "name": name,
        "about": about,
        "duration_s": s(scenario.duration),
        "warmup_s": s(scenario.warmup),
        "seed": seed,
        "bin_ms": ms(scenario.bin),
        "nodes": scenario.nodes.iter().enumerate().map(node).collect::<Json>(),
        "links": scenario.links.iter().map(link).collect::<Json>(),
        "flows": scenario.flows.iter().map(flow).collect::<Json>(),
        "probes": scenario.probes.iter().map(probe).collect::<Json>(),
        "changes": scenario.changes.iter().map(|change| json!({
            "at_s": s(change.at),
            "what": change.what.iter().map(changed).collect::<Json>(),
        })).collect::<Json>(),
        "lab": lab(scenario.lab),
        "warnings": warnings,
    })
}

fn s(span: Duration) -> f64 {
    span.as_secs_f64()
}

fn ms(span: Duration) -> f64 {
    span.as_millis_f64()
}

fn bps(rates: &[Rate]) -> Vec<u64> {
    rates.iter().map(|r| r.bps()).collect()
}

/// `kind` and every parameter, in base units.
fn algorithm(family: Family, algorithm: &Algorithm) -> Json {
    let entries = family.entries();
    let entry = &entries[algorithm.index];
    let named = entry.params.iter().zip(&algorithm.settings.0);
    let given = named.map(|(param, found)| (param.name.to_owned(), value(param.unit, found)));
    [("kind".to_owned(), Json::from(entry.name))].into_iter().chain(given).collect()
}

fn value(unit: Unit, value: &Value) -> Json {
    match (unit, value) {
        (_, Value::Unset) => Json::Null,
        (_, Value::Number(x)) => json!(x),
        (_, Value::Count(n)) => json!(n),
        (_, Value::Flag(yes)) => json!(yes),
        (_, Value::Duration(span)) => json!(s(*span)),
        (_, Value::Bytes(Bytes(n)) | Value::Rate(Rate(n))) => json!(n),
        (_, Value::Capacity(Capacity::Packets(n))) => json!({ "packets": n }),
        (_, Value::Capacity(Capacity::Bytes(Bytes(n)))) => json!({ "bytes": n }),
        (Unit::Choice(words), Value::Choice(i)) => json!(words.get(*i)),
        (_, Value::Choice(i)) => json!(i),
        (_, Value::Numbers(list)) => json!(list),
    }
}

fn node((index, node): (usize, &Node)) -> Json {
    let device = node.device.as_ref().map(|device| {
        json!({
            "link": device.link,
            "qdisc": kind(Family::Queue, &device.qdisc),
            "gate": algorithm(Family::Gate, &device.gate),
            "buffer_bytes": device.firmware.buffer.0,
            "report_every_ms": ms(device.firmware.report_every),
            "report_delay_ms": ms(device.firmware.report_delay),
        })
    });
    json!({
        "name": node.name,
        "address": scenario::address(index).to_string(),
        "device": device,
        "window": node.window.as_ref().map(|law| algorithm(Family::Window, law)),
    })
}

fn kind(family: Family, algorithm: &Algorithm) -> &'static str {
    family.entries()[algorithm.index].name
}

fn link(link: &Link) -> Json {
    json!({
        "name": link.name,
        "from": link.from,
        "to": link.to,
        "medium": algorithm(Family::Medium, &link.medium),
        "trace": link.trace.is_some(),
        "delay_ms": ms(link.delay),
        "layers": link.layers.iter().map(|l| algorithm(Family::Layer, l)).collect::<Json>(),
        "queue": algorithm(Family::Queue, &link.queue),
        "queue_per": match link.queue_per {
            QueuePer::Link => "link",
            QueuePer::User => "user",
        },
    })
}

fn flow(flow: &Flow) -> Json {
    let (sender, receiver) = (&flow.sender, &flow.receiver);
    json!({
        "name": flow.name,
        "from": flow.from,
        "to": flow.to,
        "sender_opens": flow.sender_opens,
        "start_s": s(flow.start),
        "stop_s": flow.stop.map(s),
        "sender": {
            "congestion": algorithm(Family::Congestion, &sender.congestion),
            "initial_window": sender.initial_window,
            "mss_bytes": sender.mss.0,
            "buffer_bytes": sender.buffer.0,
            "tsq_bytes": sender.tsq.map(|b| b.0),
            "pacing": sender.pacing,
            "sack": sender.sack,
            "timestamps": sender.timestamps,
            "ecn": sender.ecn,
            "class": sender.class,
            "slow_start_after_idle": sender.slow_start_after_idle,
        },
        "receiver": {
            "window": algorithm(Family::Window, &receiver.window),
            "read": match &receiver.read {
                Read::AtOnce => Json::Null,
                Read::Profile { rates, slot, tick } => {
                    json!({ "rates_bps": bps(rates), "slot_s": s(*slot), "tick_s": s(*tick) })
                }
                Read::Processor { work_per_kb, cpu, background } => json!({
                    "work_per_kb_ns": work_per_kb.0,
                    "cpu": cpu,
                    "background": background,
                }),
            },
            "window_update": match receiver.window_update {
                WindowUpdate::Linux => "linux",
                WindowUpdate::Segment => "segment",
            },
            "ack_every": receiver.ack_every,
            "ack_delay_ms": ms(receiver.ack_delay),
            "ack_class": receiver.ack_class,
        },
        "app": app(&flow.app),
    })
}

fn app(app: &App) -> Json {
    match app {
        App::Bulk => json!({ "kind": "bulk" }),
        App::File { bytes, every } => {
            json!({ "kind": "file", "bytes": bytes.0, "every_s": every.map(s) })
        }
        App::Rates { rates, slot } => {
            json!({ "kind": "rates", "rates_bps": bps(rates), "slot_s": s(*slot) })
        }
        App::Requests { request, responses, thinks } => json!({
            "kind": "requests",
            "request_bytes": request.0,
            "responses_bytes": responses.iter().map(|b| b.0).collect::<Vec<u64>>(),
            "thinks_s": thinks.iter().map(|think| s(*think)).collect::<Vec<f64>>(),
        }),
        App::Web(page) => json!({
            "kind": "web",
            "html_bytes": page.html.0,
            "objects_bytes": page.objects.iter().map(|b| b.0).collect::<Vec<u64>>(),
            "depth": page.depth,
            "connections": page.connections,
            "request_bytes": page.request.0,
            "compute_s": s(page.compute),
            "every_s": s(page.every),
        }),
        App::Video { ladder, segment, start_buffer, max_buffer, safety } => json!({
            "kind": "video",
            "ladder_bps": bps(ladder),
            "segment_s": s(*segment),
            "start_buffer_s": s(*start_buffer),
            "max_buffer_s": s(*max_buffer),
            "safety": safety,
        }),
        App::Voip { every, bytes, jitter_buffer } => {
            let (fixed, least) = match jitter_buffer {
                JitterBuffer::Fixed(wait) => (Some(s(*wait)), None),
                JitterBuffer::Adaptive { least } => (None, Some(s(*least))),
            };
            json!({
                "kind": "voip",
                "every_s": s(*every),
                "bytes": bytes.0,
                "jitter_buffer_s": fixed,
                "jitter_min_s": least,
            })
        }
    }
}

fn probe(probe: &Probe) -> Json {
    json!({
        "name": probe.name,
        "kind": match probe.kind {
            ProbeKind::Ping => "ping",
            ProbeKind::Isochronous => "isochronous",
        },
        "from": probe.from,
        "to": probe.to,
        "start_s": s(probe.start),
        "every_s": probe.every.iter().map(|d| s(*d)).collect::<Vec<f64>>(),
        "bytes": probe.bytes.0,
        "class": probe.class,
        "ttl": probe.ttl,
    })
}

fn changed(changed: &Changed) -> Json {
    match changed {
        Changed::Link(link, _) => json!({ "kind": "link", "link": link }),
        Changed::QueueLimit(link, _) => json!({ "kind": "queue_limit", "link": link }),
        Changed::Gate(node, _) => json!({ "kind": "gate", "node": node }),
        Changed::FirmwareBuffer(node, _) => json!({ "kind": "firmware_buffer", "node": node }),
        Changed::NodeWindow(node, _) => json!({ "kind": "node_window", "node": node }),
        Changed::Congestion(flow, to) => {
            json!({ "kind": "congestion", "flow": flow, "to": algorithm(Family::Congestion, to) })
        }
        Changed::Window(flow, to) => {
            json!({ "kind": "window", "flow": flow, "to": algorithm(Family::Window, to) })
        }
    }
}

fn lab(lab: Lab) -> Json {
    json!({
        "offload": match lab.offload {
            Offload::Auto => "auto",
            Offload::On => "on",
            Offload::Off => "off",
        },
        "bulk": match lab.bulk {
            Bulk::Own => "own",
            Bulk::Iperf3 => "iperf3",
        },
        "capture": match lab.capture {
            Capture::Ends => "ends",
            Capture::All => "all",
            Capture::None => "none",
        },
        "gate": match lab.gate {
            GateBy::Emulator => "emulator",
            GateBy::Agent => "agent",
        },
    })
}
