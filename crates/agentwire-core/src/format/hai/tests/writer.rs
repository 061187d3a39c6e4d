//! Written frames: message ids, timestamps, tool calls, interrupts, snapshots, collaborations.

use super::{super::input, *};
use crate::{
    event::{Interrupt, Message, MessageBody, Outcome, RunInput, Tool},
    format::{Fidelity, Options, Setup},
    framing::Frames,
    json::Json,
    tally::Tally,
};

#[test]
fn braces_in_text_are_safe_for_the_reference_client() {
    let deltas = ["a}{b", "}{", "}", "{", "\"}{\\", "中文 }{ 😀\n\t\u{1}"];
    let bytes = write(&FORMAT, "", None, &run(text("m", &deltas)), &[]);
    assert!(String::from_utf8(bytes.clone()).unwrap().contains("中文"), "nothing is escaped to ASCII");
    let text: String = parsed(&frames(&bytes), "m")
        .iter()
        .map(|document| document["output"]["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(text, deltas.concat());
}

#[test]
fn empty_message_has_parsable_content() {
    let frames = written(&run(text("m", &[])), "", &[]);
    assert_eq!(parsed(&frames, "m"), [json!({"output": {"type": "text", "content": ""}})]);
    assert_same("empty", &run(text("m", &[])), &round_trip(&run(text("m", &[])), "", &[]));
}

#[test]
fn result_with_empty_call_id_round_trips() {
    let result = crate::event::ToolResult {
        message: "m".into(),
        call: "".into(),
        content: crate::event::Content::from("x"),
        error: None,
        explicit_role: false,
    };
    let events = run([Body::ToolResult(Box::new(result))]);
    for profile in PROFILES {
        assert_same(profile, &events, &round_trip(&events, profile, &[]));
    }
}

#[test]
fn events_inherit_the_latest_timestamp() {
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
fn messages_of_a_run_can_share_one_id() {
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
fn arguments_can_be_written_whole() {
    let events = run(call("c", "f", &[r#"{"a":"}"#, r#"{","id":1}"#]));
    let streamed = written(&events, "", &[]);
    assert_eq!(streamed.iter().filter(|frame| frame["type"] == "TOOL_CALL_ARGS").count(), 2);
    let whole = written(&events, "", &["tool_args=whole"]);
    let args: Vec<_> = whole.iter().filter(|frame| frame["type"] == "TOOL_CALL_ARGS").collect();
    assert_eq!(args.len(), 1);
    // Parsed like the reference client, which inserts commas.
    let delta = args[0]["delta"].as_str().unwrap().replace("}{", "},{");
    assert_eq!(value(&format!("[{delta}]")), json!([{"a": "}{", "id": 1}]));
}

#[test]
fn backend_calls_can_be_displayed() {
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
        assert_same(&option, &events, &round_trip(&events, "", &[&option]));
    }
    // A result before the end of the arguments closes the display only; a second result is written too.
    let [start, args, end] = [2, 3, 4].map(|at| events[at - 1].clone());
    let result = events[4].clone();
    let odd: Vec<_> = [&events[0], &start, &args, &result, &args, &end, &result, events.last().unwrap()]
        .into_iter()
        .cloned()
        .collect();
    assert_same("early result", &odd, &round_trip(&odd, "", &["tool_display=show"]));
    // If the front-end tools are unknown, no call is hidden.
    let frames = written(&run(call("d", "ask", &["{}"])), "", &["tool_display=show"]);
    assert_eq!(kinds(&frames).iter().filter(|kind| kind.starts_with("TOOL_CALL")).count(), 3);
}

#[test]
fn interrupt_is_written_as_a_front_end_call() {
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
    assert_same("interrupt", &events, &round_trip(&events, "", &[]));

    let body = json!({"threadId": "t", "runId": "r2", "messages": [
        {"id": "u", "role": "user", "content": "go"},
        {"id": "a1", "role": "tool", "toolCallId": "i1", "content": "true"},
        {"id": "a2", "role": "tool", "toolCallId": "other", "content": "{}"},
    ]});
    let mut input =
        input::from_json(&body.to_string(), &"x".into(), &"y".into(), &mut Tally::default()).unwrap();
    let answers = input::take_answers(&mut input.messages, &["i1".into(), "i2".into()]);
    assert_eq!(answers.len(), 1);
    assert_eq!((&*answers[0].call, answers[0].error.as_deref()), ("i1", None));
    assert_eq!(input::parse_answer(&answers[0].content).get(), "true");
    assert_eq!(input.messages.len(), 2, "only the answer is removed from the messages");
}

#[test]
fn interrupt_of_a_call_is_not_written_as_another_call() {
    let mut events = run(call("c", "approve", &["{}"]));
    let mut finished = RunFinished::new("t", "r");
    finished.outcome = Some(Outcome::Interrupt { interrupts: vec![Interrupt::new("c", "tool_call")] });
    *events.last_mut().unwrap() = Event::new(Body::RunFinished(Box::new(finished)));
    let frames = written(&events, "", &[]);
    assert_eq!(kinds(&frames).iter().filter(|kind| **kind == "TOOL_CALL_START").count(), 1);
}

#[test]
fn developer_messages_are_left_out_of_snapshots() {
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
fn subagents_and_collaborations_are_written_for_the_reference_client() {
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
    // The client joins the content since the start and parses it at the end, as one document.
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
    assert_same("collaborations", &events, &round_trip(&events, "", &[]));
}
