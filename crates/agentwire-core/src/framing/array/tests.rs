use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any, prop_oneof},
    prop_assert_eq, proptest,
};
use serde_json::Value;

use super::*;
use crate::framing::{
    Framing,
    tests::{decode, decode_all_ways, texts, too_large},
};

/// The number of frames before the error that ends the stream, and that error.
fn failure(bytes: &[u8]) -> (usize, Option<(u64, FrameProblem)>) {
    let (mut found, _) = decode_all_ways(Framing::Array, 1024, bytes);
    let error = found.pop_if(|last| last.is_err()).map(|last| last.expect_err("an error"));
    assert!(found.iter().all(Result::is_ok), "{bytes:?}");
    assert!(error.is_none_or(|error| error.index == found.len() as u64));
    (found.len(), error.map(|error| (error.offset, error.problem)))
}

fn malformed(at: u64) -> Option<(u64, FrameProblem)> {
    Some((at, FrameProblem::Malformed))
}

fn truncated(at: u64) -> Option<(u64, FrameProblem)> {
    Some((at, FrameProblem::Truncated))
}

#[test]
fn each_element_is_a_frame() {
    let stream = br#"[{"a":"]}\"\\"},[1,[2]],"x,\"]",-1.5e+3,true,null,{},[],""]"#;
    assert_eq!(
        texts(Framing::Array, stream),
        [r#"{"a":"]}\"\\"}"#, "[1,[2]]", r#""x,\"]""#, "-1.5e+3", "true", "null", "{}", "[]", "\"\""]
    );
}

#[test]
fn white_space_around_elements_is_trimmed() {
    let stream = b"\xEF\xBB\xBF \r\n[\n  {\n    \"a\": 1\n  }\n ,\t2 \n]\r\n \n";
    assert_eq!(texts(Framing::Array, stream), ["{\n    \"a\": 1\n  }", "2"]);
    let (found, _) = decode(Framing::Array, 64, [&stream[..]]);
    let offsets: Vec<_> = found.iter().map(|frame| frame.as_ref().expect("frame").offset).collect();
    assert_eq!(offsets, [10, 30]);
}

#[test]
fn an_array_may_be_empty_and_so_may_a_stream() {
    for stream in [&b"[]"[..], b" [ \n ] ", b"", b"  \n", b"\xEF\xBB\xBF"] {
        assert_eq!(failure(stream), (0, None), "{stream:?}");
    }
}

#[test]
fn a_single_object_is_one_frame() {
    assert_eq!(texts(Framing::Array, b" {\n  \"a\": [1, 2]\n}\n"), ["{\n  \"a\": [1, 2]\n}"]);
    assert_eq!(failure(b"{} x"), (1, malformed(3)));
    assert_eq!(failure(b"{}{}"), (1, malformed(2)));
    assert_eq!(failure(b"{},"), (1, malformed(2)));
    assert_eq!(failure(b" {\"a\""), (0, truncated(1)));
}

#[test]
fn an_element_is_returned_as_soon_as_it_is_complete() {
    let mut decoder = ArrayDecoder::new(64);
    decoder.push(b"[{}");
    assert_eq!(decoder.next_frame().unwrap().unwrap().text(), "{}");
    decoder.push(b",\"a\"");
    assert_eq!(decoder.next_frame().unwrap().unwrap().text(), "\"a\"");
    decoder.push(b",12");
    assert!(decoder.next_frame().is_none());
    decoder.push(b"3 ");
    assert_eq!(decoder.next_frame().unwrap().unwrap().text(), "123");
}

#[test]
fn nesting_has_no_limit() {
    let depth = 1_000_000;
    let stream = format!("[{}{}]", "[".repeat(depth), "]".repeat(depth));
    let (found, _) = decode(Framing::Array, 4 * depth, stream.as_bytes().chunks(4096));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].as_ref().expect("frame").data.len(), 2 * depth);
}

#[test]
fn a_stream_that_ends_inside_is_truncated() {
    for (stream, frames, at) in [
        (&b"["[..], 0, 1),
        (b"[ ", 0, 2),
        (b"[1", 0, 1),
        (b"[{}", 1, 3),
        (b"[{},", 1, 4),
        (b"[{}, ", 1, 5),
        (b"[{}, {\"a\":", 1, 5),
        (b"[{}, \"a", 1, 5),
        (b"[\"a\\", 0, 1),
    ] {
        assert_eq!(failure(stream), (frames, truncated(at)), "{stream:?}");
    }
}

#[test]
fn other_bytes_are_malformed_and_end_the_stream() {
    for (stream, frames, at) in [
        (&b"x[1]"[..], 0, 0),
        (b" \"a\"", 0, 1),
        (b"1", 0, 0),
        (b"]", 0, 0),
        (b"[,1]", 0, 1),
        (b"[1,]", 1, 3),
        (b"[1,,2]", 1, 3),
        (b"[1 2]", 1, 3),
        (b"[{} {}]", 1, 4),
        (b"[{}:1]", 1, 3),
        (b"[1\"a\"]", 1, 2),
        (b"[}", 0, 1),
        (b"[:]", 0, 1),
        (b"[\xFF]", 0, 1),
        (b"[1] [2]", 1, 4),
        (b"[1]]", 1, 3),
        (b"[1]\n\0", 1, 4),
        (b"\xEF\xBBx", 0, 0),
    ] {
        assert_eq!(failure(stream), (frames, malformed(at)), "{stream:?}");
    }
}

#[test]
fn an_element_that_is_too_large_is_skipped_and_the_next_is_read() {
    let stream = br#"[123456, {"a":"\"]}"} ,1234567, "12345", {}]"#;
    let (found, _) = decode_all_ways(Framing::Array, 6, stream);
    assert_eq!(found.len(), 5);
    assert_eq!(found[0].as_ref().expect("frame").data, b"123456");
    assert_eq!(found[1], Err(too_large(1, 9, 6)));
    assert_eq!(found[2], Err(too_large(2, 23, 6)));
    assert_eq!(found[3], Err(too_large(3, 32, 6)));
    assert_eq!(found[4].as_ref().expect("frame").index, 4);
}

#[test]
fn a_stream_that_ends_in_an_element_that_is_too_large_is_truncated() {
    let (found, _) = decode_all_ways(Framing::Array, 4, b"[\"12345");
    let end = FrameError { index: 1, offset: 7, problem: FrameProblem::Truncated };
    assert_eq!(found, [Err(too_large(0, 1, 4)), Err(end)]);
}

#[test]
fn invalid_utf8_is_replaced_and_counted() {
    let (found, replaced) = decode_all_ways(Framing::Array, 64, b"[\"\xE4\xBD\",\"\xE4\xBD\xA0\"]");
    let data: Vec<_> = found.into_iter().map(|frame| frame.expect("frame").data).collect();
    assert_eq!(data, ["\"\u{fffd}\"".as_bytes(), "\"\u{4f60}\"".as_bytes()]);
    assert_eq!(replaced, 2);
}

fn json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        proptest::sample::select(&["\"", "\\", "\\\"", "]", "}", "[{", ",", "\n"][..])
            .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((any::<String>(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_array_is_split_into_its_elements(elements in vec(json(), 0..6), pretty: bool, size in 1usize..64) {
        let whole = Value::from(elements.clone());
        let stream = if pretty { serde_json::to_string_pretty(&whole) } else { serde_json::to_string(&whole) }.expect("JSON");
        let (found, _) = decode(Framing::Array, 1 << 20, stream.as_bytes().chunks(size));
        let found: Vec<Value> = found
            .into_iter()
            .map(|frame| serde_json::from_slice(&frame.expect("frame").data).expect("JSON"))
            .collect();
        prop_assert_eq!(found, elements);
    }
}
