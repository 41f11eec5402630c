//! Tests of the end and the content of messages, compared with a reference that reads the whole input at once.

use proptest::prelude::*;

use super::*;

fn read_in_pieces(input: &[u8], piece: usize) -> (Option<usize>, Result<Vec<u8>, DataRefusal>) {
    read_as(LineEnds::Refuse, input, piece)
}

fn read_as(line_ends: LineEnds, input: &[u8], piece: usize) -> (Option<usize>, Result<Vec<u8>, DataRefusal>) {
    let mut reader = DataReader::new(100, line_ends);
    let mut consumed = 0;
    for chunk in input.chunks(piece) {
        if let Some(used) = reader.read(chunk) {
            return (Some(consumed + used), reader.finish());
        }
        consumed += chunk.len();
    }
    (None, reader.finish())
}

#[test]
fn only_cr_lf_dot_cr_lf_ends_a_message_and_other_variants_are_refused() {
    let table: [(&[u8], DataRefusal); 19] = [
        (b"\n.\n", DataRefusal::BareLf),
        (b"\n.\r\n", DataRefusal::BareLf),
        (b"\r\n.\n", DataRefusal::BareLf),
        (b"\n.\r", DataRefusal::BareLf),
        (b"\n\n.\n", DataRefusal::BareLf),
        (b"\n.\n\r", DataRefusal::BareLf),
        (b"\n\r.\r\n", DataRefusal::BareLf),
        (b"\r.\r", DataRefusal::BareCr),
        (b"\r.\r\n", DataRefusal::BareCr),
        (b"\r.\n", DataRefusal::BareCr),
        (b"\r\n.\r", DataRefusal::BareCr),
        (b"\r\n.\r\r\n", DataRefusal::BareCr),
        (b"\r\r\n.\r", DataRefusal::BareCr),
        (b"\r\n\r.\r\n", DataRefusal::BareCr),
        (b"\r\n.\r.\r\n", DataRefusal::BareCr),
        (b"\r\n.\r\0\n", DataRefusal::BareCr),
        (b"\r\n\n.\r\n", DataRefusal::BareLf),
        (b"\r\0\n.\r\n", DataRefusal::BareCr),
        (b"\r\n.\0\n", DataRefusal::BareLf),
    ];
    for (variant, fault) in table {
        let smuggled = b"MAIL FROM:<x@y.example>\r\n.\r\n".as_slice();
        let input = [b"text".as_slice(), variant, smuggled].concat();
        for piece in [1, 2, 3, 1000] {
            let (end, message) = read_in_pieces(&input, piece);
            assert_eq!(end, Some(input.len()), "{variant:?} ended the message");
            assert_eq!(message, Err(fault), "{variant:?}");
        }
    }
}

#[test]
fn finds_the_end_for_any_split_of_the_input() {
    for piece in 1..12 {
        let (end, message) = read_in_pieces(b"a\r\n..\r\n.b\r\n\r\n...\r\n.\r\nNOOP\r\n", piece);
        assert_eq!((end, message), (Some(21), Ok(b"a\r\n.\r\nb\r\n\r\n..\r\n".to_vec())));
    }
    assert_eq!(read_in_pieces(b".\r\n", 1), (Some(3), Ok(Vec::new())));
}

#[test]
fn a_message_over_the_size_is_read_to_its_end_but_not_stored() {
    let mut reader = DataReader::new(10, LineEnds::Refuse);
    assert_eq!(reader.read(b"12345678\r\n"), None);
    assert_eq!(reader.read(b"9"), None);
    assert_eq!(reader.message.capacity(), 0);
    assert_eq!(reader.read(b"\r\n.\r\nQUIT"), Some(5));
    assert!(!reader.is_over_read_limit());
    assert_eq!(reader.finish(), Err(DataRefusal::TooLarge));

    let exactly = read_in_pieces(&[[b'x'; 98].as_slice(), b"\r\n.\r\n"].concat(), 7);
    assert_eq!(exactly.1.map(|message| message.len()), Ok(100));
}

proptest! {
    #[test]
    fn data_ends_only_at_the_first_cr_lf_dot_cr_lf(
        bytes in prop::collection::vec(prop::sample::select(b"\r\n.x".to_vec()), 0..60),
        piece in 1_usize..60,
    ) {
        let input = [bytes.as_slice(), b"\r\n.\r\n"].concat();
        let from_line_start = [b"\r\n", input.as_slice()].concat();
        let expected = from_line_start.windows(5).position(|window| window == b"\r\n.\r\n").map(|at| at + 3);
        let (end, message) = read_in_pieces(&input, piece);
        prop_assert_eq!(end, expected);
        if let Ok(message) = message {
            let mut stuffed = Vec::new();
            for line in message.split_inclusive(|&b| b == b'\n') {
                stuffed.extend_from_slice(if line.starts_with(b".") { b"." } else { b"" });
                stuffed.extend_from_slice(line);
            }
            // A client may also have stuffed a line that needed no dot. Then our encoding is shorter.
            prop_assert!(stuffed.len() <= input.len());
            prop_assert!(!message.windows(2).any(|pair| (pair[0] == b'\r') != (pair[1] == b'\n')));
        }
    }
}

/// Implements repair mode as a reference, by scanning all of `input`. Returns the end after the first CR LF `.` CR LF,
/// and the message, or `None` if it is refused.
fn repaired(input: &[u8]) -> (Option<usize>, Option<Vec<u8>>) {
    let from_line_start = [b"\r\n", input].concat();
    let Some(at) = from_line_start.windows(5).position(|window| window == b"\r\n.\r\n") else { return (None, None) };
    let (body, mut message, mut was_bare) = (&input[..at], Vec::new(), false);
    for line in body.split_inclusive(|&b| b == b'\n') {
        let (text, is_bare) = match line.strip_suffix(b"\r\n") {
            Some(text) => (text, false),
            None => (line.strip_suffix(b"\n").unwrap(), true),
        };
        if text.contains(&b'\r') || text == b"." && (is_bare || was_bare) {
            return (Some(at + 3), None);
        }
        message.extend_from_slice(text.strip_prefix(b".").unwrap_or(text));
        message.extend_from_slice(b"\r\n");
        was_bare = is_bare;
    }
    (Some(at + 3), Some(message))
}

#[test]
fn repair_ends_lines_at_a_bare_lf_and_unstuffs_following_dots() {
    for piece in 1..12 {
        let read = |input: &[u8]| read_as(LineEnds::Repair, input, piece);
        assert_eq!(read(b"a\n..b\n\nc\r\n.\r\nQUIT"), (Some(13), Ok(b"a\r\n.b\r\n\r\nc\r\n".to_vec())));
        assert_eq!(read(b"a\n.b\r\n.\r\n"), (Some(9), Ok(b"a\r\nb\r\n".to_vec())));
    }
}

#[test]
fn repair_still_refuses_a_lone_dot_beside_a_bare_lf_or_cr() {
    let table: [(&[u8], DataRefusal); 8] = [
        (b"a\n.\n", DataRefusal::LoneDot),
        (b"a\n.\r\n", DataRefusal::LoneDot),
        (b"a\r\n.\n", DataRefusal::LoneDot),
        (b".\n", DataRefusal::LoneDot),
        (b"a\rb", DataRefusal::BareCr),
        (b"a\r.\r\n", DataRefusal::BareCr),
        (b"a\n.\rb", DataRefusal::BareCr),
        (b"a\r\n\r\r\n", DataRefusal::BareCr),
    ];
    for (variant, fault) in table {
        let input = [variant, b"MAIL FROM:<evil@example.test>\r\n.\r\n"].concat();
        for piece in [1, 2, 3, 1000] {
            assert_eq!(read_as(LineEnds::Repair, &input, piece), (Some(input.len()), Err(fault)), "{variant:?}");
        }
    }
}

proptest! {
    #[test]
    fn repair_equals_the_reference_at_every_split(
        bytes in prop::collection::vec(prop::sample::select(b"\r\n\n..x".to_vec()), 0..45),
        piece in 1_usize..60,
    ) {
        let input = [bytes.as_slice(), b"\r\n.\r\n"].concat();
        let (end, message) = read_as(LineEnds::Repair, &input, piece);
        let (expected_end, expected) = repaired(&input);
        prop_assert_eq!(end, expected_end);
        prop_assert_eq!(message.ok(), expected);
    }
}
