//! AFC's rate option: the reading rate in one byte, and the five bytes that carry it.
//!
//! signal: a rate · model: a floating-point code with four bits of exponent and four of mantissa,
//! gradual below 32 kbit/s · action: zero is zero. Steps are 2 kbit/s below that, and between 1/32 and
//! 1/16 of the value above, up to 1.016 Gbit/s. Rounding to the nearest code changes a rate by at most
//! 1/32.
//!
//! | byte | 0 | 1 | 2 | 3 | 4 |
//! |---|---|---|---|---|---|
//! | | kind 253 | length 5 | identifier, high | low | value |
//!
//! Source: the slides' AFC has "one byte for the type of option and one for the value". Kind 253 is for
//! experiments (RFC 4727 section 2.2) and has to carry an identifier (RFC 6994 section 3.1). The
//! identifier is this project's choice and not registered with IANA. The code of the value byte is
//! this project's choice too: the papers give only its size.

use units::Rate;

/// Experimental option (RFC 4727).
pub const KIND: u8 = 253;
/// Kind, length, identifier, value.
pub const LENGTH: u8 = 5;
/// The 16-bit experiment identifier: "AF" for AFC and a number.
pub const IDENTIFIER: u16 = 0xAFC1;

/// The smallest step, in bits per second. With it the largest code is just above 1 Gbit/s.
const UNIT: u64 = 2_000;

/// The rate of a value byte.
pub const fn decode(value: u8) -> Rate {
    let exponent = value >> 4;
    let mantissa = (value & 15) as u64;
    Rate(UNIT * if exponent == 0 { mantissa } else { (16 + mantissa) << (exponent - 1) })
}

/// The value byte with the nearest rate; the largest byte for all higher rates.
pub const fn encode(rate: Rate) -> u8 {
    // Codes grow with the rates, so the largest code at or below the rate is found bit by bit.
    let mut code: u8 = 0;
    let mut bit: u8 = 128;
    while bit > 0 {
        if decode(code | bit).0 <= rate.0 {
            code |= bit;
        }
        bit >>= 1;
    }
    if code < u8::MAX && decode(code + 1).0 - rate.0 < rate.0 - decode(code).0 {
        code += 1;
    }
    code
}

/// The option as it goes on the wire.
pub const fn to_wire(value: u8) -> [u8; 5] {
    let [high, low] = IDENTIFIER.to_be_bytes();
    [KIND, LENGTH, high, low, value]
}

/// The value byte of an option; `None` for any other option.
pub const fn from_wire(option: [u8; 5]) -> Option<u8> {
    let [kind, length, high, low, value] = option;
    if kind == KIND && length == LENGTH && u16::from_be_bytes([high, low]) == IDENTIFIER {
        Some(value)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_survives_the_code_and_the_wire() {
        let mut last = None;
        for value in 0..=255 {
            assert_eq!(encode(decode(value)), value);
            assert_eq!(from_wire(to_wire(value)), Some(value));
            assert!(last < Some(decode(value).0));
            last = Some(decode(value).0);
        }
        assert_eq!((decode(0), decode(255)), (Rate(0), Rate(1_015_808_000)));
        assert_eq!(encode(Rate(u64::MAX)), 255);
    }

    #[test]
    fn a_rate_is_at_most_one_thirty_second_off() {
        let mut rate = 32_000_u64;
        while rate < 1_000_000_000 {
            let back = decode(encode(Rate(rate))).0;
            assert!(back.abs_diff(rate) * 32 <= rate, "{rate} {back}");
            rate += rate / 97 + 1;
        }
    }

    #[test]
    fn another_experimental_option_is_ignored() {
        let [kind, length, high, low, value] = to_wire(7);
        assert_eq!(from_wire([kind, length, high, low ^ 1, value]), None);
        assert_eq!(from_wire([254, length, high, low, value]), None);
        assert_eq!(from_wire([kind, 4, high, low, value]), None);
    }
}
