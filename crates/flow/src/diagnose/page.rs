//! The manual page of a rule, taken from the head of its own source file at compile time, so that comment,
//! program and documentation cannot differ: the leading `//!` lines without their mark.

/// Length of the page in `source`, in bytes.
pub(super) const fn length(source: &str) -> usize {
    copy(source.as_bytes(), &mut [])
}

/// The page in `source`; `N` is its [`length`].
pub(super) const fn bytes<const N: usize>(source: &str) -> [u8; N] {
    let mut out = [0; N];
    copy(source.as_bytes(), &mut out);
    out
}

/// Copies as much of the page into `out` as fits; returns the length of the whole page.
const fn copy(text: &[u8], out: &mut [u8]) -> usize {
    let (mut i, mut n) = (0, 0);
    while i + 2 < text.len() && text[i] == b'/' && text[i + 1] == b'/' && text[i + 2] == b'!' {
        i += 3;
        if i < text.len() && text[i] == b' ' {
            i += 1;
        }
        while i < text.len() {
            let byte = text[i];
            if n < out.len() {
                out[n] = byte;
            }
            n += 1;
            i += 1;
            if byte == b'\n' {
                break;
            }
        }
    }
    n
}

/// `page!("rule.rs")`: the manual page of that file.
macro_rules! page {
    ($file:literal) => {{
        const SOURCE: &str = include_str!($file);
        const BYTES: [u8; super::page::length(SOURCE)] = super::page::bytes(SOURCE);
        match std::str::from_utf8(&BYTES) {
            Ok(text) => text,
            // whole lines of a UTF-8 file are UTF-8; a build error otherwise
            Err(_) => panic!("page is not UTF-8"),
        }
    }};
}
pub(super) use page;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_the_leading_comment_without_its_marks() {
        const SOURCE: &str = "//! # a\n//!\n//! b ≥ c\nuse x;\n//! d\n";
        assert_eq!(std::str::from_utf8(&bytes::<{ length(SOURCE) }>(SOURCE)), Ok("# a\n\nb ≥ c\n"));
        assert_eq!(length("use x;\n"), 0);
    }
}
