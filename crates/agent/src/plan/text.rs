//! Numbers as a person reads them, and paragraphs that fit a terminal. Numbers are written as
//! `unbloat analyze` writes them: `31.4 MB`, `4.0 Mbit/s`, `187 ms`; Mbit/s is 10⁶ bit/s and MB is
//! 10⁶ bytes.

use std::net::{IpAddr, SocketAddr};

/// One place after the point below a hundred, none above.
fn number(value: f64) -> String {
    match value {
        v if v >= 99.5 => format!("{v:.0}"),
        v if v >= 0.995 || v == 0.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// A value with the prefix that leaves one to three places before the point.
fn scaled(mut value: f64, prefixes: [&str; 4], unit: &str) -> String {
    for prefix in &prefixes[..3] {
        if value < 999.5 {
            let text = if prefix.is_empty() { format!("{value:.0}") } else { number(value) };
            return format!("{text} {prefix}{unit}");
        }
        value /= 1e3;
    }
    format!("{} {}{unit}", number(value), prefixes[3])
}

/// A number of bytes: `64.0 KB`.
pub fn bytes(value: f64) -> String {
    scaled(value, ["", "K", "M", "G"], "B")
}

/// A rate in bit/s: `4.0 Mbit/s`.
pub fn rate(bps: f64) -> String {
    scaled(bps, ["", "k", "M", "G"], "bit/s")
}

/// `45 ms`, `2.1 s`.
pub fn ms(value: f64) -> String {
    match value {
        v if v >= 1_000.0 => format!("{:.1} s", v / 1e3),
        v if v < 10.0 => format!("{} ms", number(v)),
        v => format!("{v:.0} ms"),
    }
}

/// `1 flow`, `2 flows`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Address and port: `192.0.2.1:443`, `[2001:db8::1]:443`.
pub fn endpoint((address, port): (IpAddr, u16)) -> String {
    SocketAddr::new(address, port).to_string()
}

/// A paragraph of lines no wider than `width`, behind a word in the margin; lines after the first
/// are below its text.
pub fn paragraph(margin: &str, text: &str, indent: usize, width: usize) -> String {
    let mut lines = vec![format!("{margin:<indent$}")];
    let mut empty = true;
    for word in text.split(' ') {
        let used = lines.last().map_or(0, |line| line.chars().count());
        if !empty && used + 1 + word.chars().count() > width {
            lines.push(" ".repeat(indent));
            empty = true;
        }
        if let Some(line) = lines.last_mut() {
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
        }
        empty = false;
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_other_commands() {
        assert_eq!([bytes(812.0), bytes(64e3), bytes(31.4e6)], ["812 B", "64.0 KB", "31.4 MB"]);
        assert_eq!(
            [rate(4e6), rate(220e3), rate(999.6)],
            ["4.0 Mbit/s", "220 kbit/s", "1.0 kbit/s"]
        );
        assert_eq!([ms(45.2), ms(2_060.0), ms(5.24)], ["45 ms", "2.1 s", "5.2 ms"]);
        assert_eq!([count(1, "flow"), count(2, "flow")], ["1 flow", "2 flows"]);
        assert_eq!(endpoint(("2001:db8::1".parse().unwrap(), 443)), "[2001:db8::1]:443");
    }

    #[test]
    fn a_paragraph_fits_and_keeps_its_margin() {
        let text = paragraph("  why", "one two three four five six", 8, 20);
        assert_eq!(text, "  why   one two\n        three four\n        five six\n");
        assert!(paragraph("", "averyveryverylongwordthatdoesnotfit x", 2, 10).contains("\n  x"));
    }
}
