//! Requests for the page: as much of HTTP/1.1 (RFC 9112) as one page needs. httparse reads the bytes; what is decided here
//! is who may have the page.
//!
//! A request ends with the empty line after its header fields. Bytes after that line are ignored,
//! because every answer ends its connection.

use std::net::IpAddr;

use httparse::{Error, Status};

/// Longest request, in bytes; those of scrapers have a few hundred.
pub const MAX_REQUEST: usize = 8_192;
/// Header fields of a request; scrapers send fewer than ten, browsers some twenty.
const MAX_FIELDS: usize = 64;

/// What a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Incomplete: more bytes are needed.
    More,
    /// The page, with GET.
    Page,
    /// Its header alone, with HEAD.
    Head,
    /// Neither; the status code of the answer.
    Refused(u16),
}

/// Parses the bytes that a client has sent so far.
///
/// `by_address`: the request came over TCP, perhaps from a page of another origin (DNS rebinding).
/// Then its Host has to be a loopback address or `localhost`.
pub fn parse(bytes: &[u8], by_address: bool) -> Request {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(&bytes[..bytes.len().min(MAX_REQUEST)]) {
        Ok(Status::Complete(_)) => {}
        Ok(Status::Partial) if bytes.len() < MAX_REQUEST => return Request::More,
        Ok(Status::Partial) | Err(Error::TooManyHeaders) => return Request::Refused(431),
        Err(Error::Version) => return Request::Refused(505),
        Err(_) => return Request::Refused(400),
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Request::Refused(400);
    };
    let mut hosts = Vec::new();
    for field in request.headers.iter().filter(|f| f.name.eq_ignore_ascii_case("host")) {
        let Ok(host) = std::str::from_utf8(field.value) else { return Request::Refused(400) };
        hosts.push(host.trim());
    }
    // RFC 9112 section 3.2: exactly one Host with 1.1.
    if hosts.len() > 1 || minor == 1 && hosts.is_empty() {
        return Request::Refused(400);
    }
    // RFC 9112 section 3.2.2: absolute-form is accepted by every server, and its host counts more.
    let (host, path) = match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
            let slash = rest.find('/').unwrap_or(rest.len());
            (Some(&rest[..slash]), &rest[slash..])
        }
        _ => (hosts.first().copied(), target),
    };
    if by_address && host.is_some_and(|host| !loopback(host)) {
        return Request::Refused(421);
    }
    match (method, path.split('?').next()) {
        ("GET", Some("/metrics")) => Request::Page,
        ("HEAD", Some("/metrics")) => Request::Head,
        (_, Some("/metrics")) => Request::Refused(405),
        _ => Request::Refused(404),
    }
}

/// Whether a Host names this host's loopback, with or without a port.
fn loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The phrase of a status.
pub fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        505 => "HTTP Version Not Supported",
        _ => "Bad Request",
    }
}

/// An answer; `body` is left out for HEAD, but its length is given.
pub fn answer(status: u16, body: &str, head_only: bool) -> Vec<u8> {
    let kind = if status == 200 { super::CONTENT_TYPE } else { "text/plain; charset=utf-8" };
    // RFC 9110 section 15.5.6: 405 says what is allowed.
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    let mut answer = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        phrase(status),
        body.len()
    );
    if !head_only {
        answer.push_str(body);
    }
    answer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Request {
        parse(text.as_bytes(), true)
    }

    #[test]
    fn a_scraper_gets_the_page_and_nothing_before_its_request_is_whole() {
        let whole = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9469\r\nAccept: application/openmetrics-text\r\n\r\n";
        for cut in 0..whole.len() {
            assert_eq!(of(&whole[..cut]), Request::More, "{cut}");
        }
        assert_eq!(of(whole), Request::Page);
        assert_eq!(of("GET /metrics?a=b HTTP/1.0\n\n"), Request::Page);
        assert_eq!(of("GET http://[::1]:1/metrics HTTP/1.1\r\nHost: evil\r\n\r\n"), Request::Page);
        // RFC 9112 section 2.2: an empty line before the request is ignored.
        assert_eq!(of("\r\nGET /metrics HTTP/1.0\r\n\r\n"), Request::Page);
        assert_eq!(of("HEAD /metrics HTTP/1.1\r\nhost:localhost\r\n\r\n"), Request::Head);
    }

    #[test]
    fn what_is_no_request_for_the_page_is_refused_with_the_status_of_its_fault() {
        for (text, status) in [
            ("GET /metrics\r\n\r\n", 400),
            ("GET  /metrics HTTP/1.1\r\nHost: ::1\r\n\r\n", 400),
            ("GET /metrics HTTP/1.1\r\n\r\n", 400),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
            ("GET /metrics HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
            ("GET /metrics HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
            ("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
            // RFC 9110 section 15.5.20: another host's request.
            ("GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 421),
        ] {
            assert_eq!(of(text), Request::Refused(status), "{text}");
        }
        assert_eq!(of(&"a".repeat(MAX_REQUEST)), Request::Refused(431));
        let long = format!(
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
            "a".repeat(MAX_REQUEST)
        );
        assert_eq!(of(&long), Request::Refused(431));
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nHost: any\r\n\r\n", false), Request::Page);
    }
}
