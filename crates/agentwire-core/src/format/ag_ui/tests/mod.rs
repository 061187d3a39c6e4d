//! AG-UI: fixtures, round trips, malformed input, requests.

use bytes::BytesMut;
use proptest::prelude::*;

use super::{
    FORMAT, input, proto,
    reader::json::{self as json_reader, Decoded, ReadContext},
    wire::{ChunkKind, EventChunk},
    writer::json as json_writer,
};
use crate::{
    event::{Body, Citation, Content, Event, File, MediaKind, MessageId, PartSource},
    format::{
        Fidelity, Options, Setup,
        golden::{self, lines, read, read_framed, survives_ag_ui, write},
    },
    framing::{Frames, Framing},
    json::Json,
    tally::Tally,
};

const FIXTURES: &str = "src/format/ag_ui/fixtures";

#[test]
fn fixtures_become_the_expected_events() {
    golden::run(&FORMAT, FIXTURES);
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/{FIXTURES}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The fixture has the exact form of our writer, so no byte of an event may change.
#[test]
fn every_event_round_trips_unchanged() {
    let text = String::from_utf8(fixture("all_events.jsonl")).unwrap();
    let (events, failure) = read(&FORMAT, text.as_bytes(), usize::MAX, &[]);
    assert_eq!(failure, None);
    let (written, given) = (lines(&events), text);
    assert_eq!(written.lines().count(), given.lines().count());
    for (written, given) in written.lines().zip(given.lines()) {
        let value = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let (mut written, given) = (value(written), value(given));
        // The writer declares its version where the source has none.
        if given["protocolVersion"].is_null() && given["type"] == "RUN_STARTED" {
            written.as_object_mut().unwrap().shift_remove("protocolVersion");
        }
        assert_eq!(written, given);
    }
}

/// Except extra members of patch operations and the precision of large integers.
#[test]
fn every_event_round_trips_through_protobuf() {
    let (events, _) = read(&FORMAT, &fixture("all_events.jsonl"), usize::MAX, &[]);
    let binary = write(&proto::FORMAT, "", None, &events, &[]);
    for cut in [1, 7, usize::MAX] {
        let (back, failure) = read_framed(&proto::FORMAT, Framing::Prefixed, &binary, cut, &[]);
        assert_eq!(failure, None);
        let value = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        for (back, given) in lines(&back).lines().zip(lines(&events).lines()) {
            let known = given
                .replace("12345678901234567890", "12345678901234567000.0")
                .replace(r#","note":"kept""#, "")
                .replace(r#","toolCalls":[]"#, "");
            assert_eq!(value(back), value(&known));
        }
    }
}

/// The expected bytes are output of the official encoder.
#[test]
fn protobuf_bytes_equal_the_official_encoder() {
    let cases = [
        (
            r#"{"type":"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"}"#,
            "0a110a0012026d311a09617373697374616e74",
        ),
        (r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":""}"#, "12080a02080112026d31"),
        (
            r#"{"type":"RUN_STARTED","threadId":"t","runId":"r","protocolVersion":"1.0"}"#,
            "620f0a02080b1201741a01723203312e30",
        ),
        (r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r"}"#, "6a0a0a02080c1201741a0172"),
        (
            r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"success"}}"#,
            "6a130a02080c1201741a01722a0773756363657373",
        ),
        (
            r#"{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a","value":true},{"op":"remove","path":"/b"}]}"#,
            "42160a020807120812022f61220220011206080112022f62",
        ),
        (r#"{"type":"STATE_SNAPSHOT","snapshot":null}"#, "3a080a02080612020800"),
        (
            r#"{"type":"TOOL_CALL_RESULT","messageId":"t1","toolCallId":"c1","content":""}"#,
            "b2010e0a0208151a027431220263312a00",
        ),
        (
            r#"{"type":"TOOL_CALL_RESULT","messageId":"t1","toolCallId":"c1","content":[]}"#,
            "b2010c0a0208151a02743122026331",
        ),
    ];
    for (json, wanted) in cases {
        let mut context = ReadContext::default();
        let native = json_reader::decode_event(json, None, &mut context).unwrap();
        let Decoded::Event(event) = native else { panic!("{json}") };
        let mut out = BytesMut::new();
        proto::write_event(&mut out, &event);
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, wanted, "{json}");
    }
}

#[test]
fn malformed_events_are_rejected_with_the_path() {
    let rejected = |line: &str| {
        let (_, failure) = read_framed(&FORMAT, Framing::Lines, line.as_bytes(), usize::MAX, &[]);
        failure.unwrap_or_else(|| panic!("accepted: {line}"))
    };
    let cases = [
        r#"not json"#,
        r#"[1]"#,
        r#"{"no":"type"}"#,
        r#"{"type":7}"#,
        r#"{"type":""}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m"}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x","timestamp":null}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x","timestamp":1.5}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x","timestamp":9007199254740992}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x","subagentRunId":null}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"x","metadata":[]}"#,
        r#"{"type":"TEXT_MESSAGE_START","messageId":"m","role":"tool"}"#,
        r#"{"type":"REASONING_MESSAGE_START","messageId":"m"}"#,
        r#"{"type":"STATE_SNAPSHOT"}"#,
        r#"{"type":"STATE_SNAPSHOT","snapshot":{"a":1e999}}"#,
        r#"{"type":"STATE_DELTA","delta":[{"op":"add","path":"a","value":1}]}"#,
        r#"{"type":"STATE_DELTA","delta":[{"op":"add","path":"/a"}]}"#,
        r#"{"type":"STATE_DELTA","delta":{"op":"add"}}"#,
        r#"{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"p","content":"text"}"#,
        r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"interrupt","interrupts":[]}}"#,
        r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r","usage":[{"inputTokens":-1}]}"#,
        r#"{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"1","role":"user","content":{"a":1}}]}"#,
        r#"{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"1","role":"user","content":[{"type":"image"}]}]}"#,
        r#"{"type":"TOOL_CALL_CHUNK","toolCallId":"c"}"#,
        r#"{"type":"TEXT_MESSAGE_CHUNK","delta":"x"}"#,
        r#"{"type":"SUBAGENT_STARTED","name":"n"}"#,
    ];
    let report: Vec<_> = cases.iter().map(|case| format!("{case}\n    {}", rejected(case))).collect();
    insta::assert_snapshot!(report.join("\n"));
}

#[test]
fn nesting_of_ten_thousand_levels_is_rejected() {
    let deep =
        format!(r#"{{"type":"STATE_SNAPSHOT","snapshot":{}1{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let (events, failure) = read_framed(&FORMAT, Framing::Lines, deep.as_bytes(), usize::MAX, &[]);
    assert!(failure.unwrap().contains("at `/snapshot`: nested deeper than"));
    assert_eq!(events.len(), 2, "the run is ended with an error");
}

/// Values as deep as is allowed, in the members that are embedded once more.
#[test]
fn deep_values_are_written_by_every_version_and_read_back() {
    for levels in 120..=crate::json::MAX_DEPTH {
        let deep = "[".repeat(levels) + "1" + &"]".repeat(levels);
        for event in [
            format!(r#"{{"type":"STATE_SNAPSHOT","snapshot":{deep}}}"#),
            format!(r#"{{"type":"CUSTOM","name":"n","value":1,"unknown":{deep}}}"#),
            format!(
                r#"{{"type":"ACTIVITY_DELTA","messageId":"b","activityType":"P","patch":[{{"op":"add","path":"/x","value":{deep}}}]}}"#
            ),
        ] {
            let (events, failure) = read_framed(&FORMAT, Framing::Lines, event.as_bytes(), usize::MAX, &[]);
            assert!(failure.is_none_or(|failure| !failure.contains("nested deeper")), "{levels}: {event}");
            for format in [&FORMAT, &super::proto::FORMAT] {
                for profile in format.profiles {
                    let written = write(format, profile.name, None, &events, &[]);
                    let (_, failure) = read_framed(format, profile.framing, &written, usize::MAX, &[]);
                    assert_eq!(failure, None, "{}@{}, {levels}: {event}", format.name, profile.name);
                }
            }
        }
    }
}

#[test]
fn chunks_expand_to_the_same_messages() {
    for name in ["weather_tool.sse", "all_events.jsonl", "chunks.sse", "rejoin.sse"] {
        let (events, _) = read(&FORMAT, &fixture(name), usize::MAX, &[]);
        let chunked = write(&FORMAT, "chunks", None, &events, &[]);
        let (back, failure) = read_framed(&FORMAT, Framing::Sse, &chunked, usize::MAX, &[]);
        assert_eq!(failure, None, "{name}");
        let mut whole = crate::fold::Fold::new();
        let mut joined = crate::fold::Fold::new();
        events.iter().for_each(|event| whole.apply(event));
        back.iter().for_each(|event| joined.apply(event));
        assert_eq!(joined.messages(), whole.messages(), "{name}");
        assert_eq!(joined.state(), whole.state(), "{name}");
    }
}

#[test]
fn wrapped_events_of_profile_0_are_restored() {
    let (events, _) = read(&FORMAT, &fixture("all_events.jsonl"), usize::MAX, &[]);
    let old = write(&FORMAT, "0", None, &events, &[]);
    let text = String::from_utf8(old.clone()).unwrap();
    for new in ["\"type\":\"SUBAGENT", "\"type\":\"REASONING", "\"type\":\"ACTIVITY"] {
        let outside = text.lines().filter(|line| line.starts_with(&format!("data: {{{new}")));
        assert_eq!(outside.count(), 0, "{new}");
    }
    let (back, failure) = read_framed(&FORMAT, Framing::Sse, &old, usize::MAX, &[]);
    assert_eq!(failure, None);
    let subagents = |events: &[Event]| {
        events.iter().filter(|event| matches!(event.body, Body::SubagentStarted(_))).count()
    };
    assert_eq!(subagents(&back), subagents(&events[..41]), "only what follows RUN_ERROR is lost");
}

#[test]
fn events_without_an_ag_ui_type_are_restored() {
    let object = |text| Json::parse(text).unwrap().into_object().unwrap();
    let run = crate::event::RunStarted::new("t", "r");
    let events: Vec<Event> = [
        Body::RunStarted(Box::new(run)),
        Body::Citation(Box::new(Citation {
            id: "m1:source:0".into(),
            message: Some("m1".into()),
            url: Some("https://example.test".into()),
            title: Some("A page".into()),
            media_type: None,
            filename: None,
            detail: Some(object(r#"{"span":[0,4]}"#)),
        })),
        Body::File(Box::new(File {
            id: "m1:file:0".into(),
            message: Some("m1".into()),
            kind: MediaKind::Image,
            source: PartSource::Data { value: "aGk=".into(), mime_type: "image/png".into() },
            name: Some("a.png".into()),
        })),
        Body::Block(Box::new(crate::event::Block {
            id: "m1:b".into(),
            message: "m1".into(),
            output: object(r#"{"type":"button","data":{"name":"Go"}}"#),
            layout: Some(Json::parse(r#"{"x":1}"#).unwrap()),
            block_id: Some("b".into()),
            style: None,
        })),
        Body::CollaborationStart {
            id: "x1".into(),
            message: Some("m2".into()),
            from: "USER".into(),
            to: "planner".into(),
        },
        Body::CollaborationTask { id: "x1".into(), task: Json::parse(r#"{"id":1,"name":"plan"}"#).unwrap() },
        Body::CollaborationEnd { id: "x1".into() },
        Body::FinishReason { message: Some("m1".into()), reason: "length".into() },
        Body::RunFinished(Box::new(crate::event::RunFinished::new("t", "r"))),
    ]
    .map(Event::new)
    .into();
    survives_ag_ui("typed", &events);
    for (format, framing) in [(&FORMAT, Framing::Sse), (&proto::FORMAT, Framing::Prefixed)] {
        let bytes = write(format, "1", None, &events, &[]);
        let (back, _) = read_framed(format, framing, &bytes, usize::MAX, &[]);
        assert_eq!(&back[1..], &events[1..], "{}", format.name);
    }
}

#[test]
fn activity_of_an_application_stays_an_activity() {
    let line = r#"{"type":"ACTIVITY_SNAPSHOT","messageId":"a","activityType":"hai.button","content":{"name":"mine"}}"#;
    let (events, _) = read_framed(&FORMAT, Framing::Lines, line.as_bytes(), usize::MAX, &[]);
    assert!(matches!(&events[1].body, Body::ActivitySnapshot { .. }), "{:?}", events[1]);
}

#[test]
fn unknown_members_round_trip_in_metadata() {
    let (events, _) = read(&FORMAT, &fixture("unknown.sse"), usize::MAX, &[]);
    let carried = events.iter().find_map(Event::unknown).unwrap();
    assert_eq!(carried.get(), r#"{"future":true}"#);
    let bytes = write(&FORMAT, "1", None, &events, &[]);
    assert!(
        String::from_utf8_lossy(&bytes).contains(r#""metadata":{"agentwire":{"unknown":{"future":true}}}"#)
    );
    let (back, _) = read_framed(&FORMAT, Framing::Sse, &bytes, usize::MAX, &[]);
    let unknown = |events: &[Event]| events.iter().map(|event| event.unknown().cloned()).collect::<Vec<_>>();
    assert_eq!(unknown(&back), unknown(&events));
}

#[test]
fn profile_0_reports_losses() {
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut writer = FORMAT.writer.unwrap()(FORMAT.profile("0").unwrap(), &setup);
    let mut out = Frames::new(Framing::Lines);
    let empty = Event::new(Body::TextDelta { message: "m".into(), delta: "".into() });
    assert_eq!(writer.write(&empty, &mut out), Fidelity::Dropped("old clients refuse empty deltas"));
    assert!(out.is_empty());
    let subagent = Event::new(Body::SubagentError { message: "x".into(), code: None }).by(Some("s".into()));
    assert!(matches!(writer.write(&subagent, &mut out), Fidelity::Approximated(_)));
}

#[test]
fn requests_of_1_0_and_0_x_are_read() {
    let tally = &mut Tally::default();
    let modern = r#"{"threadId":"t","runId":"r","protocolVersion":"1.0","messages":[{"id":"u","role":"user","content":"hi"}],"tools":[{"name":"n","description":"d","parameters":{}}],"context":[],"state":{"a":1},"forwardedProps":{},"resume":[{"interruptId":"i","status":"cancelled"}]}"#;
    let request = input::from_json(modern, tally).unwrap();
    assert_eq!(input::from_json(&input::to_json(&request), tally).unwrap(), request);
    assert!(tally.is_empty());
    assert_eq!(proto::input_from_proto(&proto::input_to_proto(&request), tally).unwrap(), request);
    let old = r#"{"threadId":"t","runId":"r","messages":[],"tools":[],"context":[],"state":null,"forwardedProps":null,"resume":{"interruptId":"i","payload":null},"extra":1}"#;
    let request = input::from_json(old, tally).unwrap();
    assert_eq!((request.state, request.forwarded), (None, None));
    assert_eq!(request.resume.unwrap().len(), 1);
    assert_eq!(request.unknown.unwrap().get(), r#"{"extra":1}"#);
}

#[test]
fn parts_with_null_members_are_read() {
    let read = |part: &str| {
        let body = format!(
            r#"{{"threadId":"t","runId":"r","messages":[{{"id":"u","role":"user","content":[{part}]}}]}}"#
        );
        let request = input::from_json(&body, &mut Tally::default()).map_err(|error| error.to_string())?;
        Ok::<_, String>(super::messages_to_json(&request.messages))
    };
    let nulls =
        r#"{"type":"binary","mimeType":"image/png","id":null,"url":null,"data":"QQ==","filename":null}"#;
    assert_eq!(
        read(nulls).unwrap(),
        r#"[{"id":"u","role":"user","content":[{"type":"image","source":{"type":"data","value":"QQ==","mimeType":"image/png"}}]}]"#
    );
    let text = r#"{"type":"text","text":"a","metadata":null}"#;
    let wanted = r#"[{"id":"u","role":"user","content":[{"type":"text","text":"a"}]}]"#;
    assert_eq!(read(text).unwrap(), wanted);
    // Parts that cannot be converted are left out, as in the official client.
    for left_out in [
        r#"{"type":"binary","data":"QQ=="}"#,
        r#"{"type":"binary","mimeType":null,"data":"QQ=="}"#,
        r#"{"type":"binary","mimeType":"image/png","id":"f1","data":""}"#,
    ] {
        assert_eq!(read(left_out).unwrap(), r#"[{"id":"u","role":"user","content":[]}]"#, "{left_out}");
    }
    let wrong = read(r#"{"type":"binary","mimeType":"image/png","data":7}"#);
    assert_eq!(wrong.unwrap_err(), "at `/messages/0/content/0/data`: expected a string, found the number 7");
}

#[test]
fn malformed_requests_are_rejected_with_the_path() {
    let rejected = |body: &str| input::from_json(body, &mut Tally::default()).unwrap_err().to_string();
    let report = [
        r#"{}"#,
        r#"{"threadId":"t","runId":"r"}"#,
        r#"{"threadId":1,"runId":"r","messages":[]}"#,
        r#"{"threadId":"t","runId":"r","messages":[{"id":"u","role":"user"}]}"#,
        r#"{"threadId":"t","runId":"r","messages":[],"tools":[{"name":"n"}]}"#,
        r#"{"threadId":"t","runId":"r","messages":[],"context":[{"description":"d","value":{}}]}"#,
        r#"{"threadId":"t","runId":"r","messages":[],"resume":[{"interruptId":"i"}]}"#,
        r#"{"threadId":"t","runId":"r","messages":[],"resume":[{"interruptId":"i","status":"maybe"}]}"#,
    ]
    .map(rejected)
    .join("\n");
    insta::assert_snapshot!(report, @r"
    `threadId` is missing, expected a string
    `messages` is missing, expected a list of messages
    at `/threadId`: expected a string, found the number 1
    at `/messages/0`: `content` is missing, expected a string or a list of parts
    at `/tools/0`: `description` is missing, expected a string
    at `/context/0/value`: expected a string, found an object
    at `/resume/0`: `status` is missing, expected `resolved` or `cancelled`
    at `/resume/0/status`: expected `resolved` or `cancelled`, found `maybe`
    ");
}

#[test]
fn malformed_protobuf_is_rejected() {
    let cases: &[&[u8]] = &[
        b"",
        b"\x0a",
        b"\x0a\x00",                                 // no base_event
        b"\x12\x02\x0a\x00",                         // another type in base_event
        b"\x0a\x02\x0a\x00\x12\x04\x0a\x02\x08\x01", // two fields of the oneof
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ];
    for bytes in cases {
        let mut frame = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(bytes);
        let (events, failure) = read_framed(&proto::FORMAT, Framing::Prefixed, &frame, usize::MAX, &[]);
        assert!(failure.is_some(), "{bytes:?}");
        assert_eq!(events.len(), 2, "the run is ended with an error");
    }
    let later = b"\x00\x00\x00\x05\x82\x02\x02\x08\x01";
    let (_, failure) = read_framed(&proto::FORMAT, Framing::Prefixed, later, usize::MAX, &[]);
    assert_eq!(failure, None, "an event of a later version is tolerated");
    let huge = b"\xff\xff\xff\xff";
    let (_, failure) = read_framed(&proto::FORMAT, Framing::Prefixed, huge, usize::MAX, &[]);
    assert!(failure.unwrap().contains("larger than the limit"));
}

/// A `Value` of 10,000 nested lists.
#[test]
fn deeply_nested_protobuf_is_rejected() {
    let mut value = vec![0x08, 0x00];
    let varint = |mut n: usize| {
        let mut out = Vec::new();
        while n >= 0x80 {
            out.push(n as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
        out
    };
    let wrap = |tag: u8, inner: Vec<u8>| [vec![tag], varint(inner.len()), inner].concat();
    for _ in 0..10_000 {
        value = wrap(0x32, wrap(0x0a, value));
    }
    let snapshot = [wrap(0x0a, vec![0x08, 0x06]), wrap(0x12, value)].concat();
    let event = wrap(0x3a, snapshot);
    let frame = [u32::try_from(event.len()).unwrap().to_be_bytes().to_vec(), event].concat();
    let (_, failure) = read_framed(&proto::FORMAT, Framing::Prefixed, &frame, usize::MAX, &[]);
    assert!(failure.unwrap().contains("nested deeper than"));
}

#[test]
fn chunk_is_written_with_all_members() {
    let mut chunk = EventChunk::new(ChunkKind::Tool);
    (chunk.id, chunk.name) = (Some("c".into()), Some("n".into()));
    (chunk.parent, chunk.delta) = (Some("m".into()), Some("{}".into()));
    chunk.subagent = Some("s".into());
    let mut out = BytesMut::new();
    json_writer::write_chunk(&mut out, &chunk);
    let wanted = r#"{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"n","parentMessageId":"m","delta":"{}","subagentRunId":"s"}"#;
    assert_eq!(&out[..], wanted.as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_round_trips(text in any::<String>(), id in any::<String>()) {
        let body = |body| Event::new(body);
        let message = MessageId::from(id.as_str());
        let events = [
            body(Body::RunStarted(Box::new(crate::event::RunStarted::new("t", "r")))),
            body(Body::TextStart { message: message.clone(), role: None, name: Some(text.as_str().into()) }),
            body(Body::TextDelta { message: message.clone(), delta: text.as_str().into() }),
            body(Body::TextEnd { message }),
            body(Body::StateSnapshot { snapshot: Json::string(&text) }),
            body(Body::ToolResult(Box::new(crate::event::ToolResult {
                message: "x".into(), call: "c".into(), content: Content::from(text.as_str()),
                error: Some(text.as_str().into()), explicit_role: false,
            }))),
            body(Body::RunFinished(Box::new(crate::event::RunFinished::new("t", "r")))),
        ];
        for (format, framing) in [(&FORMAT, Framing::Sse), (&FORMAT, Framing::Lines), (&proto::FORMAT, Framing::Prefixed)] {
            let bytes = write(format, "1", Some(framing), &events, &[]);
            let (back, failure) = read_framed(format, framing, &bytes, 3, &[]);
            prop_assert_eq!(failure, None);
            prop_assert_eq!(&back[1..], &events[1..]);
        }
    }

    #[test]
    fn any_bytes_yield_a_valid_event_sequence(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 1..20usize) {
        for (format, framing) in [(&FORMAT, Framing::Sse), (&FORMAT, Framing::Lines), (&FORMAT, Framing::Array), (&proto::FORMAT, Framing::Prefixed)] {
            let whole = read_framed(format, framing, &bytes, usize::MAX, &[]);
            prop_assert_eq!(&read_framed(format, framing, &bytes, cut, &[]), &whole);
            let mut checker = crate::order::Checker::new();
            for event in &whole.0 {
                prop_assert_eq!(checker.check(event), None);
            }
            prop_assert_eq!(checker.end(), None);
        }
    }
}

/// The CUSTOM events of `ag-ui-langgraph` (translated and repeated) and of CopilotKit's agent (not translated).
#[test]
fn custom_events_of_langgraph_arrive_once() {
    let given = [
        r#"{"type":"RUN_STARTED","threadId":"t","runId":"r"}"#,
        r#"{"type":"CUSTOM","name":"agent_custom_event","value":{"name":"chart","payload":{"a":1}}}"#,
        r#"{"type":"CUSTOM","name":"agent_custom_event","value":{"payload":1}}"#,
        r#"{"type":"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"}"#,
        r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"hi"}"#,
        r#"{"type":"TEXT_MESSAGE_END","messageId":"m1"}"#,
        r#"{"type":"RAW","event":{}}"#,
        r#"{"type":"CUSTOM","name":"manually_emit_message","value":{"message_id":"m1","message":"hi"}}"#,
        r#"{"type":"CUSTOM","name":"copilotkit_manually_emit_message","value":{"message_id":"m2","message":"ho"}}"#,
        r#"{"type":"STATE_SNAPSHOT","snapshot":{"a":1}}"#,
        r#"{"type":"RAW","event":{}}"#,
        r#"{"type":"CUSTOM","name":"manually_emit_state","value":{"a":1}}"#,
        r#"{"type":"CUSTOM","name":"copilotkit_manually_emit_intermediate_state","value":{"a":2}}"#,
        r#"{"type":"CUSTOM","name":"copilotkit_manually_emit_tool_call","value":{"id":"c","name":"f","args":{"b":1}}}"#,
        r#"{"type":"CUSTOM","name":"manually_emit_tool_call","value":"of the application"}"#,
        r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r"}"#,
    ]
    .join("\n");
    let kinds = |pairs: &[&str]| {
        let (events, failure) = read(&FORMAT, given.as_bytes(), usize::MAX, pairs);
        assert_eq!(failure, None);
        let shown = events.iter().filter(|event| !matches!(event.body, Body::Raw { .. }));
        let shown = shown.map(|event| match &event.body {
            Body::TextDelta { message, delta } => format!("text {message} {delta}"),
            Body::ToolArgs { call, delta } => format!("args {call} {delta}"),
            Body::StateSnapshot { snapshot } => format!("state {}", snapshot.get()),
            Body::Custom { name, value } => format!("custom {name} {}", value.get()),
            _ => String::new(),
        });
        shown.filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(
        kinds(&[]),
        [
            "custom chart {\"a\":1}",
            "custom agent_custom_event {\"payload\":1}",
            "text m1 hi",
            "text m2 ho",
            "state {\"a\":1}",
            "state {\"a\":2}",
            "args c {\"b\":1}",
            "custom manually_emit_tool_call \"of the application\"",
        ]
    );
    assert_eq!(kinds(&["langgraph_custom=keep"]).iter().filter(|line| line.starts_with("custom")).count(), 8);
}
