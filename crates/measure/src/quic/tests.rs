use super::*;

#[test]
fn a_congestion_control_that_quic_lacks_is_a_reason() {
    assert_eq!(Control::of(None), Control { name: "cubic", why: None });
    assert_eq!(Control::of(Some("reno")), Control { name: "newreno", why: None });
    assert_eq!(Control::of(Some("bbr")), Control { name: "bbr", why: None });
    let other = Control::of(Some("dctcp"));
    assert_eq!(other.name, "cubic");
    assert_eq!(other.why.as_deref(), Some("dctcp: QUIC has cubic, newreno, bbr here"));
}
