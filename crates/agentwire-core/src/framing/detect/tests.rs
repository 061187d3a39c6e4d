use super::*;

const ALL: &[Framing] =
    &[Framing::Sse, Framing::Lines, Framing::Array, Framing::Prefixed, Framing::Coded, Framing::Text];

fn all_are(expected: Option<Framing>, starts: &[&str]) {
    for start in starts {
        for prefix in ["", "\u{feff}", "\r\n \n", "\u{feff}\n\t"] {
            let start = format!("{prefix}{start}");
            assert_eq!(detect(start.as_bytes(), ALL), expected, "{start:?}");
        }
    }
}

#[test]
fn fields_and_comments_are_an_event_stream() {
    all_are(
        Some(Framing::Sse),
        &[
            "data: {}\n\n",
            "data:{}",
            "data\n\n",
            "data",
            "event: x\ndata: {}\n\n",
            "event\r\n",
            "id: 1\r",
            "id:1",
            "id\n",
            "retry: 5\n",
            "retry:",
            ": ping\n\n",
            ":\n",
            ":",
            ":{}",
        ],
    );
}

#[test]
fn an_object_per_line_is_lines() {
    all_are(
        Some(Framing::Lines),
        &[
            "{\"a\":1}\n{\"b\":2}\n",
            "{\"a\":1}",
            "{}\r\n",
            "{\"a\":\"{\\n[\"}\n",
            "{\"a\":{\"b\":[1,2]}}\n\n",
            "{",
            "{\"a\":\"cut o",
            "{\"a\": NaN}\n{\"a\": 1}\n",
            "{'a': 1}\n",
        ],
    );
}

#[test]
fn a_malformed_first_line_is_still_a_line() {
    all_are(
        Some(Framing::Lines),
        &[
            "{\"a\":\"cut\n{\"b\":2}\n",
            "{\"a\":1,\n{\"b\":2}\n{\"c\":3}\n",
            "{\"a\":1\n{\"b\":2}\n",
            "{\"a\"\n{\"b\":2}\n",
        ],
    );
}

#[test]
fn a_line_longer_than_the_start_is_a_line() {
    let start = format!("{{\"a\":\"{}", "x".repeat(65_536));
    all_are(Some(Framing::Lines), &[&start, &start[..65_536]]);
}

#[test]
fn a_document_over_several_lines_is_an_array() {
    all_are(
        Some(Framing::Array),
        &[
            "{\n  \"a\": 1\n}\n",
            "{\r\n\"a\": 1",
            "{\n",
            "{\"a\":1,\n \"b\":2}",
            "{\"a\": [\n{\"b\": 1}\n]}",
            "{\n  \"a\": NaN\n}\n",
            "[\n  \"a\"\n]",
            "[\n",
            "[\"a\",\n\"b\"]",
            "[1,\n",
            "[\n  [1, 2],\n  [3]\n]\n",
            "[\n  NaN\n]",
        ],
    );
}

#[test]
fn an_array_of_objects_is_an_array() {
    all_are(
        Some(Framing::Array),
        &[
            "[{\"a\":1},{\"b\":2}]",
            "[ {\"a\":1}",
            "[]",
            "[ ]\n",
            "[",
            "[{",
            "[{}]\n",
            "[[1,2],[3]]",
            "[[1,2]]",
            "[[",
            "[[]",
        ],
    );
}

#[test]
fn a_tuple_per_line_is_lines() {
    all_are(
        Some(Framing::Lines),
        &[
            "[\"messages\", {\"a\":1}]\n[\"updates\", {}]\n",
            "[\"messages\", {}]",
            "[1,2]\n",
            "[\"a\"",
            "[ \"a\", \"cut",
            "[[], \"updates\", {}]\n",
            "[[\"ns:1\"], \"updates\", {}]",
            "[[\"ns\"], {\"a\": \"cut",
        ],
    );
}

#[test]
fn an_array_that_is_followed_by_more_is_a_line() {
    all_are(
        Some(Framing::Lines),
        &["[{\"a\":1},{}]\n[{\"a\":2},{}]\n", "[]\n[]\n", "[[1],[2]]\r\n[[3],[4]]\r\n"],
    );
}

#[test]
fn a_short_code_before_json_is_coded() {
    all_are(
        Some(Framing::Coded),
        &[
            "0:\"Hi\"\n",
            "f:{\"messageId\":\"1\"}\n",
            "2:[{}]\n",
            "d:{",
            "10:1\n",
            "a:-1",
            "b:null\n",
            "c:true",
            "e: {}\n",
        ],
    );
}

#[test]
fn a_zero_byte_starts_a_length_prefix() {
    assert_eq!(detect(b"\0\0\0\x05hello", ALL), Some(Framing::Prefixed));
    assert_eq!(detect(b"\0", ALL), Some(Framing::Prefixed));
}

#[test]
fn other_bytes_have_no_framing() {
    all_are(
        None,
        &[
            "",
            "Hello",
            "<!doctype html>",
            "dat",
            "database: x",
            "a:hello",
            "abc:{}",
            "0:",
            "0:\n{}",
            "a:nul",
            "-:{}",
            "}",
            "]",
        ],
    );
    assert_eq!(detect(b"\x1F\x8B\x08", ALL), None);
    assert_eq!(detect(b"\xEF\xBB", ALL), None);
}

#[test]
fn only_allowed_framings_are_detected() {
    assert_eq!(detect(b"{}", &[Framing::Sse, Framing::Array]), Some(Framing::Array));
    assert_eq!(detect(b"{}", &[Framing::Sse, Framing::Prefixed]), None);
    assert_eq!(detect(b"[1]", &[Framing::Sse, Framing::Array]), Some(Framing::Array));
    assert_eq!(detect(b"[{}]", &[Framing::Sse, Framing::Lines]), Some(Framing::Lines));
    assert_eq!(detect(b"{\n}", &[Framing::Sse, Framing::Lines]), None);
    assert_eq!(detect(b"data: x", &[Framing::Lines, Framing::Array]), None);
    assert_eq!(detect(b"data: x", &[]), None);
}

#[test]
fn without_a_choice_there_is_nothing_to_detect() {
    for framing in ALL {
        assert_eq!(detect(b"Hello", &[*framing]), Some(*framing));
        assert_eq!(detect(b"", &[*framing]), Some(*framing));
    }
}
