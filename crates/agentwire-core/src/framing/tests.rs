//! Properties of every framing: any split of the bytes gives the same frames, and memory is bounded.

use std::ops::Range;

use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any, prop_oneof},
    prop_assert, prop_assert_eq, proptest,
};

use super::*;

/// A frame that outlives its decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) index: u64,
    pub(super) offset: u64,
    pub(super) event: Option<String>,
    pub(super) id: Option<String>,
    pub(super) data: Vec<u8>,
}

pub(super) type Outcome = (Vec<Result<Owned, FrameError>>, u64);

/// Takes everything out of `decoder` that it has.
pub(super) fn drain(decoder: &mut Decoder, found: &mut Vec<Result<Owned, FrameError>>) {
    while let Some(frame) = decoder.next_frame() {
        found.push(frame.map(|frame| Owned {
            index: frame.index,
            offset: frame.offset,
            event: frame.event.map(str::to_owned),
            id: frame.id.map(str::to_owned),
            data: match frame.data {
                Payload::Text(text) => text.as_bytes().to_vec(),
                Payload::Bytes(bytes) => bytes.to_vec(),
            },
        }));
    }
}

pub(super) fn decode<'a>(
    framing: Framing,
    max_frame: usize,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Outcome {
    let mut decoder = Decoder::new(framing, max_frame);
    let mut found = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        drain(&mut decoder, &mut found);
    }
    decoder.finish();
    drain(&mut decoder, &mut found);
    drain(&mut decoder, &mut found);
    (found, decoder.replaced())
}

/// Decodes at several chunk sizes, which must not matter.
pub(super) fn decode_all_ways(framing: Framing, max_frame: usize, bytes: &[u8]) -> Outcome {
    let whole = decode(framing, max_frame, [bytes]);
    for size in [1, 2, 3, 5, 7] {
        assert_eq!(decode(framing, max_frame, bytes.chunks(size)), whole, "in chunks of {size}");
    }
    whole
}

/// The payloads of a stream that has no errors.
pub(super) fn texts(framing: Framing, bytes: &[u8]) -> Vec<String> {
    decode_all_ways(framing, 1024, bytes)
        .0
        .into_iter()
        .map(|frame| String::from_utf8(frame.expect("frame").data).expect("text"))
        .collect()
}

pub(super) fn too_large(index: u64, offset: u64, limit: usize) -> FrameError {
    FrameError { index, offset, problem: FrameProblem::TooLarge { limit } }
}

/// Bytes made of pieces that mean something to one of the decoders.
pub(super) fn soup(pieces: &'static [&'static [u8]]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        12 => proptest::sample::select(pieces).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 1..4),
        1 => (1usize..40).prop_map(|length| vec![b'x'; length]),
    ];
    let mark = prop_oneof![4 => Just(&b""[..]), 1 => Just(&b"\xEF\xBB\xBF"[..]), 1 => Just(&b"\xEF\xBB"[..])];
    (mark, vec(piece, 0..24)).prop_map(|(mark, pieces)| [mark.to_vec(), pieces.concat()].concat())
}

const SSE: &[&[u8]] = &[
    b"data",
    b"data:",
    b"data: ",
    b"event",
    b"event: ",
    b"id",
    b"id: ",
    b"retry: ",
    b"retry:",
    b":",
    b" ",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\r\r",
    b"\n\r",
    b"\0",
    b"7",
    b"x",
    b"foo: bar",
    "\u{4f60}\u{1f600}".as_bytes(),
    b"\xE4\xBD",
    b"\xFF",
    b"\xEF\xBB\xBF",
];
pub(super) const LINES: &[&[u8]] = &[
    b"{}",
    b"0:",
    b":",
    b"\"a\"",
    b"\n",
    b"\r\n",
    b"\r",
    b" ",
    b"\t",
    "\u{4f60}".as_bytes(),
    b"\xF0\x9F",
    b"\xFF",
];
const ARRAY: &[&[u8]] = &[
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b"\"",
    b"\\",
    b"\\\"",
    b":",
    b"1",
    b"true",
    b"-1.5e+3",
    b" ",
    b"\n",
    b"{\"a\":[1,2]}",
    b"\"s]\"",
    b"[]",
    b"{}",
    "\u{4f60}".as_bytes(),
    b"\xFF",
];
const PREFIXED: &[&[u8]] =
    &[b"\0\0\0", b"\0\0\0\x01", b"\0\0\0\x03abc", b"\0\0\0\0", b"\x02", b"ab", b"\xFF\xFF\xFF\xFF"];

/// A document that begins as the decoder wants it, so that the soup is not only garbage.
fn array_soup() -> impl Strategy<Value = Vec<u8>> {
    let elements = prop_oneof![
        Just(&b"{\"a\":[1,2]}"[..]),
        Just(&b"\"s]\\\"\""[..]),
        Just(&b"[[],{}]"[..]),
        Just(&b"-1.5"[..]),
        Just(&b"null"[..]),
        Just(&b"{ \"long\": \"0123456789 0123456789 0123456789\" }"[..]),
    ];
    let gap = prop_oneof![Just(&b","[..]), Just(&b" ,\n "[..])];
    (vec((elements, gap), 0..8), soup(ARRAY)).prop_map(|(elements, tail)| {
        let body: Vec<_> = elements.iter().flat_map(|(element, gap)| [*element, *gap]).collect();
        [&b"["[..], &body.concat(), &tail].concat()
    })
}

/// Cuts bytes at the given places, each a position modulo what is left.
fn cut<'a>(mut bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    for cut in cuts {
        let (chunk, rest) = bytes.split_at(cut % (bytes.len() + 1));
        chunks.push(chunk);
        bytes = rest;
    }
    chunks.push(bytes);
    chunks
}

/// The frames do not depend on the cuts, nor on how often they are asked for.
fn is_split_invariant(
    framing: Framing,
    max_frame: usize,
    bytes: &[u8],
    cuts: &[usize],
) -> Result<(), String> {
    let whole = decode(framing, max_frame, [bytes]);
    for chunks in [bytes.chunks(1).collect(), cut(bytes, cuts)] {
        let split = decode(framing, max_frame, chunks.iter().copied());
        if split != whole {
            return Err(format!("{chunks:?} gives {split:?}, not {whole:?}"));
        }
        let mut decoder = Decoder::new(framing, max_frame);
        let mut found = Vec::new();
        for (position, chunk) in chunks.iter().enumerate() {
            decoder.push(chunk);
            if position % 3 == 0 {
                found.extend(decoder.next_frame().map(|frame| frame.map(|frame| frame.index)));
            }
        }
        decoder.finish();
        while let Some(frame) = decoder.next_frame() {
            found.push(frame.map(|frame| frame.index));
        }
        let expected: Vec<_> = whole.0.iter().cloned().map(|frame| frame.map(|frame| frame.index)).collect();
        if found != expected {
            return Err(format!("{chunks:?} without draining gives {found:?}, not {expected:?}"));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_server_sent_events(
        bytes in soup(SSE), cuts in vec(any::<usize>(), 0..12), max_frame in 0usize..30,
    ) {
        prop_assert_eq!(is_split_invariant(Framing::Sse, max_frame, &bytes, &cuts), Ok(()));
        prop_assert_eq!(is_split_invariant(Framing::Sse, 1024, &bytes, &cuts), Ok(()));
    }

    #[test]
    fn any_cut_gives_the_same_lines(
        bytes in soup(LINES), cuts in vec(any::<usize>(), 0..12), max_frame in 0usize..20,
    ) {
        for framing in [Framing::Lines, Framing::Coded] {
            prop_assert_eq!(is_split_invariant(framing, max_frame, &bytes, &cuts), Ok(()));
            prop_assert_eq!(is_split_invariant(framing, 1024, &bytes, &cuts), Ok(()));
        }
    }

    #[test]
    fn any_cut_gives_the_same_elements(
        bytes in prop_oneof![soup(ARRAY), array_soup()], cuts in vec(any::<usize>(), 0..12), max_frame in 0usize..30,
    ) {
        prop_assert_eq!(is_split_invariant(Framing::Array, max_frame, &bytes, &cuts), Ok(()));
        prop_assert_eq!(is_split_invariant(Framing::Array, 1024, &bytes, &cuts), Ok(()));
    }

    #[test]
    fn any_cut_gives_the_same_binary_frames(
        bytes in soup(PREFIXED), cuts in vec(any::<usize>(), 0..12), max_frame in 0usize..5,
    ) {
        prop_assert_eq!(is_split_invariant(Framing::Prefixed, max_frame, &bytes, &cuts), Ok(()));
        prop_assert_eq!(is_split_invariant(Framing::Prefixed, 1024, &bytes, &cuts), Ok(()));
    }

    #[test]
    fn any_cut_gives_the_same_text(
        bytes in soup(LINES), cuts in vec(any::<usize>(), 0..12), max_frame in 0usize..20,
    ) {
        let expected = String::from_utf8_lossy(bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes)).into_owned();
        for chunks in [bytes.chunks(1).collect(), cut(&bytes, &cuts), vec![&bytes[..]]] {
            let (frames, _) = decode(Framing::Text, max_frame, chunks);
            let mut text = Vec::new();
            for frame in frames {
                text.extend(frame.expect("text is never too large").data);
            }
            prop_assert_eq!(String::from_utf8(text).expect("text"), expected.clone());
        }
    }

    #[test]
    fn detection_of_arbitrary_bytes_never_panics(bytes in prop_oneof![soup(SSE), soup(LINES), soup(ARRAY), soup(PREFIXED)]) {
        let allowed = [Framing::Sse, Framing::Lines, Framing::Array, Framing::Coded, Framing::Prefixed];
        let found = detect(&bytes, &allowed);
        for framing in allowed {
            prop_assert_eq!(detect(&bytes, &[framing]), Some(framing));
            let without: Vec<_> = allowed.into_iter().filter(|other| *other != framing).collect();
            prop_assert!(detect(&bytes, &without) != Some(framing));
            if found != Some(framing) {
                prop_assert_eq!(detect(&bytes, &without), found);
            }
        }
    }
}

fn capacity(decoder: &Decoder) -> usize {
    match decoder {
        Decoder::Sse(decoder) => decoder.capacity(),
        Decoder::Lines(decoder) => decoder.capacity(),
        Decoder::Array(decoder) => decoder.capacity(),
        Decoder::Prefixed(decoder) => decoder.capacity(),
    }
}

/// Feeds `head`, then `length` bytes of `filler`, then `tail`. Returns the frames and the largest buffer size.
fn flood(
    framing: Framing,
    max_frame: usize,
    head: &[u8],
    filler: &[u8],
    length: usize,
    tail: &[u8],
) -> (Vec<Result<Owned, FrameError>>, usize) {
    let push = filler.repeat(PUSH.div_ceil(filler.len()));
    let mut decoder = Decoder::new(framing, max_frame);
    let mut found = Vec::new();
    let mut largest = 0;
    let times = length / push.len();
    for bytes in [head].into_iter().chain(std::iter::repeat_n(&push[..], times)).chain([tail]) {
        decoder.push(bytes);
        drain(&mut decoder, &mut found);
        largest = largest.max(capacity(&decoder));
    }
    decoder.finish();
    drain(&mut decoder, &mut found);
    (found, largest)
}

const PUSH: usize = 16 * 1024;
const MAX_FRAME: usize = 100_000;
/// A frame, one push, and the lookahead of a decoder.
const BOUND: Range<usize> = 0..MAX_FRAME + PUSH + 64;
const FLOOD: usize = 8 * 1024 * 1024;

#[test]
fn a_line_that_never_ends_takes_no_more_memory_than_a_frame() {
    for (framing, head, tail) in [
        (Framing::Sse, &b"data: "[..], &b"\n\ndata: 1\n\n"[..]),
        (Framing::Sse, b"event: ", b"\n\ndata: 1\n\n"),
        (Framing::Sse, b"id: ", b"\n\ndata: 1\n\n"),
        (Framing::Sse, b"retry: ", b"\n\ndata: 1\n\n"),
        (Framing::Lines, b"", b"\n1\n"),
        (Framing::Coded, b"0:", b"\n1\n"),
        (Framing::Array, b"[\"", b"\",1]"),
        (Framing::Array, b"[", b",1]"),
        (Framing::Array, b"[[[", b"\"]\"]],1]"),
    ] {
        let (found, largest) = flood(framing, MAX_FRAME, head, b"7", FLOOD, tail);
        assert!(BOUND.contains(&largest), "{framing:?} took {largest} bytes");
        assert_eq!(found.len(), 2, "{framing:?}");
        assert_eq!(
            found[0].clone().map_err(|error| (error.index, error.problem)),
            Err((0, FrameProblem::TooLarge { limit: MAX_FRAME }))
        );
        let next = found[1].as_ref().expect("the frame behind");
        assert_eq!((next.index, &next.data[..]), (1, &b"1"[..]), "{framing:?}");
    }
}

#[test]
fn many_lines_in_one_frame_take_no_more_memory_than_a_frame() {
    for filler in [&b"data: 0123456789\n"[..], b"data\r\n", b"data:\r", b"event: some-name\n"] {
        let (found, largest) =
            flood(Framing::Sse, MAX_FRAME, b"data: 0\n", filler, FLOOD, b"\n\ndata: 1\n\n");
        assert!(BOUND.contains(&largest), "{largest} bytes");
        assert_eq!(found.len(), 2, "{filler:?}");
        assert_eq!(found[0], Err(too_large(0, 0, MAX_FRAME)));
        assert_eq!(found[1].as_ref().expect("frame").data, b"1");
    }
}

#[test]
fn ignored_lines_take_no_memory_and_no_size() {
    for filler in [&b": ping\n"[..], b":\n", b"unknown: field\r\n", b"x", b"retry: 1\n", b"id: 1\n"] {
        let (found, largest) = flood(
            Framing::Sse,
            64,
            b"data: 0\n: comment",
            filler,
            FLOOD / 8,
            b": end\ndata: 1\n\ndata: 2\n\n",
        );
        assert!(largest < 2 * PUSH, "{largest} bytes");
        let data: Vec<_> = found.into_iter().map(|frame| frame.expect("frame").data).collect();
        assert_eq!(data, [&b"0\n1"[..], b"2"]);
    }
    let (found, largest) = flood(Framing::Array, 64, b"[", b" ", FLOOD / 8, b"{}]");
    assert!(largest < 2 * PUSH, "{largest} bytes");
    assert_eq!(found.len(), 1);
}

#[test]
fn frames_up_to_the_bound_fit() {
    let long = "x".repeat(MAX_FRAME);
    for (framing, stream) in [
        (Framing::Sse, format!("data: {long}\n\n")),
        (Framing::Sse, format!("data: {}\r\ndata:{}\r\n\r\n", &long[..40_000], &long[..MAX_FRAME - 40_001])),
        (Framing::Sse, format!("event: 12345\ndata: {}\n\n", &long[5..])),
        (Framing::Lines, format!("{long}\r\n")),
        (Framing::Array, format!("[{long} , 1]")),
        (Framing::Array, format!("[\"{}\"]", &long[2..])),
    ] {
        let mut decoder = Decoder::new(framing, MAX_FRAME);
        let mut found = Vec::new();
        for chunk in stream.as_bytes().chunks(PUSH) {
            decoder.push(chunk);
            drain(&mut decoder, &mut found);
            assert!(BOUND.contains(&capacity(&decoder)), "{framing:?} took {} bytes", capacity(&decoder));
        }
        assert!(found[0].is_ok(), "{framing:?}: {:?}", found[0].as_ref().err());
    }
}

#[test]
fn memory_for_a_large_frame_is_given_back() {
    let mut decoder = Decoder::new(Framing::Sse, DEFAULT_MAX_FRAME);
    let mut found = Vec::new();
    decoder.push(format!("data: {}\n\n", "x".repeat(DEFAULT_MAX_FRAME)).as_bytes());
    drain(&mut decoder, &mut found);
    decoder.push(b"data: x\n\n");
    drain(&mut decoder, &mut found);
    assert_eq!(found.len(), 2);
    assert!(capacity(&decoder) <= 64 * 1024, "{} bytes", capacity(&decoder));
}

#[test]
fn one_frame_taken_per_push_does_not_pile_up_memory() {
    let mut decoder = Decoder::new(Framing::Lines, 1024);
    for _ in 0..10_000 {
        decoder.push(b"{\"some\":\"json\"}\n");
        assert!(decoder.next_frame().is_some());
    }
    assert!(capacity(&decoder) < 1024, "{} bytes", capacity(&decoder));
}

#[test]
fn bytes_after_the_end_are_ignored() {
    for framing in
        [Framing::Sse, Framing::Lines, Framing::Array, Framing::Prefixed, Framing::Coded, Framing::Text]
    {
        let mut decoder = Decoder::new(framing, 1024);
        decoder.finish();
        decoder.push(b"data: 1\n\n[1]");
        assert_eq!(decoder.next_frame(), None, "{framing:?}");
    }
}
