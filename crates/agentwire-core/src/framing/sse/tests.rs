use std::convert::Infallible;

use futures_util::{FutureExt, StreamExt, stream};
use proptest::{
    collection::vec, prelude::Strategy, prop_assert_eq, proptest, sample::select, test_runner::TestCaseError,
};
use sse_stream::{Sse, SseByteStream};

use super::*;
use crate::framing::{
    Framing,
    tests::{Owned, decode, decode_all_ways, texts, too_large},
};

fn frames(bytes: &[u8]) -> Vec<Owned> {
    decode_all_ways(Framing::Sse, 1024, bytes).0.into_iter().map(|frame| frame.expect("frame")).collect()
}

/// Event, id and data.
type Fields = (Option<String>, Option<String>, String);

fn fields(bytes: &[u8]) -> Vec<Fields> {
    frames(bytes)
        .into_iter()
        .map(|frame| (frame.event, frame.id, String::from_utf8(frame.data).expect("text")))
        .collect()
}

fn data(bytes: &[u8]) -> Vec<String> {
    texts(Framing::Sse, bytes)
}

fn events(bytes: &[u8]) -> Vec<Option<String>> {
    frames(bytes).into_iter().map(|frame| frame.event).collect()
}

fn ids(bytes: &[u8]) -> Vec<Option<String>> {
    frames(bytes).into_iter().map(|frame| frame.id).collect()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn retry(bytes: &[u8]) -> Option<u64> {
    let mut decoder = SseDecoder::new(64);
    for byte in bytes.chunks(1) {
        decoder.push(byte);
        while decoder.next_frame().is_some() {}
    }
    decoder.finish();
    assert!(decoder.next_frame().is_none());
    decoder.retry()
}

// The examples of the standard.

#[test]
fn data_lines_are_joined_by_a_line_feed() {
    assert_eq!(data(b"data: YHOO\ndata: +2\ndata: 10\n\n"), ["YHOO\n+2\n10"]);
}

#[test]
fn the_four_blocks_of_the_standard_are_three_frames() {
    let stream = b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event";
    assert_eq!(
        fields(stream),
        [
            (None, some("1"), "first event".to_owned()),
            (None, some(""), "second event".to_owned()),
            (None, some(""), " third event".to_owned()),
        ]
    );
}

#[test]
fn data_without_a_value_is_an_empty_line() {
    assert_eq!(data(b"data\n\ndata\ndata\n\ndata:"), ["", "\n", ""]);
}

#[test]
fn one_space_behind_the_colon_is_dropped() {
    assert_eq!(
        data(b"data:test\n\ndata: test\n\ndata:  test\n\ndata:\ttest\n\n"),
        ["test", "test", " test", "\ttest"]
    );
}

#[test]
fn events_have_names() {
    let stream = b"event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\ndata: 113411\n\n";
    assert_eq!(events(stream), [some("add"), some("remove"), None]);
}

// The rules one by one.

#[test]
fn all_line_ends_are_the_same() {
    for stream in [
        &b"data: a\ndata: b\n\ndata: c\n\n"[..],
        b"data: a\rdata: b\r\rdata: c\r\r",
        b"data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n",
        b"data: a\ndata: b\r\r\ndata: c\r\n\n",
        b"data: a\r\ndata: b\n\r\n\rdata: c\n\r",
    ] {
        assert_eq!(data(stream), ["a\nb", "c"], "{stream:?}");
    }
}

#[test]
fn a_carriage_return_ends_the_frame_at_once() {
    let mut decoder = SseDecoder::new(64);
    decoder.push(b"data: a\r\r");
    assert_eq!(decoder.next_frame().unwrap().unwrap().text(), "a");
    decoder.push(b"\ndata: b\r\n\r");
    let frame = decoder.next_frame().unwrap().unwrap();
    assert_eq!((frame.text(), frame.offset), ("b", 10));
}

#[test]
fn one_byte_order_mark_is_skipped() {
    assert_eq!(data(b"\xEF\xBB\xBFdata: a\n\n"), ["a"]);
    assert_eq!(data(b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\ndata: b\n\n"), ["b"]);
    assert_eq!(data(b"\n\xEF\xBB\xBFdata: a\ndata: b\n\n"), ["b"]);
    assert_eq!(data(b"\xEF\xBB"), [""; 0]);
    assert_eq!(data(b"data: \xEF\xBB\xBFa\n\n"), ["\u{feff}a"]);
}

#[test]
fn comments_and_unknown_fields_are_ignored() {
    let stream = b":\n: comment\nfoo: bar\nfoo\nDATA: no\ndata : no\n data: no\ndatas: no\ndata: a\n:data: no\nidx: no\n\n";
    assert_eq!(fields(stream), [(None, None, "a".to_owned())]);
}

#[test]
fn a_frame_without_data_is_none_but_ends_the_name() {
    assert_eq!(fields(b"event: a\n\ndata: x\n\n"), [(None, None, "x".to_owned())]);
    assert_eq!(fields(b"\n\n\n: ping\n\n"), []);
    assert_eq!(fields(b"event: a\n"), []);
}

#[test]
fn an_empty_name_is_none() {
    assert_eq!(
        events(b"event\ndata: x\n\nevent:\ndata: x\n\nevent: a\nevent: \ndata\n\n"),
        [None, None, None]
    );
}

#[test]
fn the_last_name_counts_wherever_it_stands() {
    assert_eq!(events(b"event: a\ndata: x\nevent: b\ndata: y\n\n"), [some("b")]);
    assert_eq!(data(b"event: a\ndata: x\nevent: b\ndata: y\n\n"), ["x\ny"]);
}

#[test]
fn an_id_stays_until_the_next() {
    let stream = b"data: 0\n\nid: 1\ndata: 1\n\ndata: 2\n\nid: 3\n\ndata: 4\n\ndata: 5\nid:5\n\n";
    assert_eq!(ids(stream), [None, some("1"), some("1"), some("3"), some("5")]);
}

#[test]
fn an_id_with_a_zero_byte_is_ignored() {
    assert_eq!(ids(b"id: 1\ndata\n\nid: a\0b\ndata\n\n"), [some("1"), some("1")]);
}

#[test]
fn an_id_alone_resets() {
    assert_eq!(
        ids(b"id: 1\ndata\n\nid\ndata\n\nid: 2\ndata\n\nid:\ndata\n\n"),
        [some("1"), some(""), some("2"), some("")]
    );
}

#[test]
fn retry_takes_digits_only() {
    assert_eq!(retry(b""), None);
    assert_eq!(retry(b"retry: 3000\n\n"), Some(3000));
    assert_eq!(retry(b"retry:007"), Some(7));
    for ignored in ["", "-1", "+1", "1.5", "1s", " 1", "1 ", "18446744073709551616", "\u{0661}"] {
        assert_eq!(retry(format!("retry: 5\n\nretry: {ignored}\n").as_bytes()), Some(5), "{ignored:?}");
    }
    assert_eq!(retry(b"retry: 5\nretry\n"), Some(5));
}

#[test]
fn the_last_frame_needs_no_end() {
    for stream in [&b"data: a"[..], b"data: a\n", b"data: a\r", b"data: a\r\n", b"data: a\n\n"] {
        assert_eq!(data(stream), ["a"], "{stream:?}");
    }
    assert_eq!(fields(b"data: a\nevent: x"), [(some("x"), None, "a".to_owned())]);
    assert_eq!(ids(b"data: a\nid: 7"), [some("7")]);
    assert_eq!(data(b"data: a\ndata:"), ["a\n"]);
    for cut in [&b"data: a\ndata"[..], b"data: a\ndat"] {
        assert_eq!(data(cut), ["a"], "a word that is cut says nothing");
    }
    assert_eq!(data(b"data"), Vec::<String>::new());
}

#[test]
fn a_value_may_hold_colons_and_zero_bytes() {
    assert_eq!(data(b"data: a: b:c\0\n\n"), ["a: b:c\0"]);
}

#[test]
fn invalid_utf8_is_replaced_and_counted() {
    let stream = b"event: \xFF\nid: \xC3\ndata: a\xE4\xBD\ndata: \xBDb\xFF\n\ndata: \xE4\xBD\xA0\n\n: \xFF\nx\xFF: \xFF\n\n";
    let (found, replaced) = decode_all_ways(Framing::Sse, 1024, stream);
    let first = found[0].clone().expect("frame");
    assert_eq!(first.event, some("\u{fffd}"));
    assert_eq!(first.id, some("\u{fffd}"));
    assert_eq!(first.data, String::from_utf8_lossy(b"a\xE4\xBD\n\xBDb\xFF").as_bytes());
    assert_eq!(found[1].clone().expect("frame").data, "\u{4f60}".as_bytes());
    assert_eq!((found.len(), replaced), (2, 6));
}

#[test]
fn frames_have_their_offset() {
    let stream =
        b"\xEF\xBB\xBFdata: a\n\n\r\n: ping\n\n: note\r\ndata: b\r\n\r\nevent: none\n\n\n\ndata: c\n\n";
    let places: Vec<_> = frames(stream).iter().map(|frame| (frame.index, frame.offset)).collect();
    let at = |text: &[u8]| stream.windows(text.len()).position(|window| window == text).expect("text") as u64;
    assert_eq!(places, [(0, at(b"data: a")), (1, at(b": note")), (2, at(b"data: c"))]);
}

#[test]
fn a_payload_of_one_line_is_borrowed_from_the_buffer() {
    let mut decoder = SseDecoder::new(1024);
    decoder.push(b"event: a\ndata: {\"some\":\"json\"}\nid: 1\n\n");
    let before = decoder.buffer.rest().as_ptr_range();
    let frame = decoder.next_frame().unwrap().unwrap();
    assert!(before.contains(&frame.text().as_ptr()));
}

#[test]
fn a_frame_that_is_too_large_is_skipped_and_the_next_is_read() {
    let stream = b"data: 1\n\n: x\ndata: 01234\ndata: 56789\ndata: more\nevent: e\n\ndata: 0123456789\n\n";
    let (found, _) = decode_all_ways(Framing::Sse, 10, stream);
    assert_eq!(found.len(), 3);
    assert_eq!(found[0].as_ref().expect("frame").index, 0);
    assert_eq!(found[1], Err(too_large(1, 9, 10)));
    let last = found[2].as_ref().expect("frame");
    assert_eq!((last.index, last.event.as_deref(), &last.data[..]), (2, None, &b"0123456789"[..]));
}

#[test]
fn the_id_of_a_frame_that_is_too_large_still_counts() {
    let stream = b"id: 1\ndata: 0123456789a\n\ndata: x\n\ndata: 0123456789a\nid: 2\nretry: 9\n\ndata: y\n\n";
    let (found, _) = decode_all_ways(Framing::Sse, 10, stream);
    let ids: Vec<_> = found.into_iter().filter_map(Result::ok).map(|frame| frame.id).collect();
    assert_eq!(ids, [some("1"), some("2")]);
}

#[test]
fn an_id_that_is_too_large_is_refused_with_its_frame() {
    let (found, _) = decode_all_ways(Framing::Sse, 4, b"id: 1\n\nid: 12345\ndata: x\n\ndata: y\n\n");
    assert_eq!(found[0], Err(too_large(0, 7, 4)));
    assert_eq!(found[1].as_ref().expect("frame").id, some("1"));
}

/// The output of another decoder, adapted to this one: it keeps no id, returns frames without data and drops an
/// unterminated last frame.
fn reference(chunks: Vec<Vec<u8>>) -> (Vec<Fields>, Option<u64>) {
    let end = b"\n\n".to_vec();
    let stream = stream::iter(
        chunks.into_iter().chain([end]).map(|chunk| Ok::<_, Infallible>(bytes::Bytes::from(chunk))),
    );
    let blocks: Vec<Result<Sse, _>> =
        SseByteStream::new(stream).collect().now_or_never().expect("nothing to wait for");
    let (mut frames, mut id, mut retry) = (Vec::new(), None, None);
    for block in blocks {
        let block = block.expect("valid UTF-8");
        id = block.id.or(id);
        retry = block.retry.or(retry);
        if let Some(data) = block.data {
            frames.push((block.event.filter(|event| !event.is_empty()), id.clone(), data));
        }
    }
    (frames, retry)
}

fn tokens() -> impl Strategy<Value = Vec<&'static str>> {
    const TOKENS: &[&str] = &[
        "data",
        "data:",
        "data: ",
        "event",
        "event:",
        "event: ",
        "id",
        "id:",
        "id: ",
        "retry:",
        "retry: ",
        ":",
        " ",
        "\n",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "\r\r",
        "\r\n\r\n",
        "\0",
        "0",
        "12",
        "99999999999999999999",
        "a",
        "some longer text",
        "{\"a\":1}",
        "\u{4f60}\u{597d}",
        "\u{1f600}",
        "\u{feff}",
        "\u{2028}",
        "foo: bar",
        "d",
        "da",
        "dat",
        "i",
        "re",
    ];
    vec(select(TOKENS), 0..40)
}

proptest! {
    #[test]
    fn agrees_with_another_decoder(tokens in tokens(), sizes in vec(1usize..9, 1..20)) {
        let mut bytes = tokens.concat().into_bytes();
        // The other decoder treats an unterminated last word as a complete line; this one treats it as incomplete.
        let last = bytes.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
        if !bytes[last..].contains(&b':') {
            bytes.truncate(last);
        }
        let mut rest = &bytes[..];
        let mut chunks = Vec::new();
        for size in sizes {
            let (chunk, behind) = rest.split_at(size.min(rest.len()));
            chunks.push(chunk.to_vec());
            rest = behind;
        }
        chunks.push(rest.to_vec());
        let (frames, replaced) = decode(Framing::Sse, 4096, chunks.iter().map(Vec::as_slice));
        let frames = frames
            .into_iter()
            .map(|frame| {
                let frame = frame.map_err(|error| TestCaseError::fail(error.to_string()))?;
                let data = String::from_utf8(frame.data).map_err(|error| TestCaseError::fail(error.to_string()))?;
                Ok((frame.event, frame.id, data))
            })
            .collect::<Result<Vec<_>, TestCaseError>>()?;
        let mut decoder = SseDecoder::new(4096);
        decoder.push(&bytes);
        decoder.finish();
        while decoder.next_frame().is_some() {}
        prop_assert_eq!(((frames, decoder.retry()), replaced), (reference(chunks), 0));
    }
}
