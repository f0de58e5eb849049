//! A receiver that falls silent: the time until its next new acknowledgement is the limit `timeout`, and nothing else.

#[path = "scripted/model.rs"]
#[allow(dead_code)]
mod model;

use capture::{TcpSegment, flags};
use flow::Analysis;
use flow::series::rows::{Finding, Flow, Limit};
use model::{MS, Script, analyse};
use units::{Duration, Instant};

/// Times after the last ACK at which the timer fires: 300 ms, doubled each time, 19 s in all.
const FIRES: [u64; 6] = [300, 900, 2_100, 4_500, 9_300, 18_900];

fn of_sender(s: &TcpSegment) -> bool {
    s.src_port == 5000
}

fn at(mut s: TcpSegment, time: Instant, id: u16) -> TcpSegment {
    s.ip.time = time;
    s.ip.id = Some(id);
    s
}

/// A window of 64 segments that is full when the receiver falls silent; the sender repeats the first unacknowledged
/// segment until `end` is appended.
fn outage(answer: bool) -> Vec<TcpSegment> {
    let s = Script { segments: 400, cwnd: 64, buffer: 64, ..Script::plain() };
    let all = model::run(&s).0;
    // Silence begins with the 200th packet of the receiver.
    let mut acks = 0;
    let cut = all
        .iter()
        .position(|s| {
            acks += u32::from(!of_sender(s));
            acks == 200
        })
        .expect("200 ACKs");
    let last_ack = *all[..cut].iter().rfind(|s| !of_sender(s)).expect("an ACK");
    let mut packets: Vec<TcpSegment> = all[..cut].to_vec();
    let sent_again =
        *packets.iter().rfind(|s| of_sender(s) && s.seq == last_ack.ack).expect("its next segment");
    let start = packets.last().expect("packets").ip.time;
    let highest = packets
        .iter()
        .filter(|s| of_sender(s))
        .map(|s| s.seq.wrapping_add(s.payload))
        .max_by_key(|end| end.wrapping_sub(1_000))
        .expect("data");
    for (i, ms) in FIRES.iter().enumerate() {
        packets.push(at(sent_again, start + Duration(ms * MS), 40_000 + i as u16));
    }
    let end = start + Duration(20_000 * MS);
    if answer {
        let mut ack = at(last_ack, end, 50_000);
        ack.ack = highest;
        packets.push(ack);
    } else {
        let mut reset = at(sent_again, end, 50_000);
        reset.flags = flags::RST;
        reset.payload = 0;
        packets.push(reset);
    }
    packets
}

fn data(a: &Analysis) -> &Flow {
    a.flows.iter().max_by_key(|f| f.payload_bytes).expect("flows")
}

fn finding<'a>(a: &'a Analysis, rule: &str) -> Option<&'a Finding> {
    a.findings.iter().find(|f| f.rule == rule)
}

#[test]
fn time_without_an_answer_is_the_limit_timeout_and_no_full_window() {
    for answer in [false, true] {
        let a = analyse(&outage(answer));
        let f = data(&a);
        let time = f.limit_time[Limit::Timeout as usize].as_secs_f64();
        // The timer fired after 300 ms; the silence ended at 20 s. A bin is 100 ms.
        assert!((time - 19.7).abs() <= 0.1, "answered {answer}: {time} s, {:?}", f.limit_time);
        assert_eq!(f.main_limit(), Some(Limit::Timeout));
        let full = f.window_full.as_secs_f64();
        assert!(full < 0.6, "full for {full} s");
        assert!(finding(&a, "receive-window").is_none_or(|f| !f.text.contains("raised")));
        assert!(finding(&a, "retransmission-timeouts").is_none(), "one stop is chance");
        let found = finding(&a, "no-answer").expect("finding");
        assert!((found.to.since(found.from).as_secs_f64() - 19.7).abs() < 0.01);
        let end = if answer { "then the transfer went on" } else { "the sender reset" };
        assert!(found.text.contains(end), "{}", found.text);
        assert!(found.text.contains("fell silent for 19.7 s"), "{}", found.text);
        assert!(found.text.contains("repeated 6 segments"), "{}", found.text);
    }
}

#[test]
fn packets_of_the_receiver_without_news_are_no_silence_but_no_answer_either() {
    let mut packets = outage(false);
    let repeat = *packets.iter().rfind(|s| !of_sender(s)).expect("an ACK");
    let reset = packets.pop().expect("the reset");
    for i in 0..5 {
        let time = reset.ip.time - Duration((5 - i) * 200 * MS);
        packets.push(at(repeat, time, 60_000 + i as u16));
    }
    packets.push(reset);
    let a = analyse(&packets);
    assert_eq!(data(&a).main_limit(), Some(Limit::Timeout));
    let found = finding(&a, "no-answer").expect("finding");
    assert!(found.text.contains("acknowledged nothing new for 19.7 s, but sent 5 packets"));
}
