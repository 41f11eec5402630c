//! Properties of the guard: its result does not depend on how the bytes are split, every valid request passes, and it
//! finds the end of each.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const MOST: usize = 16 * 1024;

/// Returns the number of bytes that pass.
fn good(bytes: &[u8]) -> usize {
    Guard::new(MOST).judge(bytes).map_or_else(|good| good, |()| bytes.len())
}

fn is_good(text: &str) -> bool {
    good(text.as_bytes()) == text.len()
}

/// Returns the number of bytes that pass if they arrive in pieces.
fn good_in_pieces(bytes: &[u8], ends: &[usize]) -> usize {
    let mut ends: Vec<usize> = ends.iter().map(|end| end % (bytes.len() + 1)).chain([0, bytes.len()]).collect();
    ends.sort_unstable();
    let mut guard = Guard::new(MOST);
    for piece in ends.windows(2) {
        if let Err(good) = guard.judge(&bytes[piece[0]..piece[1]]) {
            assert_eq!(guard.judge(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Err(0), "no byte is valid after a refusal");
            return piece[0] + good;
        }
    }
    bytes.len()
}

#[test]
fn a_valid_request_passes() {
    for head in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nhOST:\tmail.example:8080 \r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\n\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\n\n\n\r\n0A;x=\"y\"\r\n\r\n\n\r\nabcde\r\n\
         0\r\nX: y\r\n\r\n\
         GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert!(is_good(head), "{head:?}");
    }
}

#[test]
fn rejects_requests_that_two_servers_could_parse_differently() {
    let post = "POST / HTTP/1.1\r\nHost: a\r\n";
    for fields in [
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nCONTENT-LENGTH: 2\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: 1 1\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding:\r\n",
        "Host: a\r\n",
        "X: y\n",
    ] {
        assert!(!is_good(&format!("{post}{fields}\r\n")), "{fields:?}");
    }
    for head in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        assert!(!is_good(head), "{head:?}");
    }
}

#[test]
fn chunked_framing_is_parsed_strictly() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "2 \r\nab\r\n0\r\n\r\n",
        " 2\r\nab\r\n0\r\n\r\n",
        "2\nab\r\n0\r\n\r\n",
        "2;x\nab\r\n0\r\n\r\n",
        "2;x\ry\r\nab\r\n0\r\n\r\n",
        "0x2\r\nab\r\n0\r\n\r\n",
        "-1\r\n",
        "\r\n",
        "00000000000000002\r\nab\r\n0\r\n\r\n",
        "2\r\nab0\r\n\r\n",
        "2\r\nabc\r\n0\r\n\r\n",
        "2\r\nab\n0\r\n\r\n",
        "2\r\nab\r\n0\r\n\n",
        "2\r\nab\r\n0\r\nX: y\n\r\n",
    ] {
        assert!(!is_good(&format!("{head}{body}")), "{body:?}");
    }
    assert_eq!(good(format!("{head}{}", "1".repeat(MOST + 1)).as_bytes()), head.len());
}

#[test]
fn an_oversized_head_is_left_to_hyper_and_errors_in_smaller_heads_are_found() {
    let filled = |bytes: usize| {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n";
        format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n", "x".repeat(bytes - head.len()))
    };
    assert!(is_good(&format!("{}Host: b\r\n\r\n", filled(MOST + 1))));
    assert!(!is_good(&format!("{}Host: b\r\n\r\n", filled(MOST))));
    assert!(is_good(&"x".repeat(MOST * 3)));
}

/// A strategy for valid requests, with line ends in every place where they are data.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let piece = || vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'x')], 1..40);
    let sized =
        piece().prop_map(|body| [format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes(), body].concat());
    let chunked = vec(piece(), 0..5).prop_map(|chunks| {
        let mut body = b"Transfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in chunks {
            body.extend_from_slice(format!("{:x};a=b\r\n", chunk.len()).as_bytes());
            body.extend_from_slice(&chunk);
            body.extend_from_slice(b"\r\n");
        }
        [body, b"0\r\nTrailer: x\r\n\r\n".to_vec()].concat()
    });
    let rest = prop_oneof![Just(b"\r\n".to_vec()), sized, chunked];
    rest.prop_map(|rest| [b"POST /v1/messages HTTP/1.1\r\nHost: mail.example\r\n".to_vec(), rest].concat())
}

proptest! {
    #[test]
    fn valid_requests_pass_however_they_are_split(
        requests in vec(request(), 1..5), ends in vec(any::<usize>(), 0..12),
    ) {
        let stream = requests.concat();
        prop_assert_eq!(good_in_pieces(&stream, &ends), stream.len());
    }

    #[test]
    fn an_invalid_line_after_valid_requests_is_found_and_nothing_after_it_passes(
        requests in vec(request(), 0..3), ends in vec(any::<usize>(), 0..12),
    ) {
        let before = requests.concat();
        let faulty = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r";
        let stream = [&before[..], faulty, b"\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        prop_assert_eq!(good_in_pieces(&stream, &ends), before.len() + faulty.len());
    }

    #[test]
    fn any_bytes_get_the_same_result_however_they_are_split(
        bytes in vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b':'), Just(b'0'), any::<u8>()], 0..300),
        requests in vec(request(), 0..2), ends in vec(any::<usize>(), 0..12),
    ) {
        let stream = [requests.concat(), bytes].concat();
        prop_assert_eq!(good_in_pieces(&stream, &ends), good(&stream));
    }
}
