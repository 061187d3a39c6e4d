use proptest::{prop_assert_eq, proptest};

use super::*;
use crate::framing::{
    Framing,
    tests::{LINES, Owned, decode, decode_all_ways, soup, texts, too_large},
};

fn frames(framing: Framing, bytes: &[u8]) -> Vec<Owned> {
    decode_all_ways(framing, 1024, bytes).0.into_iter().map(|frame| frame.expect("frame")).collect()
}

#[test]
fn each_line_that_is_not_blank_is_a_frame() {
    let stream = b"{\"a\":1}\n\n{\"b\":2}\r\n \t\r\n\r\n{\"c\":3}";
    assert_eq!(texts(Framing::Lines, stream), ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]);
    let places: Vec<_> =
        frames(Framing::Lines, stream).iter().map(|frame| (frame.index, frame.offset)).collect();
    assert_eq!(places, [(0, 0), (1, 9), (2, 24)]);
}

#[test]
fn a_lone_carriage_return_does_not_end_a_line() {
    assert_eq!(texts(Framing::Lines, b"{\"a\":\r1}\n\r\n2\r\r\n"), ["{\"a\":\r1}", "2\r"]);
}

#[test]
fn a_byte_order_mark_is_skipped_once() {
    assert_eq!(texts(Framing::Lines, b"\xEF\xBB\xBF1\n\xEF\xBB\xBF2\n"), ["1", "\u{feff}2"]);
    assert_eq!(frames(Framing::Lines, b"\xEF\xBB\xBF1\n")[0].offset, 3);
    assert_eq!(texts(Framing::Lines, b"\xEF\xBB\xBF\n"), [""; 0]);
}

#[test]
fn invalid_utf8_is_replaced_and_counted() {
    let (found, replaced) = decode_all_ways(Framing::Lines, 64, b"\"\xE4\xBD\"\n\xFF\n\"\xE4\xBD\xA0\"");
    let data: Vec<_> = found.into_iter().map(|frame| frame.expect("frame").data).collect();
    assert_eq!(data, ["\"\u{fffd}\"".as_bytes(), "\u{fffd}".as_bytes(), "\"\u{4f60}\"".as_bytes()]);
    assert_eq!(replaced, 3);
}

#[test]
fn a_line_that_is_too_large_is_skipped_and_the_next_is_read() {
    for (line_end, length) in [("\n", 1), ("\r\n", 2)] {
        let stream = format!("1234{line_end}12345{line_end}123456789{line_end}12{line_end}1234");
        let (found, _) = decode_all_ways(Framing::Lines, 4, stream.as_bytes());
        assert_eq!(found.len(), 5);
        assert_eq!(found[0].as_ref().expect("frame").data, b"1234");
        assert_eq!(found[1], Err(too_large(1, 4 + length, 4)));
        assert_eq!(found[2], Err(too_large(2, 9 + 2 * length, 4)));
        let next = found[3].as_ref().expect("frame");
        assert_eq!((next.index, next.offset, &next.data[..]), (3, 18 + 3 * length, &b"12"[..]));
    }
}

#[test]
fn a_last_line_that_is_too_large_is_reported() {
    assert_eq!(decode_all_ways(Framing::Lines, 4, b"12345").0, [Err(too_large(0, 0, 4))]);
    assert_eq!(decode_all_ways(Framing::Lines, 4, b"1234\r").0.len(), 1);
}

#[test]
fn a_code_stands_before_the_first_colon() {
    let stream = b"0:\"a:b\"\r\n9:{\"c\":1}\nno code\n:x\n2:\n";
    let found: Vec<_> = frames(Framing::Coded, stream)
        .into_iter()
        .map(|frame| (frame.event, String::from_utf8(frame.data).expect("text")))
        .collect();
    let code = |code: &str| Some(code.to_owned());
    assert_eq!(
        found,
        [
            (code("0"), "\"a:b\"".to_owned()),
            (code("9"), "{\"c\":1}".to_owned()),
            (None, "no code".to_owned()),
            (code(""), "x".to_owned()),
            (code("2"), String::new()),
        ]
    );
}

#[test]
fn only_coded_lines_have_codes() {
    let found = frames(Framing::Lines, b"0:\"a\"\n");
    assert_eq!((found[0].event.as_deref(), &found[0].data[..]), (None, &b"0:\"a\""[..]));
}

fn pieces(max_frame: usize, chunks: &[&[u8]]) -> (Vec<String>, u64) {
    let (found, replaced) = decode(Framing::Text, max_frame, chunks.iter().copied());
    (
        found.into_iter().map(|frame| String::from_utf8(frame.expect("frame").data).expect("text")).collect(),
        replaced,
    )
}

#[test]
fn unframed_text_is_returned_at_once() {
    assert_eq!(
        pieces(64, &[b"Hel", b"", b"lo\n", b" \n", b"!"]),
        (["Hel", "lo\n", " \n", "!"].map(str::to_owned).to_vec(), 0)
    );
}

#[test]
fn incomplete_character_waits_for_its_rest() {
    assert_eq!(
        pieces(64, &[b"a\xF0", b"\x9F\x98", b"\x80b"]),
        (["a", "\u{1f600}b"].map(str::to_owned).to_vec(), 0)
    );
    assert_eq!(pieces(64, &[b"a\xF0\x9F", b"b"]), (["a", "\u{fffd}b"].map(str::to_owned).to_vec(), 2));
    assert_eq!(pieces(64, &[b"a\xF0\x9F"]), (["a", "\u{fffd}"].map(str::to_owned).to_vec(), 2));
    // `E0` cannot be followed by `80`, so no further byte is awaited.
    assert_eq!(pieces(64, &[b"\xE0\x80"]), (vec!["\u{fffd}\u{fffd}".to_owned()], 2));
}

#[test]
fn long_unframed_text_is_returned_in_pieces() {
    let text = "ab\u{4f60}\u{1f600}".repeat(10);
    for max_frame in 0..12 {
        let (found, replaced) = pieces(max_frame, &[text.as_bytes()]);
        assert_eq!((found.concat(), replaced), (text.clone(), 0));
        assert!(found.iter().all(|piece| piece.len() <= max_frame.max(4)));
    }
}

#[test]
fn text_frames_have_their_offset() {
    let mut decoder = LineDecoder::unframed(64);
    decoder.push(b"\xEF\xBB\xBFab\xE4");
    assert_eq!(decoder.next_frame().unwrap().unwrap().offset, 3);
    decoder.push(b"\xBD\xA0");
    let frame = decoder.next_frame().unwrap().unwrap();
    assert_eq!((frame.index, frame.offset, frame.text()), (1, 5, "\u{4f60}"));
}

proptest! {
    #[test]
    fn lines_are_separated_by_line_feeds(bytes in soup(LINES), max_frame in 0usize..20) {
        let stream = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
        let mut expected = Vec::new();
        for line in stream.split(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.len() > max_frame {
                expected.push(None);
            } else if !line.iter().all(|byte| b" \t\r".contains(byte)) {
                expected.push(Some(String::from_utf8_lossy(line).into_owned()));
            }
        }
        let (found, _) = decode(Framing::Lines, max_frame, bytes.chunks(3));
        let found: Vec<_> = found
            .into_iter()
            .map(|frame| frame.ok().map(|frame| String::from_utf8(frame.data).expect("text")))
            .collect();
        prop_assert_eq!(found, expected);
    }
}
