//! Token, the session's key, and tags.
//!
//! signal: a token that both ends know, the binding of their connection · model: HMAC-SHA-256 (RFC 2104) · action: a proof
//! that the client knows the token, a key for this session, tags of probes and data connections.
//!
//! Token and key never pass the network, not even inside TLS: a proof is of no use to a server that passes it on, since the
//! other connection has another binding. Without a token (`serve --open`) the key still needs the binding.

use std::fs::File;
use std::io::{self, Read};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Length of a tag: HMAC-SHA-256 cut to 128 bits, as RFC 2104 section 5 allows (half of the hash or more).
pub const TAG: usize = 16;
/// A secret of both ends of one connection.
pub type Binding = [u8; 32];

/// The key of a session.
#[derive(Clone)]
pub struct Key([u8; 32]);

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC takes keys of every length.
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| <Hmac<Sha256> as KeyInit>::new(&Default::default()));
    for part in parts {
        mac.update(part);
    }
    mac
}

/// The client's proof that it knows the token.
pub fn proof(token: &str, binding: &Binding) -> String {
    hex(&mac(token.as_bytes(), &[b"proof", binding]).finalize().into_bytes())
}

/// Whether the proof is that of the token; takes the same time for every wrong one.
pub fn proves(given: &str, token: &str, binding: &Binding) -> bool {
    let Some(given) = unhex::<32>(given) else { return false };
    mac(token.as_bytes(), &[b"proof", binding]).verify_slice(&given).is_ok()
}

impl Key {
    /// The key that both ends derive.
    pub fn derived(token: &str, binding: &Binding) -> Key {
        Key(mac(token.as_bytes(), &[b"key", binding]).finalize().into_bytes().into())
    }

    /// The tag of some bytes.
    pub fn tag(&self, bytes: &[u8]) -> [u8; TAG] {
        let whole = mac(&self.0, &[bytes]).finalize().into_bytes();
        let mut tag = [0; TAG];
        tag.copy_from_slice(&whole[..TAG]);
        tag
    }

    /// Whether the tag is that of the bytes.
    pub fn is_tag(&self, bytes: &[u8], tag: &[u8]) -> bool {
        tag.len() == TAG && mac(&self.0, &[bytes]).verify_truncated_left(tag).is_ok()
    }
}

/// Random bytes of the kernel.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes from exactly so many hexadecimal digits.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_is_that_of_rfc_4231() {
        let made = mac(b"Jefe", &[b"what do ya want ", b"for nothing?"]).finalize().into_bytes();
        assert_eq!(hex(&made), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn a_proof_needs_the_token_and_the_same_connection() {
        let given = proof("secret", &[1; 32]);
        assert!(proves(&given, "secret", &[1; 32]));
        assert!(!proves(&given, "other", &[1; 32]));
        assert!(!proves(&given, "secret", &[2; 32]));
        assert!(!proves(&given[..62], "secret", &[1; 32]));
    }

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }
}
