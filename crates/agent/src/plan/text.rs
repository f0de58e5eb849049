//! Numbers as a person reads them, and paragraphs that fit a terminal. Numbers are written as
//! `unbloat analyze` writes them: `31.4 MB`, `4.0 Mbit/s`, `187 ms`; Mbit/s is 10⁶ bit/s and MB is
//! 10⁶ bytes.

use std::net::{IpAddr, SocketAddr};

use units::text::{Step, scaled, step};

/// One to three places before the point, and one behind it below a hundred with a prefix.
const fn steps(units: [&'static str; 4]) -> [Step; 7] {
    let [one, kilo, mega, giga] = units;
    [
        step(999.5, 1.0, 0, one),
        step(99.5e3, 1e3, 1, kilo),
        step(999.5e3, 1e3, 0, kilo),
        step(99.5e6, 1e6, 1, mega),
        step(999.5e6, 1e6, 0, mega),
        step(99.5e9, 1e9, 1, giga),
        step(f64::MAX, 1e9, 0, giga),
    ]
}

/// A number of bytes: `64.0 KB`.
pub fn bytes(value: f64) -> String {
    scaled(value, &steps([" B", " KB", " MB", " GB"]))
}

/// A rate in bit/s: `4.0 Mbit/s`.
pub fn rate(bps: f64) -> String {
    scaled(bps, &steps([" bit/s", " kbit/s", " Mbit/s", " Gbit/s"]))
}

/// `45 ms`, `2.1 s`.
pub fn ms(value: f64) -> String {
    // Only what is not 0 has a second place.
    let small = step(0.995, 1.0, if value == 0.0 { 1 } else { 2 }, " ms");
    let steps =
        [small, step(10.0, 1.0, 1, " ms"), step(1e3, 1.0, 0, " ms"), step(f64::MAX, 1e3, 1, " s")];
    scaled(value, &steps)
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
