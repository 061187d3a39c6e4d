use super::*;
use crate::framing::{
    Framing,
    tests::{decode_all_ways, too_large},
};

#[test]
fn frames_are_cut_by_their_lengths() {
    let (found, _) =
        decode_all_ways(Framing::Prefixed, 1024, b"\0\0\0\x03abc\0\0\0\0\0\0\0\x05\0\0\0\x01\xFF");
    let found: Vec<_> = found.into_iter().map(|frame| frame.expect("frame")).collect();
    let found: Vec<_> = found.iter().map(|frame| (frame.index, frame.offset, &frame.data[..])).collect();
    assert_eq!(found, [(0, 0, &b"abc"[..]), (1, 7, b""), (2, 11, b"\0\0\0\x01\xFF")]);
}

#[test]
fn a_length_above_the_bound_ends_the_stream() {
    let (found, _) = decode_all_ways(Framing::Prefixed, 3, b"\0\0\0\x03abc\0\0\0\x04abcd\0\0\0\x01a");
    assert!(found[0].is_ok());
    assert_eq!(found[1..], [Err(too_large(1, 7, 3))]);
}

#[test]
fn claimed_length_is_not_allocated() {
    for max_frame in [1024, usize::MAX] {
        let mut decoder = PrefixedDecoder::new(max_frame);
        decoder.push(b"\xFF\xFF\xFF\xFFabc");
        let refused = decoder.next_frame();
        assert_eq!(refused.is_some(), max_frame == 1024);
        assert!(decoder.buffer.capacity() <= 1024);
        decoder.finish();
        let refused = decoder.next_frame();
        assert_eq!(refused.is_some(), max_frame == usize::MAX);
    }
}

#[test]
fn a_stream_that_ends_inside_a_frame_is_truncated() {
    for tail in [&b"\0"[..], b"\0\0\0", b"\0\0\0\x02", b"\0\0\0\x02a"] {
        let (found, _) = decode_all_ways(Framing::Prefixed, 1024, &[b"\0\0\0\x01a", tail].concat());
        assert!(found[0].is_ok());
        assert_eq!(found[1..], [Err(FrameError { index: 1, offset: 5, problem: FrameProblem::Truncated })]);
    }
}
