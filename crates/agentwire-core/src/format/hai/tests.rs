//! Claims about HAI.

use std::fs;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Builder, FORMAT, input, proto};
use crate::{
    event::{
        Body, Event, Interrupt, Message, MessageBody, Outcome, ResumeStatus, RunFinished, RunInput,
        RunStarted, Tool,
    },
    fold::arbitrary,
    format::{
        Fidelity, Format, Options, Setup, ag_ui,
        golden::{self, lines, read, read_framed, write},
    },
    framing::{Frames, Framing},
    json::Json,
    order::Checker,
    tally::Tally,
};

const FIXTURES: &str = "src/format/hai/fixtures";
const AG_UI_FIXTURES: &str = "src/format/ag_ui/fixtures";
const PROFILES: [&str; 3] = ["json-string", "object", "text"];

#[test]
fn fixtures_become_the_expected_events() {
    golden::run(&FORMAT, FIXTURES);
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(format!("{}/{FIXTURES}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The events of every fixture in a folder that a format can read to its end.
fn all_fixtures(format: &Format, folder: &str) -> Vec<(String, Vec<Event>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() || name.ends_with(".md") || name.contains(".events.") || name.ends_with(".bin") {
            continue;
        }
        found.push((name, read(format, &fs::read(&path).unwrap(), usize::MAX, &[]).0));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!found.is_empty());
    found
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Events as AG-UI objects, without the two words that mean nothing: who speaks unless told, and that a tool's
/// answer is a tool's.
fn plain(events: &[Event]) -> Vec<Value> {
    let plain = |line: &str| {
        let mut event = value(line);
        let default = match event["type"].as_str().unwrap() {
            "TEXT_MESSAGE_START" => "assistant",
            "TOOL_CALL_RESULT" => "tool",
            _ => return event,
        };
        if event["role"] == default {
            event.as_object_mut().unwrap().shift_remove("role");
        }
        event
    };
    lines(events).lines().map(plain).collect()
}

/// What a writer of HAI must not lose. Times that the source did not give are HAI's to add.
#[track_caller]
fn same(name: &str, given: &[Event], back: &[Event]) {
    let (given, mut back) = (plain(given), plain(back));
    for (given, back) in given.iter().zip(&mut back) {
        if given["timestamp"].is_null() {
            back.as_object_mut().unwrap().shift_remove("timestamp");
        }
        assert_eq!(back, given, "{name}");
    }
    assert_eq!(back.len(), given.len(), "{name}");
}

fn through(events: &[Event], profile: &str, options: &[&str]) -> Vec<Event> {
    let bytes = write(&FORMAT, profile, None, events, options);
    let (back, failure) = read_framed(&FORMAT, Framing::Sse, &bytes, usize::MAX, &[]);
    assert_eq!(failure, None, "our own output is refused: {}", String::from_utf8_lossy(&bytes));
    back
}

fn through_proto(events: &[Event]) -> Vec<Event> {
    let bytes = write(&proto::FORMAT, "", None, events, &["include_developer=yes"]);
    let (back, failure) = read_framed(&proto::FORMAT, Framing::Prefixed, &bytes, usize::MAX, &[]);
    assert_eq!(failure, None, "our own output is refused");
    back
}

/// Frames as objects.
fn frames(bytes: &[u8]) -> Vec<Value> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("data: ")).map(value).collect()
}

/// What a frame of HAI shows: outputs and where they go, hand-overs, tasks, state, calls, steps. Empty `from`s
/// mean nothing, and neither does the shape of a delta.
fn shown(frame: &Value) -> Option<Value> {
    let delta = match &frame["delta"] {
        Value::String(text) => serde_json::from_str(text)
            .unwrap_or_else(|_| json!({"output": {"type": "text", "content": text}})),
        other => other.clone(),
    };
    Some(match frame["type"].as_str()? {
        "BUSINESS_DATA_CONTENT" => {
            let mut delta = delta;
            for key in ["blockId", "style"] {
                if delta[key].is_null() && !frame[key].is_null() {
                    delta[key] = frame[key].clone();
                }
            }
            json!([frame["messageId"], delta])
        }
        "BUSINESS_DATA_START" | "BUSINESS_DATA_END" => json!([frame["type"], frame["messageId"]]),
        "AGENT_COLLABORATIVE_MESSAGE_START" => json!([frame["messageId"], frame["from"], frame["to"]]),
        "AGENT_COLLABORATIVE_MESSAGE_CONTENT" => json!([frame["messageId"], delta]),
        "AGENT_COLLABORATIVE_MESSAGE_END" => json!([frame["messageId"]]),
        "STATE_DELTA" => {
            let mut delta = if delta.is_array() { delta } else { json!([delta]) };
            for operation in delta.as_array_mut().unwrap() {
                if operation["from"] == "" {
                    operation.as_object_mut().unwrap().shift_remove("from");
                }
            }
            delta
        }
        "TOOL_CALL_ARGS" => json!([frame["toolCallId"], frame["delta"]]),
        "RUN_STARTED" | "RUN_FINISHED" => json!([frame["type"], frame["messageId"], frame["role"]]),
        _ => frame.clone(),
    })
}

#[test]
fn a_hai_stream_survives_ag_ui_frame_by_frame() {
    for name in ["reference_chat.sse", "reference_task.sse", "builder_sample.sse"] {
        let (events, failure) = read(&FORMAT, &fixture(name), usize::MAX, &[]);
        assert_eq!(failure, None);
        let ag_ui = write(&ag_ui::FORMAT, "1", None, &events, &[]);
        let (events, _) = read_framed(&ag_ui::FORMAT, Framing::Sse, &ag_ui, usize::MAX, &[]);
        let written = write(&FORMAT, "", None, &events, &[]);
        let ours: Vec<_> = frames(&written).iter().map(shown).collect();
        let theirs: Vec<_> = frames(&fixture(name)).iter().map(shown).collect();
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let strip = |frame: &Option<Value>| {
                let mut frame = frame.clone();
                if let Some(Value::Object(members)) = &mut frame {
                    members.shift_remove("timestamp");
                }
                frame
            };
            assert_eq!(strip(ours), strip(theirs), "{name}");
        }
        assert_eq!(ours.len(), theirs.len(), "{name}");
    }
}

#[test]
fn hai_to_ag_ui_to_hai_loses_nothing() {
    for (name, events) in all_fixtures(&FORMAT, FIXTURES) {
        let ag_ui = write(&ag_ui::FORMAT, "1", None, &events, &[]);
        let (events, _) = read_framed(&ag_ui::FORMAT, Framing::Sse, &ag_ui, usize::MAX, &[]);
        for profile in PROFILES {
            let back = through(&events, profile, &["include_developer=yes"]);
            same(&format!("{name} {profile}"), &events, &back);
        }
    }
}

#[test]
fn ag_ui_to_hai_to_ag_ui_loses_nothing() {
    for (name, events) in all_fixtures(&ag_ui::FORMAT, AG_UI_FIXTURES) {
        for profile in PROFILES {
            for ids in ["per-message", "per-run"] {
                let ids = format!("message_ids={ids}");
                let back = through(&events, profile, &["include_developer=yes", &ids]);
                same(&format!("{name} {profile} {ids}"), &events, &back);
            }
        }
    }
}

#[test]
fn binary_equals_json() {
    let mut all = all_fixtures(&FORMAT, FIXTURES);
    all.extend(all_fixtures(&ag_ui::FORMAT, AG_UI_FIXTURES));
    for (name, events) in all {
        let json = write(&FORMAT, "", None, &events, &[]);
        let json = frames(&json);
        let bytes = write(&proto::FORMAT, "", None, &events, &[]);
        let mut rest = &bytes[..];
        let mut binary = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (message, after) = after.split_at(u32::from_be_bytes(*length) as usize);
            binary.push(value(&proto::to_json(message, &mut Tally::default()).unwrap()));
            rest = after;
        }
        // Numbers are doubles there, and 1.0 is 1.
        let json = json.iter().filter(|frame| !proto::holds_large_integer(&frame.to_string())).map(doubled);
        for (index, json) in json.enumerate() {
            assert_eq!(binary.get(index).map(doubled), Some(json), "{name}");
        }
        let refused = |event: &&Event| !proto::holds_large_integer(&lines(&[(*event).clone()]));
        let held: Vec<_> = events.iter().filter(refused).cloned().collect();
        same(&name, &held, &through_proto(&held));
    }
}

/// Few cases in everyday runs, as many as PROPTEST_CASES says in others.
fn config() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(48), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Canonical → HAI → canonical: everything comes back, in every profile.
    #[test]
    fn any_stream_survives(events in arbitrary::streams(60), profile in 0..3_usize, per_run in any::<bool>()) {
        let ids = if per_run { "message_ids=per-run" } else { "message_ids=per-message" };
        let back = through(&events, PROFILES[profile], &["include_developer=yes", ids]);
        same(PROFILES[profile], &events, &back);
    }

    #[test]
    fn any_stream_survives_the_binary_form(events in arbitrary::streams(40)) {
        same("proto", &events, &through_proto(&events));
    }
}

/// A frame as a HAI server might send it, told by four numbers.
fn frame([kind, a, b, c]: [u8; 4]) -> Value {
    let message = format!("m{}", a % 3);
    let mut layout = json!({});
    if b % 3 == 0 {
        layout = json!({"x": b % 2});
    }
    let output = match kind % 16 {
        3..=5 => {
            json!({"type": "text", "content": (["a", "}{", "{\"output\":1}", "", "中"])[usize::from(c) % 5]})
        }
        6..=8 => {
            let mut data = json!({"content": format!("t{c}"), "elapsed": c % 4});
            if c % 2 == 0 {
                data["thinking"] = json!(c % 4 == 0);
            }
            if c % 5 == 0 {
                data["mood"] = json!("calm");
            }
            json!({"type": "thinking", "data": data})
        }
        9 => json!({"type": "fold", "data": {"title": "T", "fold": false, "position": "start"}}),
        10 => {
            json!({"type": "toolCallShow", "id": format!("s{}", c % 2), "data": {"title": c % 3, "tools": [{"id": format!("t{}", b % 3), "progress": c}]}})
        }
        _ => json!({"type": (["button", "chart", "image"])[usize::from(c) % 3], "data": {"n": c}}),
    };
    match kind % 16 {
        0 => {
            let mut start = json!({"type": "BUSINESS_DATA_START", "messageId": message, "role": "assistant"});
            if c % 4 == 0 {
                start["name"] = json!("bot");
                start["avatar"] = json!("bot.png");
            }
            start
        }
        1 => json!({"type": "BUSINESS_DATA_END", "messageId": message}),
        2 => {
            json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": b, "from": if c % 2 == 0 { "" } else { "old" }}]})
        }
        3..=11 => {
            let mut delta = json!({"output": output});
            if b % 2 == 0 {
                delta["layout"] = layout;
            }
            if b % 5 == 0 {
                delta["blockId"] = json!(format!("b{}", c % 2));
                delta["style"] = json!({"bold": true});
            }
            let delta = if a % 2 == 0 { delta } else { json!(delta.to_string()) };
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": message, "delta": delta, "timestamp": u32::from(c)})
        }
        12 => {
            json!({"type": "AGENT_COLLABORATIVE_MESSAGE_START", "from": "A", "to": "B", "messageId": message, "since": c})
        }
        13 => {
            json!({"type": "AGENT_COLLABORATIVE_MESSAGE_CONTENT", "messageId": message, "delta": {"task": {"id": c, "name": "n"}}})
        }
        14 => json!({"type": "AGENT_COLLABORATIVE_MESSAGE_END", "messageId": message}),
        _ => match c % 4 {
            0 => json!({"type": "STEP_STARTED", "stepName": format!("s{}", a % 2)}),
            1 => json!({"type": "STEP_FINISHED", "stepName": format!("s{}", a % 2)}),
            2 => json!({"type": "CUSTOM", "name": "n", "value": null}),
            _ => json!({"type": "NEW_IN_THE_NEXT_VERSION", "n": c}),
        },
    }
}

/// HAI → AG-UI → HAI: the same outputs, blocks, tasks and state, whatever a server sends.
fn hai_survives_ag_ui(script: impl IntoIterator<Item = [u8; 4]>, profile: &str) {
    let run = json!({"type": "RUN_STARTED", "messageId": "m0"});
    let end = json!({"type": "RUN_FINISHED", "messageId": "m0"});
    let frames = [run].into_iter().chain(script.into_iter().map(frame)).chain([end]);
    let text: String = frames.map(|frame| format!("{frame}\n")).collect();
    let (events, failure) = read_framed(&FORMAT, Framing::Lines, text.as_bytes(), usize::MAX, &[]);
    assert_eq!(failure, None);
    let ag_ui = write(&ag_ui::FORMAT, "1", None, &events, &[]);
    let (there, failure) = read_framed(&ag_ui::FORMAT, Framing::Sse, &ag_ui, usize::MAX, &[]);
    assert_eq!(failure, None);
    same("there", &events, &there);
    same("back", &events, &through(&there, profile, &[]));
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_hai_stream_survives_ag_ui(
        script in proptest::collection::vec(any::<[u8; 4]>(), 1..40),
        profile in 0..3_usize,
    ) {
        hai_survives_ag_ui(script, PROFILES[profile]);
    }
}

/// Messages that interleave, thoughts that nobody ends, starts that say more than an id.
#[test]
fn hai_streams_that_once_came_back_otherwise() {
    let scripts: [&[[u8; 4]]; 8] = [
        &[[6, 0, 0, 0], [6, 145, 0, 0], [211, 123, 0, 0], [18, 0, 0, 0]],
        &[[150, 0, 0, 11], [131, 0, 0, 0]],
        &[[150, 53, 0, 87], [145, 29, 0, 0], [67, 95, 0, 0]],
        &[[118, 191, 0, 87], [161, 92, 0, 0], [22, 95, 0, 0]],
        &[[144, 180, 0, 32], [25, 177, 0, 0]],
        &[[16, 53, 0, 108], [86, 95, 0, 11], [179, 20, 0, 0]],
        &[[0, 20, 0, 116], [166, 68, 0, 62], [18, 0, 0, 0], [38, 8, 0, 19], [19, 20, 0, 0]],
        &[
            [214, 81, 0, 3],
            [147, 42, 91, 0],
            [230, 21, 0, 0],
            [131, 11, 0, 0],
            [17, 81, 0, 0],
            [38, 11, 0, 19],
            [86, 24, 0, 0],
        ],
    ];
    for script in scripts {
        for profile in PROFILES {
            hai_survives_ag_ui(script.iter().copied(), profile);
        }
    }
}

fn doubled(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(elements) => elements.iter().map(doubled).collect(),
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), doubled(value))).collect(),
        other => other.clone(),
    }
}

/// The frames of events in the default profile.
fn written(events: &[Event], profile: &str, options: &[&str]) -> Vec<Value> {
    frames(&write(&FORMAT, profile, None, events, options))
}

fn kinds(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

fn run(bodies: impl IntoIterator<Item = Body>) -> Vec<Event> {
    let start = Body::RunStarted(Box::new(RunStarted::new("t", "r")));
    let end = Body::RunFinished(Box::new(RunFinished::new("t", "r")));
    [start].into_iter().chain(bodies).chain([end]).map(Event::new).collect()
}

fn text(id: &str, deltas: &[&str]) -> Vec<Body> {
    let message = crate::event::MessageId::from(id);
    let mut bodies = vec![Body::TextStart { message: message.clone(), role: None, name: None }];
    bodies.extend(
        deltas.iter().map(|delta| Body::TextDelta { message: message.clone(), delta: (*delta).into() }),
    );
    bodies.push(Body::TextEnd { message });
    bodies
}

/// What the standard's client does: join the deltas, put commas between the documents, parse.
fn parsed(frames: &[Value], message: &str) -> Vec<Value> {
    let content = frames
        .iter()
        .filter(|frame| frame["type"] == "BUSINESS_DATA_CONTENT" && frame["messageId"] == message);
    let joined: String = content.map(|frame| frame["delta"].as_str().unwrap()).collect();
    serde_json::from_str(&format!("[{}]", joined.replace("}{", "},{"))).unwrap()
}

#[test]
fn braces_in_text_survive_the_standards_client() {
    let deltas = ["a}{b", "}{", "}", "{", "\"}{\\", "中文 }{ 😀\n\t\u{1}"];
    let bytes = write(&FORMAT, "", None, &run(text("m", &deltas)), &[]);
    assert!(String::from_utf8(bytes.clone()).unwrap().contains("中文"), "nothing is escaped to ASCII");
    let said: String = parsed(&frames(&bytes), "m")
        .iter()
        .map(|document| document["output"]["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(said, deltas.concat());
}

#[test]
fn an_empty_message_is_something_to_parse() {
    let frames = written(&run(text("m", &[])), "", &[]);
    assert_eq!(parsed(&frames, "m"), [json!({"output": {"type": "text", "content": ""}})]);
    same("empty", &run(text("m", &[])), &through(&run(text("m", &[])), "", &[]));
}

#[test]
fn a_result_whose_call_has_an_empty_id_reads_back() {
    let result = crate::event::ToolResult {
        message: "m".into(),
        call: "".into(),
        content: crate::event::Content::from("x"),
        error: None,
        explicit_role: false,
    };
    let events = run([Body::ToolResult(Box::new(result))]);
    for profile in PROFILES {
        same(profile, &events, &through(&events, profile, &[]));
    }
}

#[test]
fn every_event_has_a_time_once_there_is_one() {
    let mut events = run(text("m", &["a"]));
    let unstamped = written(&events, "", &[]);
    assert!(unstamped.iter().all(|frame| frame["timestamp"].is_null()));
    let stamped = written(&events, "", &["stamp=7"]);
    assert!(stamped.iter().all(|frame| frame["timestamp"] == 7));
    events[2].timestamp = Some(1_620_000_000_500);
    let times: Vec<_> =
        written(&events, "", &["stamp=7"]).iter().map(|frame| frame["timestamp"].clone()).collect();
    assert_eq!(times, [7, 7, 1_620_000_000_500_i64, 1_620_000_000_500, 1_620_000_000_500].map(Value::from));
}

#[test]
fn all_messages_of_a_run_can_share_one_id() {
    let events = run(text("m1", &["a"]).into_iter().chain(text("m2", &["b"])));
    let frames = written(&events, "", &["message_ids=per-run"]);
    let business: Vec<_> =
        frames.iter().filter(|frame| frame["type"].as_str().unwrap().starts_with("BUSINESS")).collect();
    assert_eq!(business.len(), 6);
    assert!(business.iter().all(|frame| frame["messageId"] == "run-msg-r"));
    let sources: Vec<_> = business.iter().map(|frame| frame["sourceMessageId"].as_str().unwrap()).collect();
    assert_eq!(sources, ["m1", "m1", "m1", "m2", "m2", "m2"]);
}

fn call(id: &str, name: &str, pieces: &[&str]) -> Vec<Body> {
    let call = crate::event::ToolCallId::from(id);
    let mut bodies = vec![Body::ToolStart { call: call.clone(), name: name.into(), parent: None }];
    bodies.extend(pieces.iter().map(|piece| Body::ToolArgs { call: call.clone(), delta: (*piece).into() }));
    bodies.push(Body::ToolEnd { call });
    bodies
}

#[test]
fn arguments_can_go_out_whole() {
    let events = run(call("c", "f", &[r#"{"a":"}"#, r#"{","id":1}"#]));
    let streamed = written(&events, "", &[]);
    assert_eq!(streamed.iter().filter(|frame| frame["type"] == "TOOL_CALL_ARGS").count(), 2);
    let whole = written(&events, "", &["tool_args=whole"]);
    let args: Vec<_> = whole.iter().filter(|frame| frame["type"] == "TOOL_CALL_ARGS").collect();
    assert_eq!(args.len(), 1);
    // The reference client's parser, commas and all.
    let delta = args[0]["delta"].as_str().unwrap().replace("}{", "},{");
    assert_eq!(value(&format!("[{delta}]")), json!([{"a": "}{", "id": 1}]));
}

#[test]
fn backend_calls_can_be_shown() {
    let mut input = RunInput::new("t", "r");
    input.tools.push(Tool { name: "ask".into(), description: "".into(), parameters: None, metadata: None });
    let mut started = RunStarted::new("t", "r");
    started.input = Some(Box::new(input));
    let result = crate::event::ToolResult {
        message: "tm".into(),
        call: "c".into(),
        content: "7".into(),
        error: None,
        explicit_role: true,
    };
    let mut events = run(call("c", "count", &["{}"])
        .into_iter()
        .chain([Body::ToolResult(Box::new(result))])
        .chain(call("d", "ask", &["{}"])));
    events[0] = Event::new(Body::RunStarted(Box::new(started)));
    for (option, calls, shows) in [("events", 7, 0), ("show", 3, 3), ("both", 7, 3)] {
        let option = format!("tool_display={option}");
        let frames = written(&events, "", &[&option]);
        assert_eq!(
            kinds(&frames).iter().filter(|kind| kind.starts_with("TOOL_CALL")).count(),
            calls,
            "{option}"
        );
        let shown = parsed(&frames, "c:show");
        assert_eq!(shown.len(), shows, "{option}");
        if let Some(last) = shown.last() {
            assert_eq!(last["output"]["data"]["tools"][0]["progress"], "done");
        }
        same(&option, &events, &through(&events, "", &[&option]));
    }
    // An answer that comes before the arguments are complete ends what is shown, and nothing else; a second
    // answer is one too.
    let [start, args, end] = [2, 3, 4].map(|at| events[at - 1].clone());
    let result = events[4].clone();
    let odd: Vec<_> = [&events[0], &start, &args, &result, &args, &end, &result, events.last().unwrap()]
        .into_iter()
        .cloned()
        .collect();
    same("answered early", &odd, &through(&odd, "", &["tool_display=show"]));
    // Without knowing what the front end offers, nothing is hidden from it.
    let frames = written(&run(call("d", "ask", &["{}"])), "", &["tool_display=show"]);
    assert_eq!(kinds(&frames).iter().filter(|kind| kind.starts_with("TOOL_CALL")).count(), 3);
}

#[test]
fn an_interrupt_is_a_call_that_a_front_end_answers() {
    let mut interrupt = Interrupt::new("i1", "confirmation");
    interrupt.message = Some("Deploy?".into());
    interrupt.metadata =
        Json::parse(r#"{"importance":"high","payload":{"env":"production"}}"#).unwrap().into_object();
    let plain = Interrupt::new("i2", "input_required");
    let mut events = run([]);
    let mut finished = RunFinished::new("t", "r");
    finished.outcome = Some(Outcome::Interrupt { interrupts: vec![interrupt, plain] });
    events[1] = Event::new(Body::RunFinished(Box::new(finished)));
    let frames = written(&events, "", &["hitl_tool=askPerson"]);
    let call = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"];
    assert_eq!(kinds(&frames), [&["RUN_STARTED"][..], &call, &call, &["RUN_FINISHED"]].concat());
    assert_eq!((&frames[1]["toolCallId"], &frames[1]["toolCallName"]), (&json!("i1"), &json!("askPerson")));
    let arguments = value(frames[2]["delta"].as_str().unwrap());
    assert_eq!(arguments, json!({"action": "Deploy?", "importance": "high", "env": "production"}));
    assert_eq!(value(frames[5]["delta"].as_str().unwrap()), json!({"action": "input_required"}));
    assert_eq!(frames[7]["outcome"]["interrupts"][0]["id"], "i1");
    same("interrupt", &events, &through(&events, "", &[]));

    let body = json!({"threadId": "t", "runId": "r2", "messages": [
        {"id": "u", "role": "user", "content": "go"},
        {"id": "a1", "role": "tool", "toolCallId": "i1", "content": "true"},
        {"id": "a2", "role": "tool", "toolCallId": "other", "content": "{}"},
    ]});
    let mut input =
        input::from_json(&body.to_string(), &"x".into(), &"y".into(), &mut Tally::default()).unwrap();
    input::answers(&mut input, &["i1".into(), "i2".into()]);
    let resume = input.resume.unwrap();
    assert_eq!(resume.len(), 1);
    assert_eq!((&*resume[0].interrupt, resume[0].status), ("i1", ResumeStatus::Resolved));
    assert_eq!(resume[0].payload.as_ref().unwrap().get(), "true");
    assert_eq!(input.messages.len(), 2, "only the answer left the messages");
}

#[test]
fn a_call_that_waits_is_not_called_twice() {
    let mut events = run(call("c", "approve", &["{}"]));
    let mut finished = RunFinished::new("t", "r");
    finished.outcome = Some(Outcome::Interrupt { interrupts: vec![Interrupt::new("c", "tool_call")] });
    *events.last_mut().unwrap() = Event::new(Body::RunFinished(Box::new(finished)));
    let frames = written(&events, "", &[]);
    assert_eq!(kinds(&frames).iter().filter(|kind| **kind == "TOOL_CALL_START").count(), 1);
}

#[test]
fn developer_messages_are_not_for_end_users() {
    let developer = Message::new("d", MessageBody::Developer { content: "trace".into() });
    let messages = vec![developer, Message::assistant("a", "hi")];
    let event = Event::new(Body::MessagesSnapshot { messages });
    let options = Options::default();
    let setup = Setup { thread: "t".into(), run: "r".into(), options: &options };
    let mut writer = FORMAT.writer.unwrap()(&FORMAT.profiles[0], &setup);
    let mut out = Frames::new(Framing::Sse);
    assert!(matches!(writer.write(&event, &mut out), Fidelity::Approximated(_)));
    let shown = frames(&out.take());
    assert_eq!(shown[0]["type"], "MESSAGE_SNAPSHOT");
    assert_eq!(
        shown[0]["messages"],
        json!([{"id": "a", "role": "assistant", "content": r#"{"output":{"type":"text","content":"hi"}}"#}])
    );
    let shown = written(&[event], "text", &["include_developer=yes", "snapshot_name=MESSAGES_SNAPSHOT"]);
    assert_eq!(shown[0]["type"], "MESSAGES_SNAPSHOT");
    assert_eq!(shown[0]["messages"][0]["role"], "developer");
    assert_eq!(shown[0]["messages"][1]["content"], "hi", "profile @text has no documents");
}

#[test]
fn a_subagent_and_a_hand_over_are_told_to_the_reference_client() {
    let task = |id: &str| Json::from(json!({"id": id, "name": "n"}));
    let bodies = [
        Body::CollaborationStart { id: "x".into(), message: None, from: "A".into(), to: "B".into() },
        Body::CollaborationTask { id: "x".into(), task: task("1") },
        Body::CollaborationTask { id: "x".into(), task: task("2") },
        Body::CollaborationEnd { id: "x".into() },
        Body::CollaborationStart { id: "y".into(), message: None, from: "A".into(), to: "C".into() },
        Body::CollaborationEnd { id: "y".into() },
    ];
    let mut events = run(bodies);
    let started = crate::event::SubagentStarted {
        name: "helper".into(),
        description: Some("helps".into()),
        parent_subagent: None,
        parent_call: None,
        parent_message: None,
    };
    let body = Body::SubagentFinished { result: None, outcome: None };
    events.insert(1, Event::new(body).by(Some("s".into())));
    events.insert(1, Event::new(Body::SubagentStarted(Box::new(started))).by(Some("s".into())));
    let frames = written(&events, "", &[]);
    // The client joins what came since the start and parses it at the end, as one document.
    let mut buffer = String::new();
    let mut tasks = Vec::new();
    for frame in &frames {
        match frame["type"].as_str().unwrap() {
            "AGENT_COLLABORATIVE_MESSAGE_START" => buffer.clear(),
            "AGENT_COLLABORATIVE_MESSAGE_CONTENT" => buffer.push_str(frame["delta"].as_str().unwrap()),
            "AGENT_COLLABORATIVE_MESSAGE_END" => tasks.push(value(&buffer)["task"]["id"].clone()),
            _ => {}
        }
    }
    assert_eq!(tasks, ["s", "1", "2", "y"]);
    same("hand-overs", &events, &through(&events, "", &[]));
}

/// The standard's backend sample, line by line, and the events that it must become.
#[test]
fn the_builder_builds_the_standards_sample() {
    let outputer = Builder::new(|| 1_758_000_000_000);
    let id = "msgId-001";
    let task = json!({"id": "task-1", "name": "回答问题"});
    let mut stream = vec![
        outputer.build_sse_data(outputer.build_run_started(id).role("assistant")),
        outputer.build_sse_data(outputer.build_agent_collaborative_message_start("USER", "Agent", id)),
        outputer.build_sse_data(outputer.build_agent_collaborative_message_content(task, id)),
        outputer.build_sse_data(outputer.build_agent_collaborative_message_end(id)),
        outputer.build_sse_data(outputer.build_state_delta("add", "/workflowItems/0/status", "running")),
        outputer.build_sse_data(outputer.build_state_delta("replace", "/workflowItems/0/status", "done")),
        outputer.build_sse_data(outputer.build_step_started("智能处理")),
        outputer.build_sse_data(outputer.build_business_data_start(id)),
    ];
    for chunk in ["大棚", "的", "温度是 21 度。"] {
        let output = outputer.build_text(chunk);
        stream.push(outputer.build_sse_data(outputer.build_business_data_content(output, id)));
    }
    stream.push(outputer.build_sse_data(outputer.build_business_data_end(id)));
    stream.push(outputer.build_sse_data(outputer.build_step_finished("智能处理")));
    stream.push(outputer.build_sse_data(outputer.build_run_finished(id)));
    let (events, failure) = read(&FORMAT, stream.concat().as_bytes(), usize::MAX, &[]);
    assert_eq!(failure, None);
    let (sample, _) = read(&FORMAT, &fixture("builder_sample.sse"), usize::MAX, &[]);
    let untimed = |events: &[Event]| {
        let mut events = plain(events);
        for event in &mut events {
            event.as_object_mut().unwrap().shift_remove("timestamp");
        }
        events
    };
    assert_eq!(untimed(&events), untimed(&sample));
}

/// Fields and defaults as in the standard, one helper after the other.
#[test]
fn the_builders_fields_are_the_standards() {
    let b = Builder::new(|| 5);
    let wanted = [
        (
            b.build_run_started("m"),
            json!({"type": "RUN_STARTED", "messageId": "m", "role": "assistant", "timestamp": 5}),
        ),
        (
            b.build_run_finished("m").timestamp(6),
            json!({"type": "RUN_FINISHED", "messageId": "m", "role": "assistant", "timestamp": 6}),
        ),
        (b.build_step_started("s"), json!({"type": "STEP_STARTED", "stepName": "s"})),
        (b.build_step_finished("s"), json!({"type": "STEP_FINISHED", "stepName": "s"})),
        (
            b.build_business_data_start("m"),
            json!({"type": "BUSINESS_DATA_START", "messageId": "m", "role": "assistant", "timestamp": 5}),
        ),
        (
            b.build_business_data_end("m"),
            json!({"type": "BUSINESS_DATA_END", "messageId": "m", "role": "assistant", "timestamp": 5}),
        ),
        (
            b.build_business_data_content(b.build_text_output("x"), "m")
                .layout(json!({}))
                .block_id("")
                .style(json!({})),
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": {"output": {"type": "text", "content": "x"}}, "timestamp": 5}),
        ),
        (
            b.build_business_data_content(b.build_thinking_output("x"), "m")
                .layout(json!({"x": 0}))
                .block_id("b")
                .style(json!({"s": 1})),
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "timestamp": 5, "blockId": "b", "style": {"s": 1}, "delta": {
                "output": {"type": "thinking", "data": {"content": "x", "elapsed": 10, "thinking": true, "collapse": true}},
                "layout": {"x": 0}, "blockId": "b", "style": {"s": 1},
            }}),
        ),
        (
            b.build_business_data_content(b.build_fold_output("x").position("end").fold(true), "m"),
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": {"output": {"type": "fold", "data": {"title": "x", "fold": true, "position": "end"}}}, "timestamp": 5}),
        ),
        (
            b.build_agent_collaborative_message_start("A", "B", "m"),
            json!({"type": "AGENT_COLLABORATIVE_MESSAGE_START", "from": "A", "to": "B", "messageId": "m", "timestamp": 5}),
        ),
        (
            b.build_agent_collaborative_message_content(json!({"id": 1}), "m"),
            json!({"type": "AGENT_COLLABORATIVE_MESSAGE_CONTENT", "delta": {"task": {"id": 1}}, "messageId": "m", "timestamp": 5}),
        ),
        (
            b.build_agent_collaborative_message_end("m"),
            json!({"type": "AGENT_COLLABORATIVE_MESSAGE_END", "messageId": "m", "timestamp": 5}),
        ),
        (
            b.build_state_delta("add", "/a", 1),
            json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": 1, "from": ""}], "timestamp": 5}),
        ),
        (
            b.build_state_delta("replace", "/a", 2).from_value("1"),
            json!({"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/a", "value": 2, "from": "1"}], "timestamp": 5}),
        ),
        (
            b.build_tool_call_start("c", "f", "m"),
            json!({"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f", "parentMessageId": "m"}),
        ),
        (
            b.build_tool_call_args("c", json!({"a": 1})),
            json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{\"a\":1}"}),
        ),
        (b.build_tool_call_end("c"), json!({"type": "TOOL_CALL_END", "toolCallId": "c"})),
        (
            b.build_tool_call_result("m", "c", "ok"),
            json!({"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": "ok", "role": "tool"}),
        ),
        (
            b.build_run_error("no", Some("E")),
            json!({"type": "RUN_ERROR", "message": "no", "code": "E", "timestamp": 5}),
        ),
        (
            b.build_state_snapshot(json!({"a": 1})),
            json!({"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}, "timestamp": 5}),
        ),
        (
            b.build_custom("n", json!([1])),
            json!({"type": "CUSTOM", "name": "n", "value": [1], "timestamp": 5}),
        ),
        (b.build_raw(json!(1), Some("s")), json!({"type": "RAW", "event": 1, "source": "s", "timestamp": 5})),
    ];
    for (built, wanted) in wanted {
        assert_eq!(built.to_value(), wanted);
    }
    let image: Value = b.build_image_output("image/png").url("https://x").alt("a").name("n").into();
    assert_eq!(
        image,
        json!({"type": "image", "data": {"mimeType": "image/png", "url": "https://x", "alt": "a", "name": "n"}})
    );
    let snapshot = b.build_message_snapshot(&[Message::user("u", "hi")]);
    assert_eq!(snapshot.to_value()["messages"], json!([{"id": "u", "role": "user", "content": "hi"}]));
}

#[test]
fn a_built_event_drops_nulls_and_takes_default_fields() {
    let b = Builder::new(|| 5).default_field("agent", "gardener").default_field("role", "system");
    let error = b.build_sse_data(b.build_run_error("no", None));
    assert_eq!(
        error,
        "data: {\"type\":\"RUN_ERROR\",\"message\":\"no\",\"timestamp\":5,\"agent\":\"gardener\",\"role\":\"system\"}\n\n"
    );
    assert!(b.build_sse_data(b.build_run_started("m")).contains(r#""role":"assistant""#));
    assert_eq!(b.build_sse_data("[DONE]"), "data: [DONE]\n\n");
    let objects = Builder::new(|| 5).object_deltas();
    let frame = objects.build_sse_data(objects.build_business_data_content(objects.build_text("a}{b"), "m"));
    assert!(frame.contains(r#""delta":{"output":{"type":"text","content":"a}{b"}}"#));
    assert!(
        b.build_sse_data(b.build_business_data_content(b.build_text("a}{b"), "m")).contains(r"a}\\u007bb")
    );
}

#[test]
fn requests_of_hai_clients_are_understood() {
    // The standard's sample, the reference server's context of messages, and what clients leave out.
    let body = json!({
        "threadId": "", "runId": null,
        "messages": [
            {"id": "msg_1", "role": "user", "content": "介绍下HAI", "timestamp": 5, "name": "Ann"},
            {"role": "assistant", "content": "{\"output\":{\"type\":\"text\",\"content\":\"好\"}}{\"output\":{\"type\":\"button\",\"data\":{\"name\":\"B\"}}}"},
            {"id": "result-789", "role": "tool", "content": "true", "toolCallId": "tool-123"},
        ],
        "context": [{"id": "c", "role": "user", "content": "Bern"}, {"description": "tz", "value": "CET"}, {"description": "n", "value": 3}],
        "tools": [{"name": "confirmAction", "parameters": {"type": "object"}}],
        "forwardedProps": {"hai": {"delta": "text", "tool_args": "whole", "include_developer": "yes", "snapshot_name": "X"}},
        "state": null,
        "extension": {"kept": true},
    });
    let tally = &mut Tally::default();
    let input = input::from_json(&body.to_string(), &"T".into(), &"R".into(), tally).unwrap();
    assert_eq!((&*input.thread, &*input.run), ("T", "R"));
    assert_eq!(input.state, None);
    assert_eq!(&*input.messages[1].id, "R:message:1");
    assert_eq!(input.messages[1].body, Message::assistant("x", "好").body);
    let context: Vec<_> = input.context.iter().map(|it| (&*it.description, &*it.value)).collect();
    assert_eq!(context, [("user", "Bern"), ("tz", "CET"), ("n", "3")]);
    assert_eq!(&*input.tools[0].description, "");
    assert_eq!(input.unknown.as_ref().unwrap().get(), r#"{"extension":{"kept":true}}"#);
    let wishes = input::wishes(&input, tally);
    assert_eq!(wishes.profile, Some("text"));
    assert_eq!(wishes.options, ["tool_args=whole"]);
    assert_eq!(
        tally.count("unknown wish", "include_developer=yes"),
        1,
        "what a client may see is not its choice"
    );

    let written = value(&input::to_json(&input));
    for (index, message) in body["messages"].as_array().unwrap().iter().enumerate() {
        assert_eq!(written["messages"][index]["content"], message["content"]);
    }
    assert_eq!(written["messages"][0], body["messages"][0]);
    assert_eq!(written["extension"], body["extension"]);
    let again =
        input::from_json(&written.to_string(), &"".into(), &"".into(), &mut Tally::default()).unwrap();
    assert_eq!(again, input);
}

#[test]
fn malformed_requests_are_refused_with_the_path() {
    let refused = |body: Value| {
        input::from_json(&body.to_string(), &"t".into(), &"r".into(), &mut Tally::default())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(refused(json!({"messages": 7})), "at `/messages`: expected an array, found the number 7");
    assert_eq!(
        refused(json!({"messages": [{"id": "m"}]})),
        "at `/messages/0`: `role` is missing, expected a role"
    );
    assert_eq!(
        refused(json!({"messages": [{"role": "tool", "content": "x"}]})),
        "at `/messages/0`: `toolCallId` is missing, expected a string"
    );
    assert_eq!(refused(json!({"tools": [{}]})), "at `/tools/0`: `name` is missing, expected a string");
    assert_eq!(refused(json!([])), "expected an object, found an array");
}

#[test]
fn malformed_events_are_refused_with_the_path() {
    let refused = |event: Value| {
        let text = format!("{event}\n");
        read_framed(&FORMAT, Framing::Lines, text.as_bytes(), usize::MAX, &[]).1.unwrap()
    };
    for (event, wanted) in [
        (json!({}), "`type` is missing, expected an event type"),
        (json!({"type": 7}), "at `/type`: expected a string, found the number 7"),
        (json!({"type": "STEP_STARTED"}), "`stepName` is missing, expected a string"),
        (
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": 1}),
            "at `/messageId`: expected a string, found the number 1",
        ),
        (
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m"}),
            "`delta` is missing, expected a string or an object",
        ),
        (
            json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": [1]}),
            "at `/delta`: expected a string or an object, found an array",
        ),
        (
            json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "a", "value": 1}]}),
            "at `/delta/0/path`: expected a JSON pointer, found `a`",
        ),
        (
            json!({"type": "STATE_DELTA", "delta": [{"op": "move", "path": "/a"}]}),
            "at `/delta/0`: `from` is missing, expected a string",
        ),
        (
            json!({"type": "RUN_STARTED", "timestamp": "now"}),
            "at `/timestamp`: expected milliseconds since the epoch, found the string \"now\"",
        ),
    ] {
        assert_eq!(refused(event), format!("line 1 at byte 0: {wanted}"));
    }
}

#[test]
fn any_bytes_give_a_valid_stream() {
    proptest!(config(), |(text in "(data: )?[\\[{\"a-z:,0-9\\\\}\\]\n]{0,80}")| {
        for framing in [Framing::Sse, Framing::Lines] {
            let (events, _) = read_framed(&FORMAT, framing, text.as_bytes(), usize::MAX, &[]);
            let mut checker = Checker::new();
            for event in &events {
                prop_assert_eq!(checker.check(event), None);
            }
        }
    });
}

#[test]
fn a_thought_that_says_nothing_but_its_words_needs_no_carrier() {
    let stream = [
        r#"{"type":"RUN_STARTED","messageId":"m","role":"assistant","timestamp":1}"#,
        r#"{"type":"BUSINESS_DATA_START","messageId":"m","role":"assistant","timestamp":1}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","messageId":"m","delta":{"output":{"type":"thinking","data":{"content":"hm","thinking":true}}},"timestamp":1}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","messageId":"m","delta":{"output":{"type":"text","content":"yes"}},"timestamp":1}"#,
        r#"{"type":"BUSINESS_DATA_END","messageId":"m","role":"assistant","timestamp":1}"#,
        r#"{"type":"RUN_FINISHED","messageId":"m","role":"assistant","timestamp":1}"#,
    ];
    let (events, failure) = read(&FORMAT, stream.join("\n").as_bytes(), usize::MAX, &[]);
    assert_eq!(failure, None);
    let wanted = stream.map(|line| value(line)["type"].as_str().unwrap().to_owned());
    let frames = written(&events, "object", &[]);
    assert_eq!(kinds(&frames), wanted);
    assert!(frames.iter().all(|frame| frame.get("agui").is_none()), "{frames:?}");
}

#[test]
fn content_without_an_id_belongs_to_the_message_that_spoke_last() {
    let stream = [
        r#"{"type":"RUN_STARTED","messageId":"a","role":"assistant"}"#,
        r#"{"type":"BUSINESS_DATA_START","messageId":"a"}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","messageId":"a","delta":"1"}"#,
        r#"{"type":"BUSINESS_DATA_START","messageId":"b"}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","messageId":"b","delta":"2"}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","messageId":"a","delta":"3"}"#,
        r#"{"type":"BUSINESS_DATA_CONTENT","delta":"4"}"#,
    ];
    let (events, _) = read(&FORMAT, stream.join("\n").as_bytes(), usize::MAX, &[]);
    let said = events.iter().filter_map(|event| match &event.body {
        Body::TextDelta { message, delta } => Some((message.as_str(), &**delta)),
        _ => None,
    });
    assert_eq!(said.collect::<Vec<_>>(), [("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")]);
}
