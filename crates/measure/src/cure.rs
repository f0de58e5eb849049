//! Which cure to try, by name and command.
//!
//! signal: grade and goodput of a loaded direction, its senders' congestion control · model: the cures of the rule
//! `bufferbloat` of `unbloat analyze`; a cure is worth its trouble from grade B on · action: a list, the nearest first:
//! this host, the sender, the router.
//!
//! A smart queue helps only on the device in front of the slow link. Where routers answer, the place of the queue is known
//! (`hops`), and that device is named.

use flow::diagnose::grade::grade;
use serde::Serialize;

use crate::hops::Hop;
use crate::outcome::PhaseOutcome;
use crate::seen::Transport;

/// A smart queue has to be the bottleneck, a little below the link's rate; the share that CAKE's documentation
/// recommends for a start.
const BELOW: f64 = 0.9;

const BBR: &str = "BBR";

/// Something to try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cure {
    /// `down` or `up`.
    pub direction: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Where it acts.
    pub on: String,
    /// What to type there; `None`: a setting of the device.
    pub command: Option<String>,
    /// What it does.
    pub effect: &'static str,
}

/// Cures for what the phases show; `hops`: the routers on the way.
pub fn cures(phases: &[PhaseOutcome], hops: &[Hop]) -> Vec<Cure> {
    let mut found: Vec<Cure> = Vec::new();
    for cure in phases.iter().flat_map(|phase| of_phase(phase, hops)) {
        // Two phases of one direction differ in transport and congestion control alone; the first one's goodput counts.
        let known =
            found.iter().any(|other| (other.direction, other.name) == (cure.direction, cure.name));
        // BBR was measured in this run, and is bloated itself.
        let in_vain = cure.name == BBR
            && phases
                .iter()
                .any(|phase| phase.phase == cure.direction && is_bbr(phase) && bloated(phase));
        if !known && !in_vain {
            found.push(cure);
        }
    }
    found
}

/// Whether the loaded direction of a phase has a grade below A.
fn bloated(phase: &PhaseOutcome) -> bool {
    let delay = if phase.phase == "up" { &phase.delay_up } else { &phase.delay_down };
    // What the delay of those probes is that arrived; lost ones are no queue that a cure shortens.
    // Without probes of our own only the round trip is known; its queue is that of the load.
    delay.as_ref().or(phase.delay_rtt.as_ref()).is_some_and(|delay| {
        let ms = if delay.p95_ms.ms.is_finite() { delay.p95_ms.ms } else { delay.p50_ms.ms };
        ms.is_finite() && !matches!(grade(ms), "A+" | "A")
    })
}

/// Whether a sender of the loaded direction is BBR.
fn is_bbr(phase: &PhaseOutcome) -> bool {
    let mut senders = phase.streams.iter().filter(|stream| stream.direction == phase.phase);
    senders.any(|stream| stream.congestion_control.starts_with("bbr"))
}

fn of_phase(phase: &PhaseOutcome, hops: &[Hop]) -> Vec<Cure> {
    let goodput = match phase.phase {
        "down" => phase.goodput_down_bps,
        "up" => phase.goodput_up_bps,
        // The same queues as in the phases of one direction.
        _ => return Vec::new(),
    };
    let (direction, down) = (phase.phase, phase.phase == "down");
    if !bloated(phase) {
        return Vec::new();
    };
    // The agent and the kernel's congestion controls act on TCP: of a load by QUIC, they shorten nothing.
    let tcp = phase.transport == Transport::Tcp;
    let mut found = vec![if down {
        Cure {
            direction,
            name: "receive windows (DRWA)",
            on: "this host".to_owned(),
            command: Some("sudo unbloat agent on --set receive.lambda=1.5".to_owned()),
            effect: "downloads of this host stop filling the queue",
        }
    } else {
        Cure {
            direction,
            name: "ACK windows (DRWA), the gate (QCUT) with a modem",
            on: "this host".to_owned(),
            command: Some("sudo unbloat agent on".to_owned()),
            effect: "uploads of this host stop filling the queue",
        }
    }];
    if !tcp {
        found.clear();
    }
    if tcp && phase.streams.iter().any(|stream| stream.direction == direction) && !is_bbr(phase) {
        found.push(Cure {
            direction,
            name: BBR,
            on: if down { "the server" } else { "this host" }.to_owned(),
            command: Some("sudo sysctl net.ipv4.tcp_congestion_control=bbr".to_owned()),
            effect: "the sender keeps little more in flight than the path holds",
        });
    }
    let rate = goodput.map(|bps| bps * BELOW / 1e6).filter(|mbit| *mbit >= 0.1);
    let shaped = |device| {
        rate.map(|mbit| format!("tc qdisc replace dev {device} root cake bandwidth {mbit:.1}mbit"))
    };
    let name = "a smart queue (CAKE or fq_codel)";
    let router = |address: Option<&Hop>| match address {
        Some(hop) => format!("the router {}", hop.address),
        None => "the router".to_owned(),
    };
    let first = hops.first().filter(|hop| hop.hop == 1);
    found.push(match phase.place.as_ref().map(|place| (place.after, place.before)) {
        // On Wi-Fi its rate varies, and fq_codel needs none.
        Some((0, Some(1))) if down => Cure {
            direction,
            name,
            on: format!("{}, on its Wi-Fi or cable to this host", router(first)),
            command: None,
            effect: "short queues for what this host downloads",
        },
        Some((0, Some(1))) => Cure {
            direction,
            name,
            on: "this host, on the device of its uplink".to_owned(),
            command: shaped("DEVICE"),
            effect: "short queues for every program of this host",
        },
        _ => Cure {
            direction,
            name,
            on: match down {
                true => format!("{}, on what comes from the provider", router(first)),
                false => format!("{}, on its uplink", router(first)),
            },
            command: shaped("UPLINK").filter(|_| !down),
            effect: "short queues for every device behind the router",
        },
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Quantile;
    use crate::hops::Place;
    use crate::outcome::{Delay, Grade};
    use crate::seen::Stream;
    use crate::wire::data::Direction;
    use crate::wire::message::StreamInfo;

    fn phase(phase: &'static str, p95: f64, cc: &str) -> PhaseOutcome {
        let q = |ms| Quantile { ms, low_ms: ms, high_ms: ms };
        let delay = Delay {
            probes: 400,
            loss: 0.0,
            p50_ms: q(p95 / 2.0),
            p75_ms: p95,
            p90_ms: p95,
            p95_ms: q(p95),
            p99_ms: q(p95),
            jitter_ms: None,
        };
        let direction = if phase == "up" { Direction::Up } else { Direction::Down };
        let info = StreamInfo { cc: cc.to_owned(), ..StreamInfo::default() };
        PhaseOutcome {
            phase,
            transport: Transport::Tcp,
            congestion_control: None,
            grade: Grade { of: phase, grades: Vec::new(), why: None },
            usability: String::new(),
            steady: true,
            from_unix_s: 0.0,
            until_unix_s: 1.0,
            goodput_down_bps: Some(50e6),
            goodput_up_bps: Some(10e6),
            delay_down: Some(delay.clone()),
            delay_up: Some(delay),
            delay_rtt: None,
            handshakes: None,
            quic_probes: None,
            place: None,
            place_why: None,
            streams: vec![Stream::new(direction, info, None)],
        }
    }

    #[test]
    fn a_bloated_uplink_is_cured_here_at_the_sender_or_at_the_router() {
        let found = cures(&[phase("down", 4.0, "cubic"), phase("up", 300.0, "cubic")], &[]);
        assert!(found.iter().all(|cure| cure.direction == "up"));
        let commands: Vec<_> = found.iter().filter_map(|cure| cure.command.as_deref()).collect();
        assert_eq!(
            commands,
            [
                "sudo unbloat agent on",
                "sudo sysctl net.ipv4.tcp_congestion_control=bbr",
                "tc qdisc replace dev UPLINK root cake bandwidth 9.0mbit",
            ]
        );
    }

    #[test]
    fn the_smart_queue_is_on_the_device_in_front_of_the_slow_link() {
        let home = Hop { hop: 1, address: [192, 168, 1, 1].into(), rtt_min_ms: 1.0 };
        let on = |name: &'static str, after, before| {
            let place = Place { after, before, share: 1.0, device: "" };
            let phase = PhaseOutcome { place: Some(place), ..phase(name, 300.0, "cubic") };
            cures(&[phase], std::slice::from_ref(&home)).pop().map(|cure| cure.on)
        };
        let said = |name, after, before| on(name, after, before).unwrap_or_default();
        assert_eq!(said("up", 0, Some(1)), "this host, on the device of its uplink");
        assert_eq!(
            said("down", 0, Some(1)),
            "the router 192.168.1.1, on its Wi-Fi or cable to this host"
        );
        assert_eq!(said("up", 1, Some(2)), "the router 192.168.1.1, on its uplink");
        assert_eq!(
            said("down", 1, Some(2)),
            "the router 192.168.1.1, on what comes from the provider"
        );
    }

    #[test]
    fn short_queues_need_no_cure_and_bbr_is_not_recommended_to_bbr() {
        assert!(cures(&[phase("up", 29.0, "cubic")], &[]).is_empty());
        assert!(cures(&[phase("down", 90.0, "bbr")], &[]).iter().all(|cure| cure.name != "BBR"));
        let compared =
            |bbr_ms| cures(&[phase("up", 300.0, "cubic"), phase("up", bbr_ms, "bbr")], &[]);
        assert_eq!(compared(20.0).iter().filter(|cure| cure.name == "BBR").count(), 1);
        assert!(compared(250.0).iter().all(|cure| cure.name != "BBR"), "it was tried");
        assert_eq!(compared(250.0).len(), 2);
    }
}
